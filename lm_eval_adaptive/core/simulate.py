"""Replays whole tests on a matrix of scores: how many items, how good a ranking, how honest.

This module owns the measuring protocol; it imports the plan, the exam and the making of banks. Some
of a matrix's models are ranked and others calibrate; the truth is the order of the ranked models'
means over all items. Nothing of the ranked models is seen but the answers asked. Other draws than
random partitions are made in ``core.regimes``, means in ``core.summary``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.exam import Exam
from lm_eval_adaptive.core.plan import ADAPTIVE, BASELINES
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.exam import Called, Row
    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.plan import Plan

MAX_MISSING = 0.03


def complete_part(matrix: ScoreMatrix) -> ScoreMatrix:
    """Models by name without those that miss over 3 % of the items, then items all others have."""
    names = sorted(matrix.models)
    by_name = matrix.select_models(names)
    missing = np.isnan(by_name.scores).mean(axis=1)
    kept = by_name.select_models(
        [name for name, share in zip(names, missing, strict=True) if share <= MAX_MISSING]
    )
    return kept.select_items(np.asarray(~np.isnan(kept.scores).any(axis=0)))


@dataclass(frozen=True)
class Draw:
    """Models of one partition; the matrices may be shared with other draws.

    Attributes:
        name: Name of the matrix, for the rows.
        metric: Metric, for the rows.
        regime: How it was drawn.
        partition: Its number.
        bank_scores: Complete raw scores that hold the calibrating models.
        calibrating: Their names.
        scores: Complete raw scores on the same items that hold the ranked models.
        ranked: Their names.
    """

    name: str
    metric: str
    regime: str
    partition: int
    bank_scores: ScoreMatrix
    calibrating: tuple[str, ...]
    scores: ScoreMatrix
    ranked: tuple[str, ...]


def random_draw(matrix: ScoreMatrix, plan: Plan, partition: int, name: str, metric: str) -> Draw:
    """One random partition of a complete matrix, or the models that the plan names."""
    calibrating, ranked = split(matrix, plan, partition)
    return Draw(
        name, metric, "random", partition, matrix, calibrating.models, matrix, ranked.models
    )


def split(matrix: ScoreMatrix, plan: Plan, partition: int) -> tuple[ScoreMatrix, ScoreMatrix]:
    """Models to calibrate with, and models to rank.

    Raises:
        UsageError: The matrix holds too few models.
    """
    if plan.ranked:
        others = [name for name in matrix.models if name not in plan.ranked]
        calibrating = others if plan.calibrating is None else list(plan.calibrating)
        return matrix.select_models(calibrating), matrix.select_models(plan.ranked)
    if len(matrix.models) < plan.holdout + 3:
        raise UsageError(
            f"{len(matrix.models)} complete models are too few to rank {plan.holdout} and "
            "calibrate with at least 3; lower --holdout"
        )
    order = np.random.default_rng(plan.seed + partition).permutation(len(matrix.models))
    names = [matrix.models[row] for row in order]
    ranked = names[: plan.holdout]
    calibrating = names[plan.holdout : plan.holdout + plan.calibration]
    return matrix.select_models(calibrating), matrix.select_models(ranked)


def simulate_partition(
    matrix: ScoreMatrix, plan: Plan, partition: int, name: str, metric: str
) -> list[Row]:
    """All methods and lengths on one random partition.

    Args:
        matrix: Complete scores, raw.
        plan: What to simulate.
        partition: Its number.
        name: Name of the matrix, for the rows.
        metric: Metric, for the rows.
    """
    return simulate_draw(random_draw(matrix, plan, partition, name, metric), plan)


def simulate_draw(draw: Draw, plan: Plan) -> list[Row]:
    """All methods and lengths on one draw; each bank is calibrated once for all of them."""
    calibrating = draw.bank_scores.select_models(draw.calibrating)
    ranked = draw.scores.select_models(draw.ranked)
    order = sorted(range(len(ranked.models)), key=lambda row: ranked.models[row])
    ranked = ranked.select_models([ranked.models[row] for row in order])
    lengths = tuple(length for length in sorted(plan.lengths) if length <= len(ranked.items))
    costs = np.array([plan.costs.get(model, 1.0) for model in ranked.models])
    banks: dict[str, ItemBank] = {}
    rows: list[Row] = []

    def bank_of(response_model: str) -> ItemBank:
        if response_model not in banks:
            made = calibrate(
                calibrating,
                task=draw.name,
                metric=draw.metric,
                response_model=response_model,
                higher_is_better=plan.higher_is_better,
            )
            banks[response_model] = banks[made.info.response_model] = made
        return banks[response_model]

    for method in plan.methods:
        if method in BASELINES:  # they look at scores alone: any bank will do
            # and where no other method needs one, that which takes no hold-outs.
            any_bank = "auto" if "default" in plan.methods else "paper-1pl"
            bank = next(iter(banks.values())) if banks else bank_of(any_bank)
        else:
            bank = bank_of("auto" if method == "default" else method)
        truth = ranked.scores.mean(axis=1)
        scale = bank.info.scale
        scores = scale.to_score(ranked.scores)
        exam = Exam(bank, scores, truth, costs, plan, draw.partition)
        found: list[tuple[int | None, Called]] = []
        if method in ADAPTIVE:
            found += exam.adaptive(lengths)
        else:
            found += exam.baseline(method, lengths)
        for length, called in found:
            row = exam.row(draw.name, draw.metric, method, length, called)
            rows.append(replace(row, regime=draw.regime))
    return rows


def simulate(
    matrices: Sequence[tuple[str, str, ScoreMatrix]],
    plan: Plan,
    *,
    jobs: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Row]:
    """All partitions of several matrices, in parallel processes.

    Args:
        matrices: (name, metric, raw scores).
        plan: What to simulate.
        jobs: Processes; None is one per core.
        progress: Called when a partition is done.

    Returns:
        Rows in the order of matrices, partitions, methods and lengths, whatever finished first.
    """
    draws = [
        random_draw(complete, plan, partition, name, metric)
        for name, metric, matrix in matrices
        for complete in [complete_part(matrix)]
        for partition in range(1 if plan.ranked else plan.partitions)
    ]
    return run_draws(draws, plan, jobs=jobs, progress=progress)


def run_draws(
    draws: Sequence[Draw],
    plan: Plan,
    *,
    jobs: int | None = None,
    progress: Callable[[], None] | None = None,
) -> list[Row]:
    """Several draws, in parallel processes; rows in the order of the draws."""
    count = jobs or os.cpu_count() or 1
    results: list[list[Row]] = []
    if count == 1 or len(draws) == 1:
        for each in draws:
            results.append(simulate_draw(each, plan))
            if progress:
                progress()
        return [row for rows in results for row in rows]
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(max_workers=min(count, len(draws))) as pool:
        waiting = [pool.submit(_alone, each, plan) for each in draws]
        for done in waiting:
            results.append(done.result())
            if progress:
                progress()
    return [row for rows in results for row in rows]


def _alone(draw: Draw, plan: Plan) -> list[Row]:
    """One draw in a process that shares the machine with others: one thread of algebra."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):
        return simulate_draw(draw, plan)
