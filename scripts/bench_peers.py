"""Beside other packages for item response theory: the same simulated data, the same run.

Two jobs on answers of 0 and 1 of simulated models under a 2PL: *calibrate* (item parameters from a
matrix of answers) and *test* (each new model asked 40 of 1,000 items of known parameters by largest
information, its ability estimated after every answer). Others are called by their own estimators
and selectors, in an environment that holds them, none of which this package needs::

    python -m venv /tmp/peers && /tmp/peers/bin/pip install catsim adaptivetesting girth py-irt
    python scripts/bench_peers.py --peers /tmp/peers/bin/python [--models 200] [--items 500]

Quality beside time: of a calibration the rank correlation of difficulties and slopes with the truth
and the mean log likelihood of answers that new models gave to half of the items, their abilities
estimated from the other half by one and the same code (posterior means under each calibration's
parameters); of a test the rank correlation (tau) of abilities with the truth. What is not installed
is left out and said. The others choose each model's items for it alone, and so does "ours" here; in
a run all models are asked the same where they can be ("shared items"), which is for differences of
models whose bank is not known to the last digit, and costs something where it is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CALIBRATE = ("ours", "girth", "py-irt")
TEST = ("ours", "ours, shared items", "ours, paper-1pl", "catsim", "adaptivetesting")
ASKED = 40
NEW = 40  # models that are tested, or held out


def expit(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def simulated(models: int, items: int, seed: int = 0) -> dict[str, Any]:
    """Abilities, item parameters, answers of calibrating and of new models."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {
        "theta": rng.normal(0.0, 1.0, models + NEW),
        "a": np.exp(rng.normal(0.0, 0.4, items)),
        "b": rng.normal(0.0, 1.2, items),
    }
    mean = expit(found["a"] * (found["theta"][:, None] - found["b"]))
    answers = (rng.uniform(size=mean.shape) < mean).astype(np.int8)
    return found | {"old": answers[:models], "new": answers[models:]}


# Calibration: item parameters in a, b


def calibrate_ours(old: Any) -> tuple[Any, Any]:
    from lm_eval_adaptive.core.calibration import calibrate_items

    items = calibrate_items(old.astype(float), "bernoulli-2pl").items
    return items.discrimination, items.difficulty


def calibrate_girth(old: Any) -> tuple[Any, Any]:
    from girth import twopl_mml

    found = twopl_mml(np.ascontiguousarray(old.T).astype(int))
    return found["Discrimination"], found["Difficulty"]


def calibrate_py_irt(old: Any) -> tuple[Any, Any]:
    import pandas as pd
    from py_irt.config import IrtConfig
    from py_irt.dataset import Dataset
    from py_irt.training import IrtModelTrainer

    table = pd.DataFrame(old, columns=[f"i{item}" for item in range(old.shape[1])])
    table["model"] = [f"m{row}" for row in range(len(old))]
    data = Dataset.from_pandas(
        table, subject_column="model", item_columns=[f"i{item}" for item in range(old.shape[1])]
    )
    config = IrtConfig(model_type="2pl", epochs=2000, priors="hierarchical", dropout=0.0)
    trainer = IrtModelTrainer(config=config, data_path=None, dataset=data)
    trainer.train(device="cpu")
    best = trainer.best_params or trainer.last_params
    order = [int(best["item_ids"][place][1:]) for place in range(old.shape[1])]
    a, b = np.empty(old.shape[1]), np.empty(old.shape[1])
    a[order], b[order] = np.ravel(best["disc"]), np.ravel(best["diff"])
    return a, b


def held_out(data: dict[str, Any], a: Any, b: Any) -> float:
    """Mean log likelihood of half of the new models' answers."""
    grid = np.linspace(-6.0, 6.0, 241)
    mean = np.clip(expit(a[:, None] * (grid - b[:, None])), 1e-9, 1.0 - 1e-9)  # items, grid
    seen, unseen = np.arange(len(a)) % 2 == 0, np.arange(len(a)) % 2 == 1
    y = data["new"].astype(float)
    weight = y[:, seen] @ np.log(mean[seen]) + (1.0 - y[:, seen]) @ np.log1p(-mean[seen])
    weight = np.exp(weight - 0.5 * grid**2 - (weight - 0.5 * grid**2).max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    p = np.clip(weight @ mean[unseen].T, 1e-9, 1.0 - 1e-9)
    return float(np.mean(y[:, unseen] * np.log(p) + (1.0 - y[:, unseen]) * np.log1p(-p)))


# Tests: abilities of new models


def test_ours(data: dict[str, Any], model: str, *, shared: bool) -> Any:
    from lm_eval_adaptive.core.bernoulli import BernoulliPosterior
    from lm_eval_adaptive.core.paper import PaperPosterior
    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.response import ItemParameters
    from lm_eval_adaptive.core.rules import ProcedureConfig
    from lm_eval_adaptive.core.sampler import make_sampler

    a, b, answers = data["a"], data["b"], data["new"].astype(float)
    ones, zeros = np.ones(len(a)), np.zeros((len(a), 2, 2))
    prior = {"prior_mean": 0.0, "prior_sd": 1.0}
    if model == "bernoulli-2pl":
        inference: Any = BernoulliPosterior(ItemParameters(model, b, a, ones, zeros), prior)
    else:  # the published method has one slope
        extra = {"score_intercept": 0.0, "score_slope": 1.0, "score_sd": 0.0, "k": 1.0}
        items = ItemParameters("paper-1pl", b, ones, ones, zeros)
        inference = PaperPosterior(items, prior | extra)
    inference.shared = shared
    procedure = Procedure(
        inference,
        make_sampler("fisher", inference, ones, 0),
        np.ones(len(answers)),
        ProcedureConfig(items_per_model=ASKED, round_size=1),
        kept=ones.astype(bool),
    )
    state, _ = procedure.run(lambda row, items: answers[row, list(items)].tolist())
    return procedure.estimate(state).theta


def test_catsim(data: dict[str, Any]) -> Any:
    from catsim.estimation import NumericalSearchEstimator
    from catsim.item_bank import ItemBank
    from catsim.selection import MaxInfoSelector

    a, b = data["a"], data["b"]
    bank = ItemBank(np.stack([a, b, np.zeros_like(a), np.ones_like(a)], axis=1))
    estimator, selector = NumericalSearchEstimator(), MaxInfoSelector()
    found = []
    for answers in data["new"]:
        theta, asked, given = 0.0, [], []
        for _ in range(ASKED):
            item = selector.select(item_bank=bank, administered_items=asked, est_theta=theta)
            asked.append(int(item))
            given.append(bool(answers[item]))
            theta = estimator.estimate(
                item_bank=bank, administered_items=asked, response_vector=given, est_theta=theta
            )
        found.append(theta)
    return np.array(found)


def test_adaptivetesting(data: dict[str, Any]) -> Any:
    from adaptivetesting.math.estimators import BayesModal, NormalPrior
    from adaptivetesting.math.item_selection import maximum_information_criterion
    from adaptivetesting.models import ItemPool

    found = []
    for answers in data["new"]:
        pool = ItemPool.load_from_list(
            b=data["b"].tolist(), a=data["a"].tolist(), ids=list(range(len(data["a"])))
        )
        left, theta, asked, given = list(pool.test_items), 0.0, [], []
        for _ in range(ASKED):
            item = maximum_information_criterion(left, theta)
            left.remove(item)
            asked.append(item)
            given.append(int(answers[item.id]))
            theta = float(BayesModal(given, asked, NormalPrior(0, 1)).get_estimation())
        found.append(theta)
    return np.array(found)


def tau(one: Any, other: Any) -> float:
    a, b = np.triu_indices(len(one), 1)
    return float(np.mean(np.sign(one[a] - one[b]) * np.sign(other[a] - other[b])))


def alone(job: str, name: str, path: str) -> None:
    """One package at one job; prints what came out."""
    data = dict(np.load(path))
    before = time.process_time(), time.perf_counter()
    if job == "calibrate":
        make = {"ours": calibrate_ours, "girth": calibrate_girth, "py-irt": calibrate_py_irt}[name]
        a, b = make(data["old"])
    else:
        theta = {
            "ours": partial(test_ours, model="bernoulli-2pl", shared=False),
            "ours, shared items": partial(test_ours, model="bernoulli-2pl", shared=True),
            "ours, paper-1pl": partial(test_ours, model="paper-1pl", shared=False),
            "catsim": test_catsim,
            "adaptivetesting": test_adaptivetesting,
        }[name](data)
    cpu, wall = time.process_time() - before[0], time.perf_counter() - before[1]
    if job == "calibrate":
        quality = (
            f"tau of b {tau(b, data['b']):.3f}, of a {tau(a, data['a']):.3f}, held-out log "
            f"likelihood {held_out(data, a, b):.4f}"
        )
    else:
        quality = f"tau {tau(theta, data['theta'][-NEW:]):.3f}"
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": cpu, "wall": wall, "mb": mb, "quality": quality}))


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the others")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone:
        alone(*args.alone)
        return 0
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for job, names, sizes in (
            ("calibrate", CALIBRATE, (args.models, args.items)),
            ("test", TEST, (0, 1000)),
        ):
            path = str(Path(folder) / f"{job}.npz")
            np.savez(path, **simulated(*sizes))
            print(f"\n| {job} | CPU s | wall s | MB | quality |\n|---|---|---|---|---|")
            for name in names:
                python = sys.executable if name.startswith("ours") else args.peers
                command = [python, str(Path(__file__).resolve()), "--alone", job, name, path]
                done = subprocess.run(command, env=environment, capture_output=True, check=False)
                if done.returncode:
                    why = done.stderr.decode().strip().splitlines()[-1:]
                    print(f"| {name} | did not run: {' '.join(why)[:120]} | | | |", flush=True)
                    continue
                # Some show their progress on the same stream.
                each = json.loads(done.stdout[done.stdout.rindex(b'{"cpu"') :].splitlines()[0])
                print(
                    f"| {name} | {each['cpu']:.2f} | {each['wall']:.2f} | {each['mb']:.0f} | "
                    f"{each['quality']} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
