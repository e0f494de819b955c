"""What a task's own aggregation makes of its documents' values, as far as a mean stands for it.

The harness's score of a task is what the task's aggregation says: a mean, a mean over the documents
that a metric is about, a median, anything. Adaptive runs estimate means over documents. This module
owns the question whether that is the same, asked of the aggregation itself on made-up values; it
knows no statistics beyond a mean.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import TaskError
from lm_eval_adaptive.host.measures import metrics_of
from lm_eval_adaptive.host.scoring import CORPUS_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.core.scale import ScoreScale

# Shares of a metric's range: lists of several lengths, none with its median or middle at its mean.
_SHARES = (
    (0.25, 0.8, 0.3),
    (0.6, 0.1),
    (0.9,),
    (0.15, 0.95, 0.2, 0.35, 0.3),
    (0.7, 0.72, 0.1, 0.9, 0.85, 0.05, 0.61),
)


@dataclass(frozen=True)
class Averaging:
    """How a mean over documents stands for a task's aggregation.

    Attributes:
        counted: The aggregation where it is a mean (or a multiple of one) that may leave some
            values out, None where every number counts.
        bases: Lists of values that it is asked about.
        is_listed: Whether the task lists the metric: a document without it is no item for it then,
            and the metric is not misspelt.
        notice: What differs from the task's own number, "" for nothing.
    """

    counted: Callable[[list[Any]], Any] | None = None
    bases: tuple[list[float], ...] = ()
    is_listed: bool = False
    notice: str = ""

    def leaves_out(self, value: object) -> bool:
        """Whether the aggregation leaves a document with this value out.

        It does where the value changes nothing beside others: -1 for a document of another kind,
        NaN under ``nanmean``.
        """
        if self.counted is None or (isinstance(value, numbers.Real) and _is_plain(value, self)):
            return False
        for base in self.bases:
            with_it, alone = _asked(self.counted, [*base, value]), _asked(self.counted, base)
            if with_it is None or alone is None or not math.isclose(with_it, alone):
                return False
        return True


EVERY_NUMBER_COUNTS = Averaging()


def _is_plain(value: Any, averaging: Averaging) -> bool:
    """Whether a number lies among those that the aggregation was asked about: it counts."""
    low = min(min(base) for base in averaging.bases)
    high = max(max(base) for base in averaging.bases)
    return low <= float(value) <= high


def averaging_of(task: Any, metric: str, scale: ScoreScale) -> Averaging:
    """How a mean over documents stands for a task's aggregation of a metric.

    Args:
        task: A task object.
        metric: The metric that models are ranked by.
        scale: Its range.

    Raises:
        TaskError: It is no mean over documents; the message names it.
    """
    listed = metric in metrics_of(task)
    aggregate = task.aggregation().get(metric)
    # Corpus scores are estimated by the mean of the documents' own, and the harness takes the mean
    # where a task names nothing.
    if aggregate is None:
        return Averaging(is_listed=listed)
    if metric in CORPUS_METRICS:
        return Averaging(
            is_listed=listed,
            notice=f"the task's own aggregation of {metric} is one score of all answers together: "
            "scores here are the mean of the documents' own",
        )
    bases = tuple([scale.lo + share * scale.width for share in shares] for shares in _SHARES)
    found = [_asked(aggregate, base) for base in bases]
    if any(value is None for value in found):
        return Averaging(
            is_listed=listed
        )  # it takes no plain numbers: neither does the ranking, which says so
    values = [float(value) for value in found if value is not None]
    means = [sum(base) / len(base) for base in bases]
    if _close(values, means):
        return Averaging(aggregate, bases, listed)
    if all(means) and _close([value / mean for value, mean in zip(values, means, strict=True)]):
        factor = values[0] / means[0]
        if factor:
            return Averaging(
                aggregate,
                bases,
                listed,
                f"the task's own aggregation of {metric} multiplies the mean by {factor:g}: scores "
                "here are the mean",
            )
    if _close(values, [sum(base) for base in bases]):
        return Averaging(
            is_listed=listed,
            notice=f"the task's own aggregation of {metric} is a sum over documents: scores here "
            "are the mean",
        )
    if _close(values):
        return Averaging(
            is_listed=listed,
            notice=f"the task's own aggregation of {metric} gives {values[0]:g} whatever the "
            "documents' values: scores here are their mean",
        )
    raise TaskError(
        f"task {task.config.task} aggregates {metric} by {_name(aggregate)}, which is no mean over "
        "documents: adaptive runs estimate means; rank by another --metric, or by a task of your "
        "own that has this metric with aggregation: mean"
    )


def _close(values: Sequence[float], others: Sequence[float] | None = None) -> bool:
    """Whether values are those of another list, or all the same."""
    other = [values[0]] * len(values) if others is None else others
    return all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(values, other, strict=True)
    )


def _asked(aggregate: Callable[[list[Any]], Any], values: Sequence[Any]) -> float | None:
    """What an aggregation gives, None where it gives no number."""
    try:
        return float(aggregate(list(values)))
    except Exception:  # noqa: BLE001  any task's code, on values it was not written for
        return None


def _name(aggregate: Any) -> str:
    inner = getattr(aggregate, "func", aggregate)  # functools.partial
    return str(getattr(inner, "__name__", type(inner).__name__))
