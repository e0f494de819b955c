"""Whether the harness's score of a logged run is the mean of its documents' values.

A log names the aggregation of a metric, or holds the text of its function; the function itself is
not there. This module compares the harness's own total with means of the logged values: over all
documents, or without a value that stands for "not of this kind".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.scoring import CORPUS_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lm_eval_adaptive.host.logs import LoggedRun

_MEANS = ("mean", "nanmean")


def left_out_value(
    runs: Sequence[LoggedRun],
    values_of: Callable[[LoggedRun], Sequence[float]],
    metric: str,
    filter_name: str | None,
    notices: list[str],
) -> float | None:
    """The value by which documents say that a metric is not about them, None where there is none.

    Args:
        runs: The logged runs.
        values_of: Gives a run's values of the metric, under the filter.
        metric: The metric.
        filter_name: The filter, None where the logs do not tell.
        notices: Takes a line where documents are left out.

    Raises:
        DataError: The task's aggregation is no mean over documents.
    """
    if metric in CORPUS_METRICS:  # estimated by the mean of the documents' own scores
        return None
    for run in runs:
        aggregation = run.facts.aggregations.get(metric, "mean")
        if aggregation in _MEANS:
            continue
        values = values_of(run)
        total = run.totals.get(f"{metric},{filter_name or 'none'}")
        if not values or (total is None and not aggregation.isidentifier()):
            continue
        found = _left_out(values, total)
        if found is not None:
            if math.isnan(found):
                continue
            count = values.count(found)
            notices.append(
                f"{count} of {len(values)} documents have {metric} {found:g}, which the task's "
                "aggregation leaves out: they are no items for this metric"
            )
            return found
        told = "" if total is None else f": it gives {total:g} where the mean is {_mean(values):g}"
        name = aggregation if aggregation.isidentifier() else _function_name(aggregation)
        raise DataError(
            f"{run.path}: {metric} is aggregated by {name}, which is no mean over documents{told}; "
            "adaptive runs estimate means: calibrate another metric, or log runs of a task with "
            "aggregation: mean"
        )
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _left_out(values: Sequence[float], total: float | None) -> float | None:
    """The value that the total leaves out, NaN where it is the mean of all; None where neither."""
    if total is None:
        return None
    finite = [value for value in values if math.isfinite(value)]
    if math.isclose(_mean(finite), total, rel_tol=1e-6, abs_tol=1e-9):
        return math.nan
    for candidate in sorted({value for value in finite if value < 0.0}):
        rest = [value for value in finite if value != candidate]
        if rest and math.isclose(_mean(rest), total, rel_tol=1e-6, abs_tol=1e-9):
            return candidate
    return None


def _function_name(text: str) -> str:
    r"""The name of a function by its text.

    >>> _function_name("def agg(values):\\n    return 1")
    'agg'
    """
    head = text.strip().removeprefix("def ").partition("(")[0].strip()
    return head if head.isidentifier() else "a function of the task"
