"""A filter and an aggregation for the harness, by name in a task's YAML.

``after_reasoning`` and ``mean_of_scored``, after :func:`register`, which this package's command
line calls, or by entry point where the harness reads those. Metrics are in ``registry``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lm_eval.api.filter import Filter

from lm_eval_adaptive.metrics.judging.reply import without_reasoning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class AfterReasoning(Filter):  # type: ignore[misc]  # the harness is untyped
    """Answers without the reasoning before them (``<think>…</think>`` and its like).

    An answer that was cut in its reasoning is empty.
    """

    def apply(self, resps: Iterable[Sequence[Any]], docs: Sequence[Any]) -> list[list[Any]]:
        """The answers of each document."""
        del docs
        return [
            [
                (without_reasoning(each) or "").strip() if isinstance(each, str) else each
                for each in own
            ]
            for own in resps
        ]


def mean_of_scored(values: Iterable[float | None]) -> float:
    """The mean over the documents that have a score, NaN where none has one.

    >>> mean_of_scored([1.0, float("nan"), None, 0.0])
    0.5
    """
    scored = [float(each) for each in values if each is not None and not math.isnan(each)]
    return math.fsum(scored) / len(scored) if scored else math.nan


def register() -> None:
    """Make both known to the harness; a name that is taken, by these or others, is left alone."""
    import lm_eval.api.metrics
    import lm_eval.filters
    from lm_eval.api.registry import (
        aggregation_registry,
        filter_registry,
        register_aggregation,
        register_filter,
    )

    assert lm_eval.api.metrics
    assert lm_eval.filters
    if "after_reasoning" not in filter_registry:
        register_filter("after_reasoning")(AfterReasoning)
    if "mean_of_scored" not in aggregation_registry:
        register_aggregation("mean_of_scored")(mean_of_scored)
