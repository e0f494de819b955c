"""From the harness's logs, or a score file, to a bank.

This module owns what ``calibrate`` does between files and the core; it imports the log reader, the
score adaptor and the core. Its statistics are all the core's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.documents import by_documents
from lm_eval_adaptive.banks.eee_scores import recorded_scores, refuse_two_kinds
from lm_eval_adaptive.banks.log_documents import BY_DOC_ID
from lm_eval_adaptive.banks.log_scores import metrics_in, score_matrix
from lm_eval_adaptive.banks.prompts import shared_prompts
from lm_eval_adaptive.banks.sources import provenance_of, scores_of_file
from lm_eval_adaptive.banks.update import updated_bank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs import exclude_runs, find_runs
from lm_eval_adaptive.host.logs.eee import find_records
from lm_eval_adaptive.host.measures import metric_and_filter, range_of
from lm_eval_adaptive.host.scoring import OPEN_ENDED, direction, document_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.banks.options import CalibrateOptions
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.logs.eee import Record


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
        return updated_bank(options)
    if not (options.task and options.metric):
        raise UsageError(
            "calibrate needs --task and --metric; only with --update does the bank tell them"
        )
    if options.samples:
        records = find_records(options.samples)
        return _from_records(records, options) if records else _from_logs(options)
    return _from_file(options)


def _from_logs(options: CalibrateOptions) -> ItemBank:
    runs = exclude_runs(find_runs(options.samples, options.task), options.exclude_model)
    metric, filter_name = metric_and_filter(options.metric, metrics_in(runs))
    found = score_matrix(runs, metric, filter_name, to_number=document_score, allow=options.allow)
    matrix = found.matrix
    if matrix.items[0].startswith(BY_DOC_ID):  # no run has its documents
        matrix = by_documents(matrix, options, str(runs[0].path))
    facts = runs[0].facts
    score_range, clip = _range(options, metric, range_of(facts.adaptive, metric, options.task))
    higher = direction(metric, found.higher_is_better)
    if options.lower_is_better is not None:
        higher = not options.lower_is_better
    if higher is None:
        raise DataError(
            f"the logs do not tell whether a higher {metric} is better; say so with "
            "--higher_is_better or --lower_is_better"
        )
    return calibrate(
        matrix,
        task=options.task,
        metric=metric,
        filter=found.filter or "none",
        score_range=score_range,
        clip=clip,
        higher_is_better=higher,
        response_model=options.response_model,
        notices=(*found.notices, *matrix.notices),
        task_version=str(runs[0].task_version or ""),
        dataset_path=facts.dataset_path,
        dataset_name=facts.dataset_name,
        split=facts.split,
        num_fewshot=_shared({run.n_shot for run in found.runs}),
        prompts=shared_prompts(found.runs),
        licence=options.licence,
        provenance=provenance_of([(run.path.name, run.sha256) for run in found.runs]),
    )


def _from_records(records: Sequence[Record], options: CalibrateOptions) -> ItemBank:
    """A bank of records of *Every Eval Ever*; direction and range come from these."""
    refuse_two_kinds(options.samples, options.task)
    left = [name for name in options.exclude_model if name not in {r.model for r in records}]
    if left:
        raise UsageError(
            f"--exclude_model {left[0]}: no such model in the records; they hold "
            f"{', '.join(sorted({record.model for record in records}))}"
        )
    found = recorded_scores(
        [each for each in records if each.model not in options.exclude_model],
        options.metric,
        options.task,
    )
    metric, filter_name = metric_and_filter(options.metric)
    score_range, clip = _range(options, metric, found.metric.range)
    lower = options.lower_is_better
    return calibrate(
        found.matrix,
        task=options.task,
        metric=metric,
        filter=filter_name or "none",
        score_range=score_range,
        clip=clip,
        higher_is_better=not (found.metric.lower_is_better if lower is None else lower),
        response_model=options.response_model,
        notices=found.notices,
        licence=options.licence,
        provenance=provenance_of(found.sources),
    )


def _from_file(options: CalibrateOptions) -> ItemBank:
    metric, filter_name = metric_and_filter(options.metric)
    matrix, sources = scores_of_file(options, metric)
    score_range, clip = _range(options, metric, range_of({}, metric, options.task))
    higher = direction(metric, None) is not False
    if options.lower_is_better is not None:
        higher = not options.lower_is_better
    return calibrate(
        matrix,
        task=options.task,
        metric=metric,
        filter=filter_name or "none",
        score_range=score_range,
        clip=clip,
        higher_is_better=higher,
        response_model=options.response_model,
        notices=matrix.notices,
        licence=options.licence,
        provenance=provenance_of(sources),
    )


def _range(
    options: CalibrateOptions, metric: str, declared: tuple[float, float] | None
) -> tuple[tuple[float, float] | None, bool]:
    """The range to use, and whether values outside it are clipped."""
    if options.score_range is not None:
        return options.score_range, options.clip
    return declared, options.clip or metric in OPEN_ENDED


def _shared(values: set[int | None]) -> int | None:
    """The value that all runs share, None where they differ or one does not tell."""
    return next(iter(values)) if len(values) == 1 else None
