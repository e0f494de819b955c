"""From metrics to a task's ``process_results``, one document at a time or a round in one batch.

This module owns what a task's helper calls, and the settings that the helper's YAML holds. The
protocol: a ``process_results`` function may carry ``batch(docs, results, metrics=None)`` beside
it, which gives a list of what ``process_results`` gives for each document.
"""

from __future__ import annotations

import functools
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from lm_eval_adaptive.errors import TaskError, UsageError
from lm_eval_adaptive.metrics.base import Case, Metric, Missing, metric, take_notices

Column = str | Callable[[Mapping[str, Any]], Any]


class ProcessResults(Protocol):
    """A harness task's ``process_results`` that can also score many documents at once."""

    batch: Callable[..., list[dict[str, float]]]
    metrics: tuple[str, ...]
    signature: Callable[..., dict[str, str]]
    warnings: Callable[..., list[str]]
    ranges: Callable[..., dict[str, tuple[float, float]]]
    notices: Callable[[], list[str]]

    def __call__(self, doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
        """Metric values of one document, as the harness asks for them."""
        ...


@functools.lru_cache(maxsize=64)
def _read_settings(path: Path) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml
    from yaml import YAMLError

    try:
        config = load_yaml(str(path), resolve_func=False)
    except (OSError, ValueError, YAMLError) as error:
        first = " ".join(str(error).split())[:300]
        raise TaskError(f"settings of metrics: {path} cannot be read ({first})") from error
    metadata = config.get("metadata") or {}
    block = (metadata.get("metrics") or {}) if isinstance(metadata, dict) else None
    if not isinstance(block, dict):
        raise TaskError(f"{path}: metadata.metrics must be a mapping of metric families")
    return block


def _settings(given: Mapping[str, Any] | Path | str | None) -> Mapping[str, Any]:
    if given is None:
        return {}
    return given if isinstance(given, Mapping) else _read_settings(Path(given))


def _texts(doc: Mapping[str, Any], column: Column | None) -> tuple[str, ...]:
    if column is None:
        return ()
    if callable(column):
        value = column(doc)
    elif column in doc:
        value = doc[column]
    else:
        raise TaskError(
            f"the document has no column {column!r}, it has {', '.join(doc)}; check the dataset's "
            "revision"
        )
    if value is None:
        return ()
    if callable(getattr(value, "tolist", None)):  # an array
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(str(each) for each in value if each is not None)
    return (str(value),)


def answer_of(results: Sequence[Any]) -> str:
    """The one answer among what the filters left, "" for none.

    >>> answer_of([["first", "second"]])
    'first'
    """
    first: Any = results[0] if len(results) else ""
    while isinstance(first, list | tuple):
        first = first[0] if first else ""
    return "" if first is None else str(first)


def plain_value(value: Any) -> Any:
    """A metric's value for one document, as ``process_results`` gives it.

    Numbers, and lists or arrays of one, become floats; None becomes a missing score. Anything else
    stays what it is: in a plain run its own aggregation may know what to do with it, and as the
    metric that models are ranked by it is refused by name.

    >>> plain_value([3]), plain_value(None), plain_value((1, 2))
    (3.0, nan, (1, 2))
    """
    if value is None:
        return Missing("the metric gives nothing for this document")
    if isinstance(value, float):
        return value
    if isinstance(value, list | tuple) and len(value) == 1:
        return plain_value(value[0])
    if isinstance(value, numbers.Real):
        return float(value)
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) == 1:
        return plain_value(item())
    return value


def chosen_metrics(names: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """Which of a task's metrics to compute.

    Args:
        names: The task's.
        wanted: Those that are ranked by; None takes ``LMEVAL_ADAPTIVE_METRICS``, else all.

    Raises:
        UsageError: None of the wanted ones is among the task's.
    """
    given = "those asked for"
    if wanted is None:
        text = os.environ.get("LMEVAL_ADAPTIVE_METRICS", "")
        wanted = [each.strip() for each in text.split(",") if each.strip()] or list(names)
        given = "LMEVAL_ADAPTIVE_METRICS"
    found = [name for name in names if name in wanted]
    if not found:
        raise UsageError(
            f"{given} ({', '.join(wanted)}) name no metric of this task; it has {', '.join(names)}"
        )
    return found


def document_metrics(
    *metrics: str | Metric,
    reference: Column | None = None,
    incorrect: Column | None = None,
    source: Column | None = None,
    settings: Mapping[str, Any] | Path | str | None = None,
) -> ProcessResults:
    """A ``process_results`` for a task's YAML.

    Args:
        *metrics: Names from ``METRICS``, or metrics of one's own.
        reference: Column of right answers (a text or a list of them), or a function of the
            document.
        incorrect: Likewise, answers known to be wrong.
        source: Likewise, the text to translate.
        settings: The task's YAML, whose ``metadata.metrics`` holds a mapping per metric family
            (``bertscore``, ``comet``, ``judge``), or that mapping. Environment variables have the
            last word, see each family.

    Returns:
        The function. Beside it: ``batch(docs, results, metrics=None)``, ``metrics``,
        ``signature(metrics=None)``, ``ranges(metrics=None)`` in the metrics' own units,
        ``warnings(candidates, metrics=None)`` for before the run, and ``notices()`` for after it:
        what was cut, left out or measured since the last call. A missing score is a NaN whose
        ``reason`` says why.

    Raises:
        UsageError: A metric is not known.
    """
    known = {each.name: each for each in (metric(m) if isinstance(m, str) else m for m in metrics)}
    names = tuple(known)

    def batch(
        docs: Sequence[Mapping[str, Any]],
        results: Sequence[Sequence[Any]],
        metrics: Sequence[str] | None = None,
    ) -> list[dict[str, float]]:
        cases = [
            Case(
                answer=answer_of(result),
                references=_texts(doc, reference),
                incorrect=_texts(doc, incorrect),
                source="".join(_texts(doc, source)[:1]),
                doc=doc,
            )
            for doc, result in zip(docs, results, strict=True)
        ]
        own = _settings(settings)
        columns = {name: known[name].compute(cases, own) for name in chosen_metrics(names, metrics)}
        return [
            {name: plain_value(values[place]) for name, values in columns.items()}
            for place in range(len(cases))
        ]

    def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, float]:
        return batch([doc], [results])[0]

    def signature(metrics: Sequence[str] | None = None) -> dict[str, str]:
        own = _settings(settings)
        return {name: known[name].signature(own) for name in chosen_metrics(names, metrics)}

    def warnings(candidates: Mapping[str, str], metrics: Sequence[str] | None = None) -> list[str]:
        if "judge" not in chosen_metrics(names, metrics):
            return []
        from lm_eval_adaptive.metrics import judge

        return judge.warnings(_settings(settings).get("judge") or {}, candidates)

    def ranges(metrics: Sequence[str] | None = None) -> dict[str, tuple[float, float]]:
        own = _settings(settings)
        return {name: known[name].range_of(own) for name in chosen_metrics(names, metrics)}

    def notices() -> list[str]:
        from lm_eval_adaptive.metrics import judge

        return [*take_notices(), *(judge.notices() if "judge" in names else [])]

    found: Any = process_results
    found.batch = batch
    found.metrics = names
    found.signature = signature
    found.warnings = warnings
    found.ranges = ranges
    found.notices = notices
    typed: ProcessResults = found
    return typed
