"""A bank that grows: the models of further runs, adaptive ones included, join it.

This module owns what ``calibrate --update`` accepts; how a bank grows is ``core.growing``'s.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from lm_eval_adaptive.banks.find import load_bank
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.banks.sources import provenance_of, scores_of_file
from lm_eval_adaptive.core.bank_info import Provenance, Update
from lm_eval_adaptive.core.growing import extend
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs import exclude_runs, find_runs
from lm_eval_adaptive.host.measures import metric_and_filter
from lm_eval_adaptive.host.scoring import document_score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.banks.log_scores import LoggedScores
    from lm_eval_adaptive.banks.options import CalibrateOptions
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.host.logs import LoggedRun


def updated_bank(options: CalibrateOptions) -> ItemBank:
    """A bank with the models of further runs, adaptive ones included."""
    source = str(options.update)
    bank = load_bank(source)
    info = bank.info
    metric, filter_name = metric_and_filter(options.metric or info.metric, [info.metric])
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
        matrix, sources = scores_of_file(replace(options, task=info.task), metric)
        notices = list(matrix.notices)
    else:
        matrix, sources, notices = new_runs(options, bank)
    now, before = provenance_of(sources), info.provenance or Provenance()
    update = Update(bank.sha256, now.date, matrix.models)
    provenance = replace(
        now, sources=(*before.sources, *now.sources), updates=(*before.updates, update)
    )
    return extend(bank, matrix, clip=options.clip, notices=notices, provenance=provenance)


def new_runs(
    options: CalibrateOptions, bank: ItemBank
) -> tuple[ScoreMatrix, list[tuple[str, str]], list[str]]:
    """Scores of logged runs by the names of the bank's items, their files, and notices.

    Raises:
        DataError: The runs are of another version or number of few-shot examples than the bank.
    """
    runs = exclude_runs(find_runs(options.samples, bank.info.task), options.exclude_model)
    return scores_by_bank(newest_of_each(runs), options, bank)


def scores_by_bank(
    runs: Sequence[LoggedRun], options: CalibrateOptions, bank: ItemBank
) -> tuple[ScoreMatrix, list[tuple[str, str]], list[str]]:
    """Scores of some logged runs by the bank's items, the files they are from, and notices.

    Raises:
        DataError: The runs are of another version or number of few-shot examples than the bank.
    """
    info = bank.info
    found = _scores_by_items(runs, options, bank)
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
    names = _by_sight(names, attributes["sight_hash"].tolist(), bank, known)
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


def _by_sight(
    names: list[str], sights: Sequence[str], bank: ItemBank, known: Mapping[str, int]
) -> list[str]:
    """Names of documents with the bank's own where only what nobody sees has changed."""
    if all(name in known for name in names) or not any(bank.sight_hash):
        return names
    counts = Counter(bank.sight_hash)
    own = {
        sight: name
        for sight, name in zip(bank.sight_hash, bank.content_hash, strict=True)
        if sight and counts[sight] == 1
    }
    there = set(names)
    return [
        own[sight] if name not in known and sight in own and own[sight] not in there else name
        for name, sight in zip(names, sights, strict=True)
    ]


def _scores_by_items(
    runs: Sequence[LoggedRun], options: CalibrateOptions, bank: ItemBank
) -> LoggedScores:
    """The runs' scores under the names that the bank has for its items.

    Those are by the columns that the task reads, in older banks by all.
    """

    def scores(*, whole: bool) -> LoggedScores:
        return score_matrix(
            runs,
            bank.info.metric,
            bank.info.filter,
            to_number=document_score,
            allow=tuple({*options.allow, "partial"}),
            whole_documents=whole,
        )

    there = {name.partition("#")[0] for name in bank.content_hash}

    def known(found: LoggedScores) -> int:
        return sum(name.partition("#")[0] in there for name in found.matrix.items)

    by_columns = scores(whole=False)
    if known(by_columns) == len(by_columns.matrix.items):
        return by_columns
    by_all = scores(whole=True)
    return by_all if known(by_all) > known(by_columns) else by_columns


def newest_of_each(runs: Sequence[LoggedRun]) -> list[LoggedRun]:
    """One run of each model and folder, the newest: a run that went on is logged once more."""
    newest: dict[tuple[str, Path], LoggedRun] = {}
    for run in sorted(runs, key=lambda each: each.date):
        newest[run.base_model, run.path.parent] = run
    counts = Counter(run.base_model for run in newest.values())
    return [
        replace(run, model=run.base_model) if counts[run.base_model] == 1 else run
        for run in newest.values()
    ]
