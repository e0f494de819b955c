r"""The life of a project: models come one after the other to a benchmark without a bank.

::

    python scripts/bench_life.py --json life.json         # the table of docs/life.md; goes on
    python scripts/bench_life.py --only alpaca_judge:judge_pref

The first ``--first`` models answer a fifth of the documents, the same ones (`bank make`); each
later one is asked by itself with the bank so far, ranked against all models that were there before
(``--against all``), and enters the bank (``--grow``). Models come by rising score, which is the
harder order. At each arrival: answers asked so far as a share of full evaluation, Kendall tau of
the whole list, pairs called by the ranking of the arrival, how many rightly, and whether intervals
hold. Beside it: as many answers spent on plain random documents that all models share, the
published method with the same first models, and a bank whose items were mixed up (the control).
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_pairs import PAIRS, ROOT, read_pair
from scipy.stats import kendalltau

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import better_by
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.simulate import complete_part

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank

SHARE, CALLED = 0.2, 0.975
METHODS = ("grown", "paper-1pl", "mixed up")


def arrivals(matrix: ScoreMatrix, count: int) -> ScoreMatrix:
    """At most so many models, evenly from the order of their scores, by rising score."""
    order = np.argsort(matrix.scores.mean(axis=1), kind="stable")
    kept = order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)]
    return matrix.select_models([matrix.models[row] for row in dict.fromkeys(kept.tolist())])


def life(matrix: ScoreMatrix, method: str, seed: int, first: int) -> list[dict[str, float]]:
    """What is known at each arrival by one method."""
    rng = np.random.default_rng(seed)
    n = len(matrix.items)
    part = np.sort(rng.permutation(n)[: max(round(SHARE * n), 25)])
    truth = matrix.scores.mean(axis=1)
    asked = first * len(part)
    early = matrix.select_models(matrix.models[:first]).select_items(part)
    scores = early.scores
    if method == "mixed up":
        scores = scores[:, rng.permutation(len(part))]
    bank = calibrate(
        ScoreMatrix(early.models, early.items, scores),
        task="t",
        metric="m",
        score_range=(float(matrix.scores.min()), float(matrix.scores.max())),
        response_model=method if method == "paper-1pl" else "robust-2pl",
    )
    found = [_row(bank, truth[:first], asked / (first * n), 0, 0, [])]
    for place in range(first, len(matrix.models)):
        config = ProcedureConfig(round_size=None, seed=seed, max_items=len(part))
        procedure = Procedure.for_bank(bank, np.ones(1), config, range(len(bank.info.models)))
        if procedure.inference.one_at_a_time:
            procedure.config = replace(config, round_size=1)
        own = bank.info.scale.to_score(matrix.scores[place, part])
        state, _ = procedure.run(lambda _, items, own=own: own[list(items)].tolist())
        estimates = procedure.estimate(state)
        asked += int(state.administered[0])
        better = better_by(estimates)[0, 1:]
        called = np.maximum(better, 1.0 - better) > CALLED
        right = called & ((better > 0.5) == (truth[place] > truth[:place]))
        full = bank.info.scale.to_score(truth[[place]])[0]
        holds = abs(estimates.score[0] - full) <= estimates.score_half_interval[0]
        answers = np.full((1, len(part)), np.nan)
        told = np.isfinite(state.responses[0])
        answers[0, told] = matrix.scores[place, part][told]
        bank = extend(
            bank, ScoreMatrix((matrix.models[place],), bank.content_hash, answers), clip=True
        )
        found.append(
            _row(
                bank, truth[: place + 1], asked / ((place + 1) * n), int(called.sum()),
                int(right.sum()), [float(holds)], place,
            )
        )  # fmt: skip
    return found


def _row(
    bank: ItemBank,
    truth: Any,
    price: float,
    called: int,
    right: int,
    holds: list[float],
    pairs: int = 0,
) -> dict[str, float]:
    means = [model.mean_score for model in bank.info.models]
    return {
        "models": len(truth),
        "price": price,
        "tau": float(kendalltau(means, truth).statistic),
        "called": called,
        "right": right,
        "pairs": pairs,
        "holds": float(np.mean(holds)) if holds else float("nan"),
    }


def shared(matrix: ScoreMatrix, price: float, seed: int, draws: int = 10) -> float:
    """Tau of the list after plain random documents that all share, at that price."""
    n, truth = len(matrix.items), matrix.scores.mean(axis=1)
    count = max(round(price * n), 1)
    found = []
    for draw in range(draws):
        items = np.random.default_rng([seed, draw]).permutation(n)[:count]
        found.append(kendalltau(matrix.scores[:, items].mean(axis=1), truth).statistic)
    return float(np.mean(found))


def one(job: tuple[str, str, Path, int, int, int]) -> dict[str, Any]:
    """All methods on one pair."""
    name, metric, folder, seed, first, count = job
    matrix = arrivals(complete_part(read_pair(folder, name, metric)), count)
    rows = {method: life(matrix, method, seed, first) for method in METHODS}
    price = rows["grown"][-1]["price"]
    return {
        "pair": f"{name}:{metric}",
        "seed": seed,
        "rows": rows,
        "shared": shared(matrix, price, seed),
    }


def print_table(found: list[dict[str, Any]]) -> None:
    """Means over the pairs, at the last arrival."""
    print("| method | answers | τ of the list | called | right | intervals that hold |")
    print("|---|---|---|---|---|---|")
    for method in METHODS:
        last = [each["rows"][method][-1] for each in found]
        every = [row for each in found for row in each["rows"][method][1:]]
        called = sum(row["called"] for row in every)
        right = sum(row["right"] for row in every) / max(called, 1)
        pairs = sum(row["pairs"] for row in every)
        tau = np.array([row["tau"] for row in last])
        print(
            f"| {method} | {np.mean([row['price'] for row in last]):.3f} | {tau.mean():.3f} ± "
            f"{tau.std(ddof=1) / np.sqrt(len(tau)):.3f} | {called / max(pairs, 1):.3f} | "
            f"{right:.3f} | {np.nanmean([row['holds'] for row in every]):.3f} |"
        )
    plain = np.array([each["shared"] for each in found])
    print(
        f"| random, shared | as grown | {plain.mean():.3f} ± "
        f"{plain.std(ddof=1) / np.sqrt(len(plain)):.3f} | – | – | – |"
    )
    print("| full evaluation | 1 | 1 | – | – | – |")


def main() -> int:
    """Play, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scores", type=Path, default=ROOT.parent / "shared" / "scores")
    parser.add_argument("--only", nargs="+", metavar="MATRIX:METRIC", default=[])
    parser.add_argument("--models", type=int, default=30, help="Most models of a matrix")
    parser.add_argument("--first", type=int, default=6, help="Models that make the bank")
    parser.add_argument("--seed", type=int, default=13700)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--json", type=Path, default=None, help="Kept here; what is there is not made again"
    )
    args = parser.parse_args()
    pairs = [tuple(each.split(":")) for each in args.only] or list(PAIRS)
    found: list[dict[str, Any]] = []
    if args.json is not None and args.json.is_file():
        found = json.loads(args.json.read_text(encoding="utf-8"))
    done = {(each["pair"], each["seed"]) for each in found}
    jobs = [
        (name, metric, args.scores, args.seed, args.first, args.models)
        for name, metric in pairs
        if (f"{name}:{metric}", args.seed) not in done
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        for each in pool.map(one, jobs):
            found.append(each)
            print(
                each["pair"], each["rows"]["grown"][-1], f"shared {each['shared']:.3f}", flush=True
            )
            if args.json is not None:
                args.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print_table(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
