"""From the harness's logs, or a score file, to a bank.

This module owns what ``calibrate`` and ``bank`` do between files and the core; it imports the log
reader, the score adaptor and the core. Its statistics are all the core's.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive import __version__
from lm_eval_adaptive.banks.find import load_bank
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import Provenance, Source, Update
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix, read_scores
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.scoring import KNOWN_RANGES, OPEN_ENDED, direction, document_score
from lm_eval_adaptive.host.settings import metric_and_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.logs import LoggedRun

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrateOptions:
    """What ``calibrate`` was asked for; see its ``--help``."""

    task: str = ""
    metric: str = ""
    samples: tuple[str, ...] = ()
    scores: str | None = None
    exclude_model: tuple[str, ...] = ()
    response_model: str = "auto"
    score_range: tuple[float, float] | None = None
    clip: bool = False
    lower_is_better: bool | None = None
    allow: tuple[str, ...] = ()
    licence: str = ""
    update: str | None = None


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
    if options.update is not None:
        return _updated(options)
    if not (options.task and options.metric):
        raise UsageError(
            "calibrate needs --task and --metric; only with --update does the bank tell them"
        )
    if options.samples:
        return _from_logs(options)
    return _from_file(options)


def _updated(options: CalibrateOptions) -> ItemBank:
    """A bank with the models of further runs, adaptive ones included."""
    source = str(options.update)
    bank = load_bank(source)
    info = bank.info
    metric, filter_name = metric_and_filter(options.metric or info.metric)
    filter_name = filter_name or info.filter
    for name, given, own in (
        ("task", options.task or info.task, info.task),
        ("metric", metric, info.metric),
        ("metric's filter", filter_name, info.filter),
    ):
        if given != own:
            raise UsageError(
                f"--update {source}: the bank's {name} is {own}, got {given}; a bank holds scores "
                "of one task, metric and filter: calibrate another one"
            )
    for name, is_given in (
        ("range", options.score_range is not None),
        ("higher_is_better or --lower_is_better", options.lower_is_better is not None),
        ("response_model", options.response_model not in ("auto", info.response_model)),
    ):
        if is_given:
            raise UsageError(f"--{name} does not go with --update: the bank's own is kept")
    if options.scores is not None:
        path = Path(options.scores)
        matrix = _without_models(read_scores(path, metric), options, path)
        sources = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest())]
        notices: list[str] = []
    else:
        matrix, sources, notices = _new_runs(options, bank)
    now, before = _provenance(sources), info.provenance or Provenance()
    update = Update(bank.sha256, now.date, matrix.models)
    provenance = replace(
        now, sources=(*before.sources, *now.sources), updates=(*before.updates, update)
    )
    return extend(bank, matrix, clip=options.clip, notices=notices, provenance=provenance)


def _new_runs(
    options: CalibrateOptions, bank: ItemBank
) -> tuple[ScoreMatrix, list[tuple[str, str]], list[str]]:
    """Scores of logged runs by the bank's items, the files they are from, and notices.

    Raises:
        DataError: The runs are of another version or number of few-shot examples than the bank.
    """
    from lm_eval_adaptive.banks.log_scores import score_matrix
    from lm_eval_adaptive.host.logs import exclude_runs, find_runs

    info = bank.info
    runs = exclude_runs(find_runs(options.samples, info.task), options.exclude_model)
    runs = _newest_of_each(runs)
    found = score_matrix(
        runs,
        info.metric,
        info.filter,
        to_number=document_score,
        allow=tuple({*options.allow, "partial"}),
    )
    for run in found.runs:
        for allowance, name, theirs, own in (
            ("task_version", "version of the task", run.task_version, info.task_version or None),
            ("few_shot", "number of few-shot examples", run.n_shot, info.num_fewshot),
        ):
            differ = None not in (theirs, own) and str(theirs) != str(own)
            if differ and allowance not in options.allow:
                raise DataError(
                    f"{run.path}: {name} is {theirs}, that of bank {bank.path} is {own}; give runs "
                    f"like the bank's, or --allow {allowance}"
                )
    matrix = found.matrix
    attributes = matrix.item_attributes or {}
    known = {name: item for item, name in enumerate(bank.content_hash)}
    names = [
        f"{name}#{doc_id}" if name not in known and f"{name}#{doc_id}" in known else name
        for name, doc_id in zip(matrix.items, attributes["doc_id"], strict=True)
    ]
    matrix = ScoreMatrix(matrix.models, tuple(names), matrix.scores, attributes, matrix.groups)
    prompts = [
        (bank.prompt_hash[known[name]], str(own))
        for name, own in zip(names, attributes["prompt_hash"], strict=True)
        if name in known
    ]
    compared = [(then, now) for then, now in prompts if then and now]
    other = sum(then != now for then, now in compared)
    # That a run is partial is told by the bank itself, and where its file lay is of no use there.
    notices = [text for text in found.notices if not text.endswith(", kept")]
    if other:
        notices.append(
            f"{other} of {len(compared)} prompts of the added runs differ from the bank's (another "
            "template or instruction)"
        )
    return matrix, [(run.path.name, run.sha256) for run in found.runs], notices


def _newest_of_each(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """One run of each model and folder, the newest: a run that went on is logged once more."""
    newest: dict[tuple[str, Path], LoggedRun] = {}
    for run in sorted(runs, key=lambda each: each.date):
        newest[run.base_model, run.path.parent] = run
    counts = Counter(run.base_model for run in newest.values())
    return [
        replace(run, model=run.base_model) if counts[run.base_model] == 1 else run
        for run in newest.values()
    ]


def _without_models(matrix: ScoreMatrix, options: CalibrateOptions, path: Path) -> ScoreMatrix:
    """The matrix without the models named with ``--exclude_model``."""
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
    return matrix.select_models(left)


def _provenance(sources: Sequence[tuple[str, str]]) -> Provenance:
    from importlib.metadata import version

    return Provenance(
        date=datetime.now(tz=timezone.utc).strftime("%Y-%m-%d"),
        lm_eval=version("lm_eval"),
        lm_eval_adaptive=__version__,
        sources=tuple(Source(name, digest) for name, digest in sources),
    )


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
    from lm_eval_adaptive.banks.log_scores import score_matrix
    from lm_eval_adaptive.host.logs import exclude_runs, find_runs

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
    matrix = _without_models(read_scores(path, metric), options, path)
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
