"""``--bank none``: a task without calibration.

This module owns what a bank would tell otherwise: the metric's range and direction, and the order
in which all models are asked the documents. Inference is ``core.paired``'s; it imports the core's
shapes and what is known of metrics.
"""

from __future__ import annotations

import json
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.core.paired import spread_order
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import DataError, TaskError, UsageError
from lm_eval_adaptive.host.measures import metric_and_filter, metrics_of, range_of
from lm_eval_adaptive.host.scoring import direction
from lm_eval_adaptive.records.journal import NO_BANK

if TYPE_CHECKING:
    from lm_eval_adaptive.core.paired import SharedOrder
    from lm_eval_adaptive.host.task import TaskDocs
    from lm_eval_adaptive.run.config import AdaptiveConfig


def is_cold(docs: TaskDocs, adaptive: AdaptiveConfig) -> bool:
    """Whether the user asked for a ranking of this task without a bank.

    Raises:
        UsageError: An option needs a bank, or only makes sense without one.
    """
    cold = adaptive.bank_for(docs.name) == NO_BANK
    if not cold:
        for name in ("range", "stratify"):
            if getattr(adaptive, name) is not None:
                raise UsageError(f"--{name} goes with --bank none; a bank has its own")
        return False
    if adaptive.against:
        raise UsageError("--against takes models of a bank, and --bank none has none")
    if adaptive.response_model != "auto":
        raise UsageError(
            f"--response_model {adaptive.response_model} needs a bank; with --bank none paired "
            "differences decide"
        )
    if adaptive.sampler == "static":
        raise UsageError("--sampler static needs a bank: it asks the items that told most before")
    return True


def measure_of(docs: TaskDocs, adaptive: AdaptiveConfig) -> tuple[str, str, ScoreScale]:
    """What to rank by: metric, filter, and the metric's range and direction.

    Raises:
        UsageError: The metric, the filter or the range is not known.
        TaskError: The task does not tell whether more is better.
        DataError: It has no documents.
    """
    metric, filter_name = _metric_of(docs, adaptive)
    if not len(docs):
        raise DataError(f"task {docs.name} has no documents")
    scale = ScoreScale(*_range_of(docs, adaptive, metric), _higher_is_better(docs, metric))
    return metric, filter_name, scale


def shared_order(docs: TaskDocs, adaptive: AdaptiveConfig, seed: int) -> SharedOrder:
    """The order of a task's documents, drawn once from the seed.

    It is spread over the column named with ``--stratify``, else over the lengths of the documents;
    ``--sampler random`` draws a plain one.

    Raises:
        UsageError: The documents have no such column.
    """
    rng = np.random.default_rng(seed)
    if adaptive.stratify is not None:
        return spread_order(_column(docs, adaptive.stratify), len(docs), rng)
    if adaptive.sampler == "random":
        return spread_order(None, len(docs), rng)
    return spread_order([float(_length(docs, doc)) for doc in docs.docs], len(docs), rng)


def _column(docs: TaskDocs, name: str) -> list[float] | list[str]:
    values = []
    for doc_id, doc in enumerate(docs.docs):
        if name not in doc:
            raise UsageError(
                f"--stratify {name}: doc {doc_id} of task {docs.name} has no such column; it has "
                f"{', '.join(map(str, doc))}"
            )
        values.append(doc[name])
    if all(isinstance(value, numbers.Real) for value in values):
        return [float(value) for value in values]
    return [
        value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
        for value in values
    ]


def _length(docs: TaskDocs, doc: Any) -> int:
    """Characters of a document's own part of the prompt."""
    try:
        return len(str(docs.task.doc_to_text(doc)))
    except Exception:  # noqa: BLE001  any task's code; the run itself will say what is wrong
        return len(json.dumps(dict(doc), default=str))


def _metric_of(docs: TaskDocs, adaptive: AdaptiveConfig) -> tuple[str, str]:
    given = adaptive.metrics[0] if adaptive.metrics else docs.metadata.get("metric")
    if not given:
        raise UsageError(
            f"--bank none: task {docs.name} does not name the metric to rank by under "
            "metadata.adaptive.metric; name it with --metric NAME[,FILTER]"
        )
    metric, filter_name = metric_and_filter(str(given), metrics_of(docs.task))
    filters = [each.name for each in docs.task._filters]  # noqa: SLF001
    filter_name = filter_name or docs.metadata.get("filter")
    if filter_name is None and len(filters) == 1:
        filter_name = filters[0]
    if filter_name not in filters:
        asked = "has several filters" if filter_name is None else f"has no filter {filter_name}"
        raise UsageError(
            f"--bank none: task {docs.name} {asked}; say --metric {metric},FILTER with one of "
            f"{', '.join(filters)}"
        )
    return metric, str(filter_name)


def _range_of(docs: TaskDocs, adaptive: AdaptiveConfig, metric: str) -> tuple[float, float]:
    if adaptive.range is not None:
        return adaptive.range
    block = docs.metadata
    declared = block.get("range") or (block.get("ranges") or {}).get(metric)
    found = None if declared else _told_range(docs, metric)
    found = found or range_of(docs.metadata, metric, docs.name)
    if found is None:
        raise UsageError(
            f"--bank none: the range of {metric} is not known, and without it nothing can be said "
            "about errors; give the lowest and the highest possible value with --range LO,HI"
        )
    return found


def _told_range(docs: TaskDocs, metric: str) -> tuple[float, float] | None:
    """What the task's own scoring says, None where it does not: a judge's is of its settings."""
    scoring = docs.task.config.process_results
    if not hasattr(scoring, "ranges") or metric not in scoring.metrics:
        return None
    low, high = scoring.ranges([metric])[metric]
    return float(low), float(high)


def _higher_is_better(docs: TaskDocs, metric: str) -> bool:
    found = metrics_of(docs.task).get(metric, direction(metric, None))
    if found is None:
        raise TaskError(
            f"task {docs.name} does not tell whether a higher {metric} is better; say so in its "
            "metric_list (higher_is_better)"
        )
    return found
