"""Who calibrates and who is ranked: regimes of how unlike the bank's models the ranked ones are.

Random partitions flatter a bank: there the ranked models come from the same pool as those that
calibrated. This module owns the other draws and the plan of all of them; it imports the simulation
of one draw. Partition r of every regime draws by ``default_rng(seed + r)``.

=========  ===========================================  =====================================
regime     ranked, ``holdout`` of them at random        calibrating, ``calibration`` at random
=========  ===========================================  =====================================
random     of all models                                of all others
stronger   of the best 40 %                             of the other 60 %
weaker     of the worst 40 %                            of the other 60 %
top        of the best 30 %, at least 6                 of all models that are not ranked
family     of one family, itself drawn at random        of all models of no or another family
source     of all models of the matrix                  of another matrix over the same items
=========  ===========================================  =====================================

Better and worse are by the mean over all items, ties by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.simulate import Draw, complete_part, random_draw
from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.matrix import ScoreMatrix
    from lm_eval_adaptive.core.plan import Plan

    Rows = NDArray[np.int64]

FROM_ONE_MATRIX = ("random", "stronger", "weaker", "top", "family")
REGIMES = (*FROM_ONE_MATRIX, "source")
LOWER_SHARE = 0.6  # of the models that calibrate where the ranked ones are stronger, or weaker
TOP_SHARE = 0.3
TOP_LEAST = 6
# Fewer are no bank worth the name; random partitions keep the 3 they always took.
LEAST_CALIBRATING = 6
LEAST_IN_FAMILY = 3


@dataclass(frozen=True)
class Pool:
    """Models to draw from.

    Attributes:
        name: Name of the matrix.
        metric: Metric.
        matrix: Raw scores, of which the complete part is taken.
        families: Family by model, for regime *family*; others belong to none.
        source: Raw scores of other models on the same items, for regime *source*.
    """

    name: str
    metric: str
    matrix: ScoreMatrix
    families: Mapping[str, str] = field(default_factory=dict)
    source: ScoreMatrix | None = None


@dataclass(frozen=True)
class Skipped:
    """A matrix that has too few models for a regime, and why."""

    matrix: str
    metric: str
    regime: str
    reason: str

    def __str__(self) -> str:
        return f"{self.matrix} {self.metric}: no regime {self.regime}, {self.reason}"


def chosen_regimes(words: Sequence[str], *, source: bool) -> tuple[str, ...]:
    """Regimes in their own order, from words that may hold ``all``.

    Args:
        words: As given; none is *random*, or *source* where there is another source.
        source: Whether there is a bank's source apart, which ``all`` then takes in.

    Raises:
        UsageError: A word is unknown, or *source* is asked for without one.

    >>> chosen_regimes(["top", "random", "top"], source=False)
    ('random', 'top')
    """
    unknown = sorted(set(words) - {*REGIMES, "all"})
    if unknown:
        raise UsageError(
            f"--regime: unknown {', '.join(unknown)}; known are {', '.join(REGIMES)} and all"
        )
    if "source" in words and not source:
        raise UsageError("--regime source needs --calibrate_on with the scores of other models")
    wanted = set(words) or {"source" if source else "random"}
    if "all" in wanted:
        wanted |= set(FROM_ONE_MATRIX)
    if source:  # it was given to be calibrated on
        wanted.add("source")
    return tuple(name for name in REGIMES if name in wanted)


def plan_draws(
    pools: Sequence[Pool], plan: Plan, regimes: Sequence[str] = ("random",)
) -> tuple[list[Draw], list[Skipped]]:
    """All draws of some matrices, by matrix, regime and partition.

    Args:
        pools: Models to draw from.
        plan: What to simulate.
        regimes: Some of ``REGIMES``; *source* only where every pool has one.

    Returns:
        The draws, and the matrices left out of a regime.

    Raises:
        UsageError: Nothing is left to simulate; the message is the first reason. Models to rank
            are named while a regime would draw them, or a source has no items in common.
    """
    if plan.ranked and tuple(regimes) != ("random",):
        raise UsageError(
            "models named to be ranked (--holdout_models) are ranked once against those named to "
            "calibrate; leave out --regime and --calibrate_on"
        )
    draws: list[Draw] = []
    skipped: list[Skipped] = []
    for pool in pools:
        ready = _complete(pool)
        for regime in regimes:
            reason = _shortfall(ready, plan, regime)
            if reason is not None:
                skipped.append(Skipped(pool.name, pool.metric, regime, reason))
                continue
            count = 1 if plan.ranked else plan.partitions
            draws += [draw(ready, plan, regime, partition) for partition in range(count)]
    if not draws:
        raise UsageError(str(skipped[0]))
    return draws, skipped


def draw(pool: Pool, plan: Plan, regime: str, partition: int) -> Draw:
    """Models to calibrate with, and models to rank, of one partition of a regime.

    Args:
        pool: Complete scores, models by name.
        plan: How many of each, the seed and the metric's direction.
        regime: One of ``REGIMES`` that the pool has models enough for.
        partition: Its number.
    """
    if regime == "random":
        return random_draw(pool.matrix, plan, partition, pool.name, pool.metric)
    rng = np.random.default_rng(plan.seed + partition)
    models = pool.matrix.models
    everyone = np.arange(len(models))
    bank_scores = pool.matrix
    if regime in {"stronger", "weaker"}:
        others, candidates = _sides(pool.matrix, plan, regime)
        others = rng.permutation(others)
        ranked = rng.permutation(candidates)[: plan.holdout]
    elif regime == "top":
        ranked = rng.permutation(_best(pool.matrix, plan))[: plan.holdout]
        others = rng.permutation(np.setdiff1d(everyone, ranked))
    elif regime == "family":
        families = _families(pool, plan)
        names = sorted(families)
        members = families[names[rng.integers(len(names))]]
        ranked = rng.permutation(members)[: plan.holdout]
        others = rng.permutation(np.setdiff1d(everyone, members))
    else:
        assert pool.source is not None
        bank_scores = pool.source
        ranked = rng.permutation(everyone)[: plan.holdout]
        others = rng.permutation(len(bank_scores.models))
    ranked_names = tuple(models[row] for row in ranked)
    # A model that is ranked does not calibrate, under whatever prompt another source asked it.
    others_names = [bank_scores.models[row] for row in others]
    calibrating = [name for name in others_names if name not in ranked_names]
    return Draw(
        pool.name,
        pool.metric,
        regime,
        partition,
        bank_scores,
        tuple(calibrating[: plan.calibration]),
        pool.matrix,
        ranked_names,
    )


def _complete(pool: Pool) -> Pool:
    """Complete scores of both, on the items they share."""
    matrix = complete_part(pool.matrix)
    if pool.source is None:
        return replace(pool, matrix=matrix)
    source = complete_part(pool.source)
    columns = {item: column for column, item in enumerate(source.items)}
    shared = np.array([item in columns for item in matrix.items], dtype=bool)
    if shared.sum() < 2:
        raise UsageError(
            f"--calibrate_on: its {len(source.items)} complete items and the {len(matrix.items)} "
            f"of {pool.name} {pool.metric} have {int(shared.sum())} in common; both files need the "
            "same item ids"
        )
    matrix = matrix.select_items(shared)
    source = source.select_items([columns[item] for item in matrix.items])
    return replace(pool, matrix=matrix, source=source)


def _shortfall(pool: Pool, plan: Plan, regime: str) -> str | None:
    """Why there are too few models for a regime, if there are."""
    count = len(pool.matrix.models)
    if plan.ranked:
        return None
    if regime == "random":
        if count >= plan.holdout + 3:
            return None
        return (
            f"{count} complete models are too few to rank {plan.holdout} and calibrate with at "
            "least 3; lower --holdout"
        )
    if regime == "family":
        if _families(pool, plan):
            return None
        return (
            f"no family has {_least(plan)} models or more with at least {LEAST_CALIBRATING} "
            f"outside it, among {count} complete models"
        )
    if regime == "source":
        assert pool.source is not None
        there = len(pool.source.models)
        overlap = len(set(pool.source.models) & set(pool.matrix.models))
        if count >= plan.holdout and there - min(overlap, plan.holdout) >= LEAST_CALIBRATING:
            return None
        return (
            f"{count} complete models to rank and {there} to calibrate, of which {overlap} are the "
            f"same, are too few to rank {plan.holdout} and calibrate with at least "
            f"{LEAST_CALIBRATING} others"
        )
    if regime == "top":
        candidates, others = len(_best(pool.matrix, plan)), count - plan.holdout
    else:
        lower, upper = _sides(pool.matrix, plan, regime)
        candidates, others = len(upper), len(lower)
    if candidates >= plan.holdout and others >= LEAST_CALIBRATING:
        return None
    return (
        f"{count} complete models leave {candidates} to rank {plan.holdout} of and "
        f"{max(others, 0)} to calibrate with, expected {LEAST_CALIBRATING} at least"
    )


def _by_mean(matrix: ScoreMatrix, plan: Plan) -> Rows:
    """Rows from the worst to the best mean over all items, ties in the order of the rows."""
    sign = 1.0 if plan.higher_is_better else -1.0
    return np.argsort(sign * matrix.scores.mean(axis=1), kind="stable").astype(np.int64)


def _sides(matrix: ScoreMatrix, plan: Plan, regime: str) -> tuple[Rows, Rows]:
    """Rows that may calibrate and rows that may be ranked: 60 % on one side, 40 % on the other."""
    order = _by_mean(matrix, plan)
    count = round(LOWER_SHARE * len(order))
    if regime == "stronger":
        return order[:count], order[count:]
    return order[len(order) - count :], order[: len(order) - count]


def _best(matrix: ScoreMatrix, plan: Plan) -> Rows:
    order = _by_mean(matrix, plan)
    return order[-max(TOP_LEAST, round(TOP_SHARE * len(order))) :]


def _least(plan: Plan) -> int:
    return min(plan.holdout, LEAST_IN_FAMILY)


def _families(pool: Pool, plan: Plan) -> dict[str, list[int]]:
    """Rows of each family that has models enough, and leaves enough to calibrate with."""
    found: dict[str, list[int]] = {}
    models, groups = pool.matrix.models, pool.matrix.groups
    for row, (model, group) in enumerate(zip(models, groups, strict=True)):
        family = pool.families.get(model, pool.families.get(group))
        if family is not None:
            found.setdefault(family, []).append(row)
    most = len(models) - LEAST_CALIBRATING
    return {name: rows for name, rows in found.items() if _least(plan) <= len(rows) <= most}
