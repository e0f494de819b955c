"""Scores of several logged runs as one matrix, refused where the runs cannot be compared.

This module owns what makes runs comparable: one task, version, few-shot setting, filter and prompt,
and the same documents. It imports the log reader's runs and the core's matrix.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.banks.log_documents import (
    DocumentTable,
    rows_under,
    sights_of,
    table_of,
)
from lm_eval_adaptive.banks.log_totals import left_out_value
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.own_part import logged_part

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from lm_eval_adaptive.host.logs import LoggedRun

_CHARACTERS_PER_TOKEN = 4
ALLOWANCES = ("task_version", "few_shot", "prompts", "partial")
"""What :func:`score_matrix` can be told to accept; each is refused or left out otherwise."""


@dataclass(frozen=True)
class LoggedScores:
    """The scores of several runs, and what was learnt while they were put together.

    Attributes:
        matrix: Runs × documents, named by content hash (see
            :func:`~lm_eval_adaptive.core.identity.item_keys`). Its ``item_attributes`` describe
            the items: ``content_hash``, ``doc_id``, ``doc_hash`` and ``prompt_hash`` (empty where
            runs differ), ``input_tokens`` and ``output_tokens`` (characters / 4, median over runs).
        runs: The runs in the order of the rows.
        metric: The metric.
        filter: The filter, None where the logs do not tell.
        higher_is_better: The metric's direction in the task's configuration, None where unknown.
        notices: What was left out or accepted with a difference, a line each.
    """

    matrix: ScoreMatrix
    runs: tuple[LoggedRun, ...]
    metric: str
    filter: str | None
    higher_is_better: bool | None
    notices: tuple[str, ...]


def score_matrix(
    runs: Sequence[LoggedRun],
    metric: str,
    filter: str | None = None,  # noqa: A002  the harness's word
    *,
    to_number: Callable[[str, object], float] | None = None,
    allow: Collection[str] = (),
    max_edited: float = 0.05,
    whole_documents: bool = False,
) -> LoggedScores:
    """Put the logged values of one metric into a matrix, runs × documents.

    Documents that differ between runs (edited since) are left out. A document that a run has no
    answer to is a missing score, as is a value that is not a number (NaN).

    Args:
        runs: Runs of one task, as :func:`find_runs` returns them.
        metric: Name of the metric in the logs.
        filter: Name of the filter; may be left out where the logs hold one.
        to_number: Turns a logged value into a number: ``to_number(metric, value)``. Numbers and
            booleans are taken as they are when left out, and anything else is refused.
        allow: Differences to accept, of :data:`ALLOWANCES`: ``task_version``, ``few_shot``
            (number and choice of examples), ``prompts`` (that differ for no known reason),
            ``partial`` (runs with ``--limit`` or without an answer to every document).
        max_edited: Share of documents that may differ between runs.
        whole_documents: Name items by all columns of their documents, as banks were made before
            only those that the task reads counted.

    Returns:
        The matrix with its runs and notices.

    Raises:
        DataError: The runs mix filters, task versions or few-shot settings; the metric is missing
            or no number; too many documents differ; no complete run is left.
        UsageError: ``allow`` names something unknown.
    """
    for allowance in allow:
        if allowance not in ALLOWANCES:
            raise UsageError(
                f"cannot allow {allowance!r}; expected one of: {', '.join(ALLOWANCES)}"
            )
    notices = [notice for run in runs for notice in run.notices]
    kept = _complete(runs, notices, keep_partial="partial" in allow)
    name = _one_filter(kept, filter)
    _check_metric(kept, metric, name)
    if "task_version" not in allow:
        _check_equal(kept, "task version", lambda run: run.task_version)
    if "few_shot" not in allow:
        _check_equal(kept, "number of few-shot examples", lambda run: run.n_shot)
        _check_equal(
            kept, "few-shot settings", lambda run: run.few_shot or None if run.n_shot else None
        )
    _note_differences(kept, notices)
    read = None if whole_documents else _columns_of(kept)
    table = table_of(kept, name, read, notices, max_edited, whole_documents=whole_documents)
    _check_prompts(kept, table, notices, strict="prompts" not in allow and "few_shot" not in allow)
    scores = np.full((len(kept), len(table.items)), np.nan)
    left_out = left_out_value(
        kept, lambda run: _plain_numbers(run, metric, name), metric, name, notices
    )
    for row, run in enumerate(kept):
        there = np.flatnonzero(table.places[row] >= 0)
        values = _numbers(run, table.places[row, there], metric, to_number, notices)
        scores[row, there] = (
            values if left_out is None else np.where(values == left_out, np.nan, values)
        )
    scored = ~np.isnan(scores).all(axis=0)
    if not scored.all():
        notices.append(
            f"{int((~scored).sum())} of {len(scored)} documents have no {metric} in any run and "
            "were left out"
        )
    matrix = ScoreMatrix(
        tuple(run.model for run in kept),
        table.items,
        scores,
        _attributes(kept, table, told_by_columns=read is not None),
        tuple(run.base_model for run in kept),
    )
    if not scored.any():
        raise DataError(f"no document has a {metric} in any of the {len(kept)} runs")
    directions = {run.higher_is_better[metric] for run in kept if metric in run.higher_is_better}
    return LoggedScores(
        matrix=matrix if scored.all() else matrix.select_items(scored),
        runs=tuple(kept),
        metric=metric,
        filter=name,
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        notices=tuple(dict.fromkeys(notices)),
    )


def metrics_in(runs: Sequence[LoggedRun]) -> tuple[str, ...]:
    """Names of the metrics that some answer of the runs has."""
    return tuple(dict.fromkeys(name for run in runs for name in run.answers.columns.metrics))


def _complete(
    runs: Sequence[LoggedRun], notices: list[str], *, keep_partial: bool
) -> list[LoggedRun]:
    tasks = sorted({run.task for run in runs})
    if len(tasks) > 1:
        raise DataError(f"the logs are of several tasks ({', '.join(tasks)}); name one")
    kept = []
    for run in sorted(runs, key=lambda run: run.model):
        if run.partial is None or keep_partial:
            kept.append(run)
        if run.partial is not None:
            fate = "kept" if keep_partial else "left out"
            notices.append(f"{run.path}: {run.partial}, {fate}")
    if not kept:
        why = f"; {runs[0].path} {runs[0].partial}" if runs else ""
        raise DataError(f"no run over all documents is left among {len(runs)} logged runs{why}")
    return kept


def _one_filter(runs: Sequence[LoggedRun], wanted: str | None) -> str | None:
    """The filter that all runs share, None where no log names one."""
    known = {
        run.path: [name for name in run.filters if name is not None]
        for run in runs
        if any(name is not None for name in run.filters)
    }
    if wanted is not None:
        for path, names in known.items():
            if wanted not in names:
                raise DataError(f"{path}: no filter {wanted!r}; it holds: {', '.join(names)}")
        if known and len(known) < len(runs):
            path = next(run.path for run in runs if run.path not in known)
            raise DataError(
                f"{path}: does not tell its filter, expected {wanted!r}; put the results file "
                "beside it"
            )
        return wanted if known else None
    for path, names in known.items():
        if len(names) > 1:
            raise DataError(
                f"{path}: holds answers under several filters, choose one of: {', '.join(names)}"
            )
    singles: dict[str, Path] = {}
    for path, names in known.items():
        singles.setdefault(names[0], path)
    if len(singles) > 1:
        (one, first), (other, second) = list(singles.items())[:2]
        raise DataError(f"the logs mix filters: {one} in {first}, {other} in {second}; choose one")
    return next(iter(singles), None) if len(known) == len(runs) else None


def _check_metric(runs: Sequence[LoggedRun], metric: str, name: str | None) -> None:
    for run in runs:
        rows, columns = rows_under(run, name), run.answers.columns
        available = sorted(key for key, each in columns.metrics.items() if each.present[rows].any())
        if metric not in available:
            held = ", ".join(available) or "none"
            raise DataError(f"{run.path}: no metric {metric!r}; it holds: {held}")


def _check_equal(
    runs: Sequence[LoggedRun], what: str, value_of: Callable[[LoggedRun], Any]
) -> None:
    seen: dict[str, LoggedRun] = {}
    for run in runs:
        value = value_of(run)
        if value is not None:
            seen.setdefault(json.dumps(value, sort_keys=True, default=str), run)
    if len(seen) > 1:
        (one, first), (other, second) = list(seen.items())[:2]
        raise DataError(
            f"the logs mix values of {what}: {one} in {first.path}, {other} in {second.path}; "
            "give runs with one value"
        )


def _note_differences(runs: Sequence[LoggedRun], notices: list[str]) -> None:
    templates = {(run.chat_template, run.chat_template_sha) for run in runs}
    if len(templates) > 1:
        with_template = sum(run.chat_template is True for run in runs)
        known = len({sha for _, sha in templates if sha})
        different = f", {known} different ones" if known > 1 else ""
        notices.append(
            f"{with_template} of {len(runs)} runs apply a chat template{different}; "
            "their prompts differ"
        )
    if len({run.system_instruction for run in runs}) > 1:
        notices.append("the runs have different system instructions; their prompts differ")
    settings: dict[str, list[str]] = {}
    for run in runs:
        text = json.dumps(run.generation_kwargs, sort_keys=True, default=str)
        settings.setdefault(text, []).append(run.model)
    if len(settings) > 1:
        told = "; ".join(f"{text}: {len(names)} runs" for text, names in settings.items())
        notices.append(f"the runs have different generation settings ({told})")


def _columns_of(runs: Sequence[LoggedRun]) -> frozenset[str] | None:
    """The columns that the task reads in some run, None where a run does not tell."""
    found: frozenset[str] = frozenset()
    for run in runs:
        if run.facts.columns is None:
            return None
        found |= run.facts.columns
    return found


def _check_prompts(
    runs: Sequence[LoggedRun], table: DocumentTable, notices: list[str], *, strict: bool
) -> None:
    """Prompts may differ by chat template and system instruction, and by nothing else."""
    groups: dict[Any, list[int]] = {}
    for row, run in enumerate(runs):
        key = (run.chat_template, run.chat_template_sha, run.system_instruction)
        groups.setdefault(key, []).append(row)
    for (chat, _, _), rows in groups.items():
        low, high = _prompts(runs, table, rows)
        different = np.flatnonzero(low < high)
        if not len(different):
            continue
        col = int(different[0])
        there = [row for row in rows if _prompt(runs, table, row, col)]
        first = there[0]
        hashes = {row: _prompt(runs, table, row, col) for row in there}
        other = next(row for row in there if hashes[row] != hashes[first])
        told = (
            f"the prompts of {len(different)} documents differ, first doc_id {table.doc_ids[col]} "
            f"in {runs[first].path} and {runs[other].path}"
        )
        if chat is None:
            notices.append(
                f"{told}; without results files nothing tells whether by chat template or by "
                "few-shot examples"
            )
            continue
        # A chat template may write the day's date or the model's name into the prompt.
        if strict and not chat:
            raise DataError(
                f"{told}, though both apply no chat template; their few-shot examples or the "
                "harness's version differ"
            )
        notices.append(told)


def _prompt(runs: Sequence[LoggedRun], table: DocumentTable, row: int, col: int) -> int:
    """Short hash of a prompt, 0 where the log has none."""
    place = int(table.places[row, col])
    return int(runs[row].answers.columns.prompts[place]) if place >= 0 else 0


def _prompts(
    runs: Sequence[LoggedRun], table: DocumentTable, rows: Sequence[int], column: str = "prompts"
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The least and the greatest short hash that some runs have for each document, shape (n,).

    Equal where all that have one agree. Where none has one, the least is above the greatest.
    """
    low = np.full(len(table.items), np.iinfo(np.uint64).max, dtype=np.uint64)
    high = np.zeros(len(table.items), dtype=np.uint64)
    for row in rows:
        places = table.places[row]
        own = getattr(runs[row].answers.columns, column)[places]
        there = (places >= 0) & (own > 0)
        low[there] = np.minimum(low[there], own[there])
        high[there] = np.maximum(high[there], own[there])
    return low, high


def _plain_numbers(run: LoggedRun, metric: str, name: str | None) -> list[float]:
    """The metric's values under a filter that are logged as numbers."""
    column, rows = run.answers.columns.metrics[metric], rows_under(run, name)
    rows = rows[column.present[rows] & ~np.isin(rows, list(column.others))]
    return list(map(float, column.values[rows]))


def _numbers(
    run: LoggedRun,
    rows: NDArray[np.int32],
    metric: str,
    to_number: Callable[[str, object], float] | None,
    notices: list[str],
) -> NDArray[np.float64]:
    """A run's values of the metric in some rows, NaN where there is none."""
    column = run.answers.columns.metrics[metric]
    values = column.values[rows]
    absent = ~column.present[rows]
    for place in np.flatnonzero(np.isin(rows, list(column.others))) if column.others else ():
        value = column.others[int(rows[place])]
        if value is None:
            absent[place] = True
            continue
        where = f"{run.path}, doc_id {run.answers.columns.doc_ids[rows[place]]}"
        values[place] = _number(where, metric, value, to_number)
    if absent.any():
        notices.append(
            f"{run.path}: {int(absent.sum())} documents have no {metric}, taken as missing"
        )
    if lost := int((np.isnan(values) & ~absent).sum()):
        notices.append(f"{run.path}: {metric} is NaN for {lost} documents, taken as missing")
    return values


def _number(
    where: str,
    metric: str,
    value: object,
    to_number: Callable[[str, object], float] | None,
) -> float:
    """A value that is no number as one."""
    if to_number is not None:
        try:
            return float(to_number(metric, value))
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    raise DataError(f"{where}: {metric} is {json.dumps(value)[:60]}, expected a number")


def _attributes(
    runs: Sequence[LoggedRun], table: DocumentTable, *, told_by_columns: bool
) -> dict[str, NDArray[Any]]:
    everyone = range(len(runs))
    book = runs[0].answers.book

    def same(column: str) -> NDArray[Any]:
        low, high = _prompts(runs, table, everyone, column)
        # A run without the hash is no agreement either.
        bare = np.zeros(len(low), dtype=bool)
        for row, run in enumerate(runs):
            places = table.places[row]
            bare |= (places >= 0) & (getattr(run.answers.columns, column)[places] == 0)
        agreed = (low == high) & ~bare
        return np.array(
            [book.full(int(h)) if ok else "" for h, ok in zip(low, agreed, strict=True)],
            dtype=object,
        )

    def tokens(column: str) -> NDArray[np.float64]:
        lengths = np.full((len(table.items), len(runs)), np.nan, dtype=np.float32)
        for row, run in enumerate(runs):
            there = table.places[row] >= 0
            lengths[there, row] = getattr(run.answers.columns, column)[table.places[row, there]]
        medians = np.concatenate(
            [
                np.nanmedian(part, axis=1)
                for part in np.array_split(lengths, len(lengths) // 1000 + 1)
            ]
        )
        return medians.astype(np.float64) / _CHARACTERS_PER_TOKEN

    prompts = same("prompts")
    return {
        "content_hash": np.array(table.contents, dtype=object),
        "doc_id": table.doc_ids,
        "doc_hash": same("doc_hashes"),
        "prompt_hash": prompts,
        "part_hash": _own_parts(runs, table, prompts),
        "sight_hash": (
            np.array([""] * len(table.items), dtype=object)
            if told_by_columns
            else _sights(runs, table)
        ),
        "input_tokens": tokens("prompt_chars"),
        "output_tokens": tokens("reply_chars"),
    }


def _sights(runs: Sequence[LoggedRun], table: DocumentTable) -> NDArray[Any]:
    """What sets each document apart for the model, by the run that answered most documents."""
    row = int((table.places >= 0).sum(axis=1).argmax())
    there = np.flatnonzero(table.places[row] >= 0)
    found = np.array([""] * len(table.items), dtype=object)
    if len(there):
        found[there] = sights_of(runs[row], table.places[row, there].astype(np.intp))
    return found


def _own_parts(
    runs: Sequence[LoggedRun], table: DocumentTable, prompts: NDArray[Any]
) -> NDArray[Any]:
    """Hash of each document's own part of the prompts, where the prompts differ around it."""
    templates = {run.facts.doc_to_text for run in runs}
    found = np.array([""] * len(prompts), dtype=object)
    if len(templates) > 1:
        return found
    (template,) = templates
    for item in np.flatnonzero(prompts == "").tolist():
        rows = np.flatnonzero(table.places[:, item] >= 0)
        if len(rows):
            answer = runs[rows[0]].answers[int(table.places[rows[0], item])]
            found[item] = logged_part(template, answer.doc, answer.prompt)
    return found
