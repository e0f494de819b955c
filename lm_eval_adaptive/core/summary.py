"""Means of simulated tests, with errors, intervals and paired differences to plain random items.

This module owns what is said about many rows of ``core.simulate``; it imports numpy and scipy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import beta

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.exam import Figures, Row

    FloatArray = NDArray[np.float64]
    Key = tuple[str, str, str, str, int | None]

NAN = float("nan")


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
        regime: How the models were drawn.
        accuracy_low: Lower end of the accuracy's 95 % interval, see ``binomial_interval``.
        accuracy_high: Upper end.
        tau_diff: Mean difference to the plain mean of random shared items on the same draws at the
            same number of items, paired by test, with its standard error ``tau_diff_se``; likewise
            ``decided_diff`` and the others. NaN for those random items themselves.
        accuracy_diff: Likewise; its standard error is a jackknife's over partitions, for it is a
            difference of ratios of sums.
        score_abs_error_ratio: Mean error over that of the random shared items.
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
    regime: str
    accuracy_low: float
    accuracy_high: float
    tau_diff: float
    tau_diff_se: float
    decided_diff: float
    decided_diff_se: float
    score_abs_error_diff: float
    score_abs_error_diff_se: float
    covered_diff: float
    covered_diff_se: float
    accuracy_diff: float
    accuracy_diff_se: float
    score_abs_error_ratio: float


def binomial_interval(right: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper–Pearson interval of a share: it holds the truth at least as often as it says.

    Calls of one test are not independent, so the interval of pooled calls is a little too narrow.

    Args:
        right: Successes.
        count: Trials; without any the interval is all of [0, 1].
        level: Two-sided level.

    Returns:
        Lower and upper end. Source: Clopper and Pearson 1934, Biometrika 26:404-413.

    >>> [round(end, 3) for end in binomial_interval(9, 10)]
    [0.555, 0.997]
    >>> [round(end, 3) for end in binomial_interval(0, 0)]
    [0.0, 1.0]
    """
    tail = (1.0 - level) / 2.0
    low = float(beta.ppf(tail, right, count - right + 1)) if right else 0.0
    high = float(beta.ppf(1.0 - tail, right + 1, count - right)) if right < count else 1.0
    return low, high


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Means over partitions, per regime and matrix and over matrices, with standard errors.

    Accuracy is that of called pairs, pooled. Standard errors of means over matrices are those of
    the partition means, since one partition number draws from every matrix by the same generator.

    Returns:
        One per (regime, matrix, method, length), then one per (regime, method, length) whose
        matrix is ``mean``.
    """
    by_matrix: dict[Key, list[Row]] = {}
    by_method: dict[Key, list[Row]] = {}
    for row in rows:
        last = (row.method, row.items_per_model)
        by_matrix.setdefault((row.regime, row.matrix, row.metric, *last), []).append(row)
        by_method.setdefault((row.regime, "mean", "", *last), []).append(row)
    return [
        _summary(mine, matrix=key[1], metric=key[2])
        for groups in (by_matrix, by_method)
        for key, mine in groups.items()
    ]


def _summary(rows: Sequence[Row], matrix: str, metric: str) -> Summary:
    """Of rows of one regime, method and length."""
    found: dict[str, float] = {}
    for name in ("tau", "decided", "score_abs_error", "covered", "items", "cost"):
        each = [float(getattr(row, name)) for row in rows]
        found[name], found[f"{name}_se"] = _over_partitions(rows, each)
    pairs = [(row, row.shared) for row in rows if row.shared is not None]
    if len(pairs) < len(rows):  # a mean over some of the tests would be held against all of them
        pairs = []
    mine, plain = [row for row, _ in pairs], [each for _, each in pairs]
    for name in ("tau", "decided", "score_abs_error", "covered"):
        each = [float(getattr(row, name)) - float(getattr(other, name)) for row, other in pairs]
        found[f"{name}_diff"], found[f"{name}_diff_se"] = _over_partitions(mine, each)
    found["accuracy_diff"], found["accuracy_diff_se"] = _jackknife(pairs, _accuracy_difference)
    found["score_abs_error_ratio"] = _ratio(
        sum(row.score_abs_error for row in mine), sum(each.score_abs_error for each in plain)
    )
    called, correct = sum(row.decided_pairs for row in rows), sum(row.correct for row in rows)
    found["accuracy"] = _ratio(correct, called)
    found["accuracy_low"], found["accuracy_high"] = binomial_interval(correct, called)
    return Summary(
        matrix=matrix,
        metric=metric,
        method=rows[0].method,
        items_per_model=rows[0].items_per_model,
        regime=rows[0].regime,
        tests=len(rows),
        decided_pairs=called,
        correct=correct,
        **found,
    )


def _accuracy_difference(pairs: Sequence[tuple[Row, Figures]]) -> float:
    ours = _ratio(sum(row.correct for row, _ in pairs), sum(row.decided_pairs for row, _ in pairs))
    plain = _ratio(sum(each.correct for _, each in pairs), sum(e.decided_pairs for _, e in pairs))
    return ours - plain


def _over_partitions(rows: Sequence[Row], values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error: each matrix weighs the same, then each partition."""
    if not rows:
        return NAN, NAN
    by_partition: dict[int, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_partition.setdefault(row.partition, []).append(value)
    means = [float(np.mean(by_partition[partition])) for partition in sorted(by_partition)]
    return float(np.mean(means)), _standard_error(np.array(means))


def _standard_error(values: FloatArray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else NAN


def _jackknife(
    pairs: Sequence[tuple[Row, Figures]],
    statistic: Callable[[Sequence[tuple[Row, Figures]]], float],
) -> tuple[float, float]:
    """A statistic and its standard error, one partition left out at a time."""
    if not pairs:
        return NAN, NAN
    partitions = sorted({row.partition for row, _ in pairs})
    count = len(partitions)
    without = np.array(
        [
            statistic([pair for pair in pairs if pair[0].partition != left_out])
            for left_out in partitions
        ]
    )
    # Where a partition holds all calls of one method, leaving it out leaves nothing to compare.
    if count < 2 or not np.isfinite(without).all():
        return statistic(pairs), NAN
    squares = float(((without - without.mean()) ** 2).sum())
    return statistic(pairs), math.sqrt((count - 1) / count * squares)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else NAN
