"""Metrics of generated text for any harness task, one family per module.

Every metric takes a batch of cases and returns a number per case, so that a network is asked once
for a whole round of answers. A task's helper names what it wants::

    from lm_eval_adaptive.metrics import document_metrics

    process_results = document_metrics("rougeL", "bertscore_f1", reference="summary")

Metrics that need only a reference are also harness metrics by name, after :func:`register`. The
package imports the harness, torch and every metric's own package inside functions.
"""

from __future__ import annotations

from lm_eval_adaptive.metrics.base import (
    METRICS,
    OPEN_ENDED,
    Case,
    Metric,
    known_directions,
    known_ranges,
)
from lm_eval_adaptive.metrics.registry import register
from lm_eval_adaptive.metrics.task import document_metrics

__all__ = [
    "METRICS",
    "OPEN_ENDED",
    "Case",
    "Metric",
    "document_metrics",
    "known_directions",
    "known_ranges",
    "register",
]
