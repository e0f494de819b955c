"""From the harness's logs, or a score file, to a bank.

This module owns what ``calibrate`` and ``bank`` do between files and the core; it imports the log
reader, the score adaptor and the core. Its statistics are all the core's.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive import __version__
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import read_scores
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.harness.config import metric_and_filter
from lm_eval_adaptive.harness.scoring import KNOWN_RANGES, OPEN_ENDED, direction, document_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrateOptions:
    """What ``calibrate`` was asked for; see its ``--help``."""

    task: str
    metric: str
    samples: tuple[str, ...] = ()
    scores: str | None = None
    exclude_model: tuple[str, ...] = ()
    response_model: str = "auto"
    score_range: tuple[float, float] | None = None
    clip: bool = False
    lower_is_better: bool | None = None
    allow: tuple[str, ...] = ()
    licence: str = ""


def parse_range(text: str) -> tuple[float, float]:
    """``LO,HI`` as two numbers.

    >>> parse_range("0,100")
    (0.0, 100.0)
    """
    try:
        lo, hi = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--range takes two numbers LO,HI, got {text!r}; for example --range 0,100"
        ) from error
    return lo, hi


def calibrate_from(options: CalibrateOptions) -> ItemBank:
    """Make a bank from logs or a score file.

    Raises:
        UsageError: Neither or both sources are given, or an option is wrong.
        DataError: A source cannot be used; the message says where and why.
    """
    if bool(options.samples) == (options.scores is not None):
        raise UsageError(
            "calibrate takes its scores from --samples (logs of the harness) or from --scores (a "
            "Parquet or CSV file); give one of them"
        )
    if options.samples:
        return _from_logs(options)
    return _from_file(options)


def _provenance(sources: Sequence[tuple[str, str]]) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "lm_eval_adaptive": __version__,
        "lm_eval": version("lm_eval"),
        "date": datetime.now(tz=timezone.utc).strftime("%Y-%m-%d"),
        "sources": [{"file": name, "sha256": digest} for name, digest in sources],
    }


def _declared_range(
    options: CalibrateOptions, metric: str, declared: Any
) -> tuple[tuple[float, float] | None, bool]:
    """The range to use, and whether values outside it are clipped."""
    if options.score_range is not None:
        return options.score_range, options.clip
    clip = options.clip or metric in OPEN_ENDED
    if declared is not None:
        try:
            lo, hi = (float(each) for each in declared)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"metadata.adaptive.range(s) of task {options.task} must be [low, high], got "
                f"{declared!r}; mend the task's YAML or pass --range LO,HI"
            ) from error
        return (lo, hi), clip
    return KNOWN_RANGES.get(metric), clip


def _from_logs(options: CalibrateOptions) -> ItemBank:
    from lm_eval_adaptive.harness.logs import exclude_runs, find_runs, score_matrix

    metric, filter_name = metric_and_filter(options.metric)
    runs = exclude_runs(find_runs(options.samples, options.task), options.exclude_model)
    found = score_matrix(runs, metric, filter_name, to_number=document_score, allow=options.allow)
    config = runs[0].task_config
    block = (config.get("metadata") or {}).get("adaptive") or {}
    declared = (block.get("ranges") or {}).get(metric)
    if block.get("metric", metric) == metric:
        declared = block.get("range", declared)
    score_range, clip = _declared_range(options, metric, declared)
    higher = direction(metric, found.higher_is_better)
    if options.lower_is_better is not None:
        higher = not options.lower_is_better
    if higher is None:
        raise DataError(
            f"the logs do not tell whether a higher {metric} is better; say so with "
            "--higher_is_better or --lower_is_better"
        )
    return calibrate(
        found.matrix,
        task=options.task,
        metric=metric,
        filter=found.filter or "none",
        score_range=score_range,
        clip=clip,
        higher_is_better=higher,
        response_model=options.response_model,
        notices=found.notices,
        task_version=str(runs[0].task_version or ""),
        dataset_path=str(config.get("dataset_path") or ""),
        dataset_name=str(config.get("dataset_name") or ""),
        split=str(config.get("test_split") or config.get("validation_split") or ""),
        num_fewshot=runs[0].n_shot,
        licence=options.licence,
        provenance=_provenance([(run.path.name, run.sha256) for run in found.runs]),
    )


def _from_file(options: CalibrateOptions) -> ItemBank:
    metric, filter_name = metric_and_filter(options.metric)
    path = Path(str(options.scores))
    matrix = read_scores(path, metric)
    unknown = sorted(set(options.exclude_model) - set(matrix.models) - set(matrix.groups))
    if unknown:
        raise UsageError(
            f"--exclude_model {unknown[0]}: no such model in {path}; it holds "
            f"{', '.join(matrix.models)}"
        )
    left = [
        name
        for name, group in zip(matrix.models, matrix.groups, strict=True)
        if name not in options.exclude_model and group not in options.exclude_model
    ]
    matrix = matrix.select_models(left)
    score_range, clip = _declared_range(options, metric, None)
    higher = direction(metric, None) is not False
    if options.lower_is_better is not None:
        higher = not options.lower_is_better
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return calibrate(
        matrix,
        task=options.task,
        metric=metric,
        filter=filter_name or "none",
        score_range=score_range,
        clip=clip,
        higher_is_better=higher,
        response_model=options.response_model,
        licence=options.licence,
        provenance=_provenance([(path.name, digest)]),
    )


def match_documents(bank: ItemBank, keys: Sequence[str]) -> tuple[list[int | None], list[str]]:
    """Where each item of a bank stands among a task's documents.

    Args:
        bank: The bank.
        keys: Item keys of the task's documents, by doc_id.

    Returns:
        A doc_id per item, None for items whose document is not there; and notices.

    Raises:
        DataError: More than 5 % of the items are not among the documents.
    """
    where = {key: doc_id for doc_id, key in enumerate(keys)}
    found = [where.get(key) for key in bank.content_hash]
    lost = sum(doc_id is None for doc_id in found)
    if lost > 0.05 * len(found):
        raise DataError(
            f"{lost} of the {len(found)} items of bank {bank.path or bank.info.task} are not among "
            f"the {len(keys)} documents of task {bank.info.task}: the documents were edited, or "
            "the bank is of another dataset or split; recalibrate it on these documents"
        )
    notices = []
    if lost:
        notices.append(
            f"{lost} of the bank's {len(found)} items are left out: their documents are not (or no "
            "longer) in the task"
        )
    return found, notices


def rename_task(bank: ItemBank, task: str) -> ItemBank:
    """The same bank for a task of another name."""
    return replace(bank, info=replace(bank.info, task=task))
