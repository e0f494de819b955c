"""The harness's own files of results and samples, written so that a failure is told and named.

This module owns the call of the harness's tracker, which swallows its errors; it imports the
harness inside functions. What the files say is decided elsewhere.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.records.files import finite

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class Written:
    """What was written of a model's results.

    Attributes:
        files: The files.
        problems: A line for each that could not be: which, and why.
    """

    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def write_harness_files(
    results: dict[str, Any], tracker: Any, task: str, part: str, folder: Path, date: str
) -> Written:
    """Have the harness write results and samples, each on its own; the results stay as they were.

    Args:
        results: The harness's results, with samples.
        tracker: Its ``EvaluationTracker``, with the model's name set.
        task: The task's name.
        part: What stands for it in names of files.
        folder: The model's folder.
        date: What stands for the date in names of files.
    """
    found = Written()
    samples = results.pop("samples")
    # The tracker turns answers into text in place; the caller gets them as they were.
    kept = copy.deepcopy(samples)
    named = tracker.general_config_tracker
    named.model_name_sanitized = folder.name
    with _any_text():
        with _told() as reasons:
            tracker.save_results_aggregated(results=results, samples=samples)
        at = getattr(tracker, "date_id", "")
        _settle(found, folder / f"results_{at}.json", folder / f"results_{date}.json", reasons)
        with _told() as reasons:
            tracker.date_id = at or date
            tracker.save_results_samples(task_name=part, samples=samples[task])
        _settle(
            found,
            folder / f"samples_{part}_{at or date}.jsonl",
            folder / f"samples_{part}_{date}.jsonl",
            reasons,
        )
    results["samples"] = kept
    return found


def _settle(found: Written, file: Path, target: Path, reasons: list[str]) -> None:
    """Give a file that was written its name; take away half of one."""
    try:
        if reasons or not file.is_file():
            file.unlink(missing_ok=True)
            why = " ".join(" ".join(reasons).split())
        else:
            file.replace(target)
            found.files.append(target)
            return
    except OSError as error:
        why = repr(error)
    found.problems.append(f"{target} was not written ({why or 'the harness does not say why'})")


@contextmanager
def _told() -> Iterator[list[str]]:
    """What the tracker says instead of raising: "could not …" as a warning, then why."""
    reasons: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING and record.getMessage().startswith("Could not"):
                failed.append(record)
            elif failed and not reasons:
                reasons.append(record.getMessage())

    failed: list[logging.LogRecord] = []
    logger = logging.getLogger("lm_eval.loggers.evaluation_tracker")
    before = logger.level, logger.propagate
    handler = Listening()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield reasons
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
    if failed and not reasons:
        reasons.append(failed[0].getMessage())


@contextmanager
def _any_text() -> Iterator[None]:
    """Have the tracker's JSON escape lone surrogates, which UTF-8 cannot hold, and hold no NaN."""
    import lm_eval.loggers.evaluation_tracker as module

    def dumps(value: Any, *, default: Any = None, indent: int | None = None, **_: Any) -> str:
        text = json.dumps(finite(value), default=default, indent=indent, ensure_ascii=False)
        return _SURROGATE.sub(lambda each: f"\\u{ord(each[0]):04x}", text)

    plain = module.json
    module.json = SimpleNamespace(**{**vars(plain), "dumps": dumps})
    try:
        yield
    finally:
        module.json = plain
