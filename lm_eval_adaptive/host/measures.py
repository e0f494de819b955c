"""What is known of a metric, in one place: its name and filter, its range, which way is better.

Everything that asks (bank, ranking, simulation, calibration) asks here; the metric's own word in
the task comes first, then what is known of it by name.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.draws import draws_left_alone
from lm_eval_adaptive.host.scoring import KNOWN_RANGES, direction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def metric_and_filter(text: str, known: Collection[str] = ()) -> tuple[str, str | None]:
    """``NAME`` or ``NAME,FILTER`` taken apart; names may have commas of their own.

    Args:
        text: As the user wrote it.
        known: Names of metrics that are there, where they are known.

    >>> metric_and_filter("rougeL, none")
    ('rougeL', 'none')
    >>> metric_and_filter("pass,strict", ["pass,strict"])
    ('pass,strict', None)
    >>> metric_and_filter("pass,strict,none", ["pass,strict"])
    ('pass,strict', 'none')
    """
    whole = text.strip()
    if whole in known:
        return whole, None
    parts = whole.split(",")
    for place in range(len(parts) - 1, 0, -1):
        name = ",".join(parts[:place]).strip()
        if name in known:
            return name, ",".join(parts[place:]).strip() or None
    name, _, filter_name = whole.partition(",")
    return name.strip(), filter_name.strip() or None


def range_of(block: Mapping[str, Any], metric: str, where: str) -> tuple[float, float] | None:
    """A metric's range: what a task declares, else what is known of it, else None.

    Args:
        block: The task's ``metadata.adaptive``.
        metric: The metric.
        where: The task, for messages.

    Raises:
        DataError: What is declared is no range.
    """
    declared = (block.get("ranges") or {}).get(metric)
    if block.get("metric", metric) == metric:
        declared = block.get("range", declared)
    if declared is None:
        return KNOWN_RANGES.get(metric)
    try:
        low, high = (float(each) for each in declared)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"metadata.adaptive.range(s) of task {where} must be [low, high], got {declared!r}; "
            "mend the task's YAML or pass --range LO,HI"
        ) from error
    return low, high


def metrics_of(task: Any) -> dict[str, bool | None]:
    """A task's metrics, and whether a higher value is better, None where it does not say.

    A metric that is a function may give several under names of its own (``pass@1``): the harness
    learns them from the first answer that is scored, so a made-up one is scored here.
    """
    config = task.config
    listed = [each for each in config.metric_list or [] if isinstance(each, dict)]
    if config.process_results is None and any(callable(each.get("metric")) for each in listed):
        _score_once(task)
    told = {
        str(getattr(each.get("metric"), "__name__", each.get("metric"))): each["higher_is_better"]
        for each in listed
        if isinstance(each.get("higher_is_better"), bool)
    }
    names = dict.fromkeys([*task.aggregation(), *task.higher_is_better(), *told])
    found: dict[str, bool | None] = {}
    for name in names:
        said = told.get(name, task.higher_is_better().get(name))
        found[name] = direction(name, said if isinstance(said, bool) else None)
    return found


def _score_once(task: Any) -> None:
    # Any task's code may fail here; the run itself will say what is wrong.
    with draws_left_alone(), contextlib.suppress(Exception):
        doc = task.task_docs[0]
        target = task.doc_to_target(doc)
        text = target[0] if isinstance(target, list) and target else target
        task.process_results(doc, [str(text)])
