"""Scores of several logged runs as one matrix, refused where the runs cannot be compared.

This module owns what makes runs comparable: one task, version, few-shot setting, filter and prompt,
and the same documents. It imports the log reader's runs and the core's matrix.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.banks.log_totals import left_out_value
from lm_eval_adaptive.core.identity import item_keys
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.columns import seen_hash_of_json
from lm_eval_adaptive.host.logs import LoggedAnswer, LoggedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

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
    answers = [
        [answer for answer in run.answers if name is None or answer.filter == name] for run in kept
    ]
    columns = None if whole_documents else _columns_of(kept)
    table = _table_of(kept, answers, columns, notices, max_edited)
    _check_prompts(kept, table, notices, strict="prompts" not in allow and "few_shot" not in allow)
    scores = np.full((len(kept), len(table)), np.nan)
    left_out = left_out_value(kept, answers, metric, name, notices)
    for col, found in enumerate(table.values()):
        for row, answer in found.items():
            value = _number(kept[row], answer, metric, to_number)
            scores[row, col] = np.nan if value == left_out else value
    answered = np.array([[row in found for found in table.values()] for row in range(len(kept))])
    for row, run in enumerate(kept):
        if lost := int(np.isnan(scores[row])[answered[row]].sum()):
            notices.append(f"{run.path}: {metric} is NaN for {lost} documents, taken as missing")
    directions = {run.higher_is_better[metric] for run in kept if metric in run.higher_is_better}
    return LoggedScores(
        matrix=ScoreMatrix(
            tuple(run.model for run in kept),
            tuple(table),
            scores,
            _attributes(table),
            tuple(run.base_model for run in kept),
        ),
        runs=tuple(kept),
        metric=metric,
        filter=name,
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        notices=tuple(dict.fromkeys(notices)),
    )


def metrics_in(runs: Sequence[LoggedRun]) -> tuple[str, ...]:
    """Names of the metrics that some answer of the runs has."""
    return tuple(dict.fromkeys(name for run in runs for a in run.answers for name in a.metrics))


_Table = dict[str, dict[int, LoggedAnswer]]  # item key → row of the matrix → answer


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
        answers = [answer for answer in run.answers if name is None or answer.filter == name]
        available = sorted({key for answer in answers for key in answer.metrics})
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


def _hash_of(answer: LoggedAnswer, columns: frozenset[str] | None) -> str:
    return answer.content_hash if columns is None else seen_hash_of_json(answer.doc, columns)


def _table_of(
    runs: Sequence[LoggedRun],
    answers: Sequence[Sequence[LoggedAnswer]],
    columns: frozenset[str] | None,
    notices: list[str],
    max_edited: float,
) -> _Table:
    """Answers by document and run, without documents that were edited between runs."""
    hashes = [[_hash_of(answer, columns) for answer in each] for each in answers]
    repeated = frozenset(
        digest for own in hashes for digest, count in Counter(own).items() if count > 1
    )
    table: _Table = {}
    by_doc_id: list[dict[int, str]] = []
    for row, run_answers in enumerate(answers):
        keys = item_keys(
            hashes[row],
            [answer.doc_id for answer in run_answers],
            repeated,
        )
        for key, answer in zip(keys, run_answers, strict=True):
            table.setdefault(key, {})[row] = answer
        by_doc_id.append(
            {answer.doc_id: key for key, answer in zip(keys, run_answers, strict=True)}
        )
    # A document is edited where a run that lacks it has another one in its place. One that a run
    # lacks without a substitute is a missing answer; one that moved keeps its name and its scores.
    edited: dict[str, int] = {}
    for key, found in table.items():
        if len(found) == len(runs):
            continue
        doc_id = next(iter(found.values())).doc_id
        if any(row not in found and doc_id in ids for row, ids in enumerate(by_doc_id)):
            edited[key] = doc_id
    total = max(map(len, by_doc_id))
    positions = sorted(set(edited.values()))
    if positions:
        shown = ", ".join(map(str, positions[:5])) + (", …" if len(positions) > 5 else "")
        told = f"{len(positions)} of {total} documents differ between runs (doc_id {shown})"
        if len(positions) > max_edited * total:
            raise DataError(
                f"{told}, more than {max_edited:.0%}; give runs on one version of the data"
            )
        notices.append(f"{told} and were left out")
    moved = sum(
        len({answer.doc_id for answer in found.values()}) > 1
        for key, found in table.items()
        if key not in edited
    )
    if moved:
        notices.append(f"{moved} documents have different doc_ids in different runs")
    kept = [key for key in table if key not in edited]
    if not kept:
        raise DataError("the runs have no document in common; give runs on one version of the data")
    kept.sort(key=lambda key: (next(iter(table[key].values())).doc_id, key))
    return {key: table[key] for key in kept}


def _check_prompts(
    runs: Sequence[LoggedRun], table: _Table, notices: list[str], *, strict: bool
) -> None:
    """Prompts may differ by chat template and system instruction, and by nothing else."""
    groups: dict[Any, list[int]] = {}
    for row, run in enumerate(runs):
        if run.chat_template is not None:
            groups.setdefault(
                (run.chat_template, run.chat_template_sha, run.system_instruction), []
            ).append(row)
    for (chat, _, _), rows in groups.items():
        different = [
            found
            for found in table.values()
            if len({found[row].prompt_hash for row in rows if row in found}) > 1
        ]
        if not different:
            continue
        found = different[0]
        there = [row for row in rows if row in found]
        first = there[0]
        other = next(row for row in there if found[row].prompt_hash != found[first].prompt_hash)
        told = (
            f"the prompts of {len(different)} documents differ, first doc_id {found[first].doc_id} "
            f"in {runs[first].path} and {runs[other].path}"
        )
        # A chat template may write the day's date or the model's name into the prompt.
        if strict and not chat:
            raise DataError(
                f"{told}, though both apply no chat template; their few-shot examples or the "
                "harness's version differ"
            )
        notices.append(told)


def _number(
    run: LoggedRun,
    answer: LoggedAnswer,
    metric: str,
    to_number: Callable[[str, object], float] | None,
) -> float:
    where = f"{run.path}, doc_id {answer.doc_id}"
    value = answer.metrics.get(metric)
    if value is None:  # another group's document: no item for this metric
        return float("nan")
    if to_number is not None:
        try:
            return float(to_number(metric, value))
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
    if isinstance(value, bool | int | float):
        return float(value)
    raise DataError(f"{where}: {metric} is {json.dumps(value)[:60]}, expected a number")


def _attributes(table: _Table) -> dict[str, NDArray[Any]]:
    found = [list(answers.values()) for answers in table.values()]

    def same(values: list[str]) -> str:
        return values[0] if len(set(values)) == 1 else ""

    def tokens(texts: list[str]) -> float:
        return float(np.median([len(text) for text in texts])) / _CHARACTERS_PER_TOKEN

    columns: dict[str, list[Any]] = {
        "content_hash": [key.partition("#")[0] for key in table],
        "doc_id": [answers[0].doc_id for answers in found],
        "doc_hash": [same([a.doc_hash for a in answers]) for answers in found],
        "prompt_hash": [same([a.prompt_hash for a in answers]) for answers in found],
        "input_tokens": [tokens([a.prompt for a in answers]) for answers in found],
        "output_tokens": [
            tokens([resp for a in answers for resp in a.resps] or [""]) for answers in found
        ],
    }
    return {
        name: np.array(values, dtype=object if isinstance(values[0], str) else None)
        for name, values in columns.items()
    }
