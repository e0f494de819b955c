"""The metrics as metrics of the harness, by name in any task's ``metric_list``.

By name after :func:`register`, which this package's command line calls; without it, a YAML can say
``metric: !function lm_eval_adaptive.metrics.registry.rougeL``.

This module owns the harness's calling convention. Metrics that read more of a document than its
target (COMET's source, the judge's rubric, spans) cannot be had that way: a task's helper takes
them by ``document_metrics``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.metrics.base import METRICS, Case

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def registrable() -> list[str]:
    """Names of the metrics that need a reference at most.

    >>> "rougeL" in registrable(), "comet" in registrable()
    (True, False)
    """
    return [name for name, each in METRICS.items() if set(each.needs) <= {"references"}]


def register() -> None:
    """Make the metrics, and what ``plugin`` has, known to the harness.

    Calling it again changes nothing. A name that the harness, or a plugin before this one, has
    taken already is left alone; where the harness has read it off this package's entry points, its
    placeholder gives way to the function.
    """
    import lm_eval.api.metrics
    from lm_eval.api.registry import metric_registry, register_metric

    from lm_eval_adaptive.metrics import plugin

    plugin.register()
    assert lm_eval.api.metrics  # its registry fills on import, and refuses to be filled twice
    taken = dict(metric_registry.items())
    for name in registrable():
        if name in taken and getattr(taken[name], "value", None) != f"{__name__}:{name}":
            continue
        register_metric(
            metric=name, higher_is_better=METRICS[name].higher_is_better, aggregation="mean"
        )(_function(name))


@functools.cache
def _function(name: str) -> Callable[..., float]:
    metric = METRICS[name]

    def compute(references: Sequence[Any], predictions: Sequence[Any], **settings: Any) -> float:
        """The metric's mean over the pairs; keywords of the metric_list entry are its settings."""
        cases = [
            Case(
                answer="" if prediction is None else str(prediction),
                references=tuple(map(str, reference))
                if isinstance(reference, list | tuple)
                else (str(reference),),
            )
            for reference, prediction in zip(references, predictions, strict=True)
        ]
        values = metric.compute(cases, {metric.family: settings})
        return sum(values) / len(values)

    compute.__name__ = compute.__qualname__ = name
    return compute


def __getattr__(name: str) -> Callable[..., float]:
    """A metric as a function of the harness, for ``!function`` and for entry points.

    The harness's own entry points (on its main branch since September 2026) take direction and
    aggregation from what is registered when the function is loaded, hence the call.
    """
    if name in METRICS and name in registrable():
        register()
        return _function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
