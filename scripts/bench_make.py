r"""Which models should answer which documents, for a bank at a fifth of the price: docs/banks.md.

::

    python scripts/bench_make.py --partitions 12 --seed 13600

On the 13 pairs, four models are ranked and up to 17 calibrate, with a share of their answers: all
of them on the same documents, or a part of the documents common to all and of the others, in turn,
as many for each model. Beside it the bank of all answers, and the plain means of random shared
items.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_pairs import PAIRS, ROOT, pools_of, read_pair

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.exam import Exam
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.regimes import plan_draws

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.simulate import Draw

LENGTHS = (10, 20, 40)
COMMON = (1.0, 0.75, 0.5)


def design(models: int, n: int, share: float, common: float, rng: np.random.Generator) -> Any:
    """Who answers what, shape (models, n): a common part, and windows of the others in turn."""
    budget = round(share * n)
    shared = round(common * budget)
    order = rng.permutation(n)
    asked = np.zeros((models, n), dtype=bool)
    asked[:, order[:shared]] = True
    rest = order[shared:]
    for model in range(models if budget > shared else 0):
        start = round(model * len(rest) / models)
        asked[model, rest[(start + np.arange(budget - shared)) % len(rest)]] = True
    return asked


def tests(bank: ItemBank, scores: Any, truth: Any, plan: Plan, draw: Draw) -> list[Any]:
    """What tests of each length found."""
    scale = bank.info.scale
    exam = Exam(
        bank, scale.to_score(np.clip(scores, scale.lo, scale.hi)), truth, np.ones(len(truth)), plan,
        draw.partition,
    )  # fmt: skip
    return [exam._figures(called) for _, called in exam.adaptive(LENGTHS)]  # noqa: SLF001


def one(job: tuple[Draw, Plan, float]) -> dict[str, list[Any]]:
    """All designs on one draw."""
    draw, plan, share = job
    calibrating = draw.bank_scores.select_models(draw.calibrating)
    ranked = draw.scores.select_models(draw.ranked).scores
    truth = ranked.mean(axis=1)
    low, high = float(calibrating.scores.min()), float(calibrating.scores.max())
    whole = calibrate(calibrating, task="t", metric="m", score_range=(low, high))
    found = {"all answers": tests(whole, ranked, truth, plan, draw)}
    scores = whole.info.scale.to_score(np.clip(ranked, low, high))
    exam = Exam(whole, scores, truth, np.ones(len(truth)), plan, draw.partition)
    found["random, shared"] = [
        exam._figures(called)  # noqa: SLF001
        for _, called in exam.baseline("random-shared", LENGTHS)
    ]
    for common in COMMON:
        rng = np.random.default_rng([plan.seed, draw.partition, 7])
        asked = design(len(calibrating.models), len(calibrating.items), share, common, rng)
        columns = np.flatnonzero(asked.any(axis=0))
        part = ScoreMatrix(
            calibrating.models,
            tuple(calibrating.items[column] for column in columns),
            np.where(asked, calibrating.scores, np.nan)[:, columns],
        )
        bank = calibrate(part, task="t", metric="m", score_range=(low, high))
        found[f"{share:.0%}, {common:.0%} common"] = tests(
            bank, ranked[:, columns], truth, plan, draw
        )
    return found


def main() -> int:
    """Play, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scores", type=Path, default=ROOT.parent / "shared" / "scores")
    parser.add_argument("--seed", type=int, default=13600)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    plan = Plan(seed=args.seed, partitions=args.partitions)
    matrices = [(name, metric, read_pair(args.scores, name, metric)) for name, metric in PAIRS]
    draws, _ = plan_draws(pools_of(matrices, args.scores), plan, ["random"])
    with ProcessPoolExecutor(args.jobs) as pool:
        found = list(pool.map(one, [(draw, plan, args.share) for draw in draws]))
    print("| calibrated by | items | gain in τ over random | decided | accuracy | MAE % |")
    print("|---|---|---|---|---|---|")
    for name in found[0]:
        for place, length in enumerate(LENGTHS):
            both = [(each[name], each["random, shared"]) for each in found]
            mine = [(own[place], plain[place]) for own, plain in both if len(own) > place]
            gain = np.array([own.tau - plain.tau for own, plain in mine])
            called = sum(own.decided_pairs for own, _ in mine)
            print(
                f"| {name} | {length} | {gain.mean():+.3f} ± {gain.std() / len(gain) ** 0.5:.3f} | "
                f"{np.mean([own.decided for own, _ in mine]):.3f} | "
                f"{sum(own.correct for own, _ in mine) / max(called, 1):.3f} | "
                f"{np.mean([own.score_abs_error for own, _ in mine]):.2f} |"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
