"""Means of simulated tests, with their standard errors.

This module owns what a table of a simulation shows; it imports numpy and the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.exam import Row


@dataclass(frozen=True)
class Summary:
    """Means over partitions of one method's tests at one length; see ``Row`` for what they are of.

    Attributes:
        matrix: Name of the matrix; ``mean`` over all.
        metric: Metric; "" over all.
        method: Method.
        items_per_model: Fixed length, None where the tests stopped by themselves.
        tests: Tests.
        tau: Mean of that figure, which ``tau_se`` gives the standard error of over partitions, NaN
            of a single one; likewise ``decided`` and the others.
        decided_pairs: Called pairs of all tests.
        correct: Those in the true order.
        accuracy: Their share; NaN where no pair was called.
    """

    matrix: str
    metric: str
    method: str
    items_per_model: int | None
    tests: int
    tau: float
    tau_se: float
    decided: float
    decided_se: float
    score_abs_error: float
    score_abs_error_se: float
    covered: float
    covered_se: float
    items: float
    items_se: float
    cost: float
    cost_se: float
    decided_pairs: int
    correct: int
    accuracy: float


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Means over partitions, per matrix and over matrices, with standard errors over partitions.

    Accuracy is that of called pairs, pooled. Standard errors of means over matrices are those of
    the partition means, since one partition number permutes every matrix by the same generator.

    Returns:
        One per (matrix, method, length), then one per (method, length) whose matrix is ``mean``.
    """
    keys = dict.fromkeys((r.matrix, r.metric, r.method, r.items_per_model) for r in rows)
    means = [
        _mean(
            [r for r in rows if (r.matrix, r.metric, r.method, r.items_per_model) == key],
            matrix=key[0],
            metric=key[1],
        )
        for key in keys
    ]
    for key in dict.fromkeys((r.method, r.items_per_model) for r in rows):
        mine = [r for r in rows if (r.method, r.items_per_model) == key]
        means.append(_mean(mine, matrix="mean", metric=""))
    return means


def _mean(rows: Sequence[Row], matrix: str, metric: str) -> Summary:
    """Of rows of one method and length."""
    # Each matrix weighs the same, then each partition.
    cells = {(r.matrix, r.metric, r.partition): r for r in rows}
    partitions = sorted({r.partition for r in rows})

    def mean(name: str) -> tuple[float, float]:
        by_partition = [
            float(np.mean([getattr(r, name) for key, r in cells.items() if key[2] == partition]))
            for partition in partitions
        ]
        spread = np.std(by_partition, ddof=1) if len(partitions) > 1 else float("nan")
        return float(np.mean(by_partition)), float(spread / np.sqrt(len(partitions)))

    tau, decided, off = mean("tau"), mean("decided"), mean("score_abs_error")
    covered, items, cost = mean("covered"), mean("items"), mean("cost")
    pairs, correct = sum(r.decided_pairs for r in rows), sum(r.correct for r in rows)
    return Summary(
        matrix=matrix,
        metric=metric,
        method=rows[0].method,
        items_per_model=rows[0].items_per_model,
        tests=len(rows),
        tau=tau[0],
        tau_se=tau[1],
        decided=decided[0],
        decided_se=decided[1],
        score_abs_error=off[0],
        score_abs_error_se=off[1],
        covered=covered[0],
        covered_se=covered[1],
        items=items[0],
        items_se=items[1],
        cost=cost[0],
        cost_se=cost[1],
        decided_pairs=pairs,
        correct=correct,
        accuracy=correct / pairs if pairs else float("nan"),
    )
