"""Logged runs: a samples file paired with its results, each run with a name of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs.answers import (
    AnswerTable,
    FileColumns,
    HashBook,
    columns_of,
    joined,
)
from lm_eval_adaptive.host.logs.files import (
    SamplesFile,
    as_list,
    filter_in_name,
    find_files,
    is_of_task,
    what_else_is_there,
)
from lm_eval_adaptive.host.logs.reading import RowReader, RowStore
from lm_eval_adaptive.host.logs.records import LoggedRun, is_named
from lm_eval_adaptive.host.logs.results import RunResults, knows_task, read_results
from lm_eval_adaptive.host.logs.samples import (
    FileRows,
    Hashes,
    filters_of,
    read_rows,
    without_repeats,
)
from lm_eval_adaptive.host.logs.side_by_side import helpers_for, read_side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def find_runs(
    spec: str | Path | Sequence[str | Path],
    task: str | None = None,
    *,
    metrics: Iterable[str] | None = None,
) -> list[LoggedRun]:
    """All logged runs of a task.

    Args:
        spec: A samples file, a directory (searched with its subdirectories), a glob, or several.
        task: The task's name, or None for every task that is found.
        metrics: Metrics whose values are wanted; all when left out. It saves memory, where logs
            are many.

    Returns:
        Sorted by name. Of several runs of one model in one folder the newest is taken, with a
        notice, unless their settings differ; others are told apart by the directory that differs,
        else by date: ``model@directory``. Incomplete runs are included and say so in ``partial``.

    Raises:
        DataError: Nothing is found, or a file is damaged, empty, of another program, or contradicts
            itself.
    """
    found = find_files(spec)
    picked = found
    if task is not None:
        picked = [each for entry in found if (each := _of_task(entry, task)) is not None]
    if not picked:
        where = ", ".join(map(str, as_list(spec)))
        others = sorted({entry.task for entry in found if entry.task})
        hint = f"; they hold {', '.join(others)}" if others else ""
        if not found and (foreign := what_else_is_there(spec)):
            hint = f"; {foreign}"
        name = f" of task {task}" if task else ""
        raise DataError(
            f"{where}: no samples{name} found, expected samples_<task>_<date>.jsonl as lm_eval "
            f"--log_samples writes it{hint}"
        )
    book = HashBook()
    used = None if metrics is None else frozenset(metrics)
    count = helpers_for([sum(path.stat().st_size for path in entry.paths) for entry in picked])
    read = read_side_by_side(_read_file, picked, count) if count else map(_read_file, picked)
    runs = [_run_of(each, book, used) for each in read]
    _hashes.forget()
    runs = _newest(_with_filters_joined(_without_copies(runs)))
    return sorted(_told_apart(runs), key=lambda run: (run.model, run.task))


def _of_task(entry: SamplesFile, task: str) -> SamplesFile | None:
    """The entry as one of the task, None where it is of another one."""
    if is_of_task(entry, task):
        return replace(entry, task=task)
    name = filter_in_name(entry, task)
    if name is None:
        return None
    as_of_task = replace(entry, task=task, filter=name)
    first = next(iter(RowReader(entry.paths)), None)
    try:
        row = json.loads(first[2]) if first else {}
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    if "filter" in row:
        return as_of_task if row["filter"] == name else None
    return as_of_task if name in read_results(as_of_task).filters else None


def exclude_runs(runs: Sequence[LoggedRun], names: Sequence[str]) -> list[LoggedRun]:
    """The runs whose model is not named.

    Args:
        runs: Runs found together.
        names: Models to leave out: a run's name, or a model's name for all its runs; also in the
            form the harness gives to directories (``org__model``).

    Raises:
        UsageError: A name fits no run; the message lists those that are there.
    """
    kept = list(runs)
    for name in names:
        fits = [run for run in runs if is_named(run, name)]
        if not fits:
            there = ", ".join(run.model for run in runs)
            raise UsageError(f"no logged run of model {name!r} to leave out; there are: {there}")
        kept = [run for run in kept if run not in fits]
    return kept


@dataclass(frozen=True)
class _ReadFile:
    """A samples file as it was read."""

    entry: SamplesFile
    results: RunResults
    columns: FileColumns
    found: FileRows


_hashes = Hashes()  # of the documents that this process met in one reading


def _read_file(entry: SamplesFile) -> _ReadFile:
    """Read one samples file and the results beside it."""
    found = read_rows(entry.paths, _hashes)
    entry = _without_filter_in_name(entry, found)
    results = read_results(entry)
    if results.path is None:
        found.notices.append(
            f"{entry.path}: no results file beside it, so task version, few-shot settings and chat "
            "template are not checked"
        )
    labels = filters_of(found, results.filters)
    if entry.filter is not None:
        labels = [entry.filter] * len(labels)
    store = RowStore(entry.paths, is_plain=found.is_plain)
    columns = columns_of(without_repeats(entry.path, found, labels, store))
    found.rows.clear()
    return _ReadFile(entry, results, columns, found)


def _without_filter_in_name(entry: SamplesFile, found: FileRows) -> SamplesFile:
    """The entry under the task's own name, where its name ends with the one filter of its rows."""
    names = {row.filter for row in found.rows}
    if not entry.task or len(names) > 1 or None in names:
        return entry
    (name,) = names
    task = entry.task.removesuffix(str(name)).rstrip("_,@.-")
    if task == entry.task or filter_in_name(entry, task) != name:
        return entry
    shorter = replace(entry, task=task)
    return shorter if knows_task(shorter) else entry


def _run_of(read: _ReadFile, book: HashBook, used: frozenset[str] | None) -> LoggedRun:
    """A run of one file; its hashes go into the book."""
    entry, results, found = read.entry, read.results, read.found
    store = RowStore(entry.paths, is_plain=found.is_plain)
    table = AnswerTable(book.take(read.columns, store, used=used), book, [store])
    answered = len(set(table.columns.doc_ids.tolist())) + found.lost
    return LoggedRun(
        model=results.model,
        base_model=results.model,
        task=results.task,
        date=entry.date,
        task_version=results.task_version,
        n_shot=results.n_shot,
        few_shot=results.few_shot,
        chat_template=results.chat_template,
        chat_template_sha=results.chat_template_sha,
        system_instruction=results.system_instruction,
        generation_kwargs=found.generation_kwargs,
        higher_is_better=results.higher_is_better,
        limit=results.limit,
        n_original=results.n_original,
        n_effective=results.n_effective,
        answers=table,
        path=entry.path,
        results_path=results.path,
        sha256=found.sha256,
        model_args=results.model_args,
        facts=results.facts,
        totals=results.totals,
        partial=_why_partial(results, answered),
        notices=found.notices,
    )


def _why_partial(results: RunResults, answered: int) -> str | None:
    original, effective = results.n_original, results.n_effective
    if results.limit is not None:
        return f"was run with --limit {results.limit:g}"
    if original is not None and effective is not None and effective < original:
        return f"was run on {effective} of {original} documents"
    expected = effective if effective is not None else original
    if expected is not None and answered < expected:
        return f"holds answers to {answered} of {expected} documents"
    return None


def _without_copies(runs: list[LoggedRun]) -> list[LoggedRun]:
    """Each file once, though it may lie in two places."""
    kept: dict[tuple[str, str, str], list[LoggedRun]] = {}
    for run in runs:
        others = kept.setdefault((run.base_model, run.task, run.sha256), [])
        known = next((other for other in others if _no_setting_differs(run, other)), None)
        if known is None:
            others.append(run)
        else:
            known.notices.append(f"{run.path}: is a copy of {known.path} and was left out")
    return [run for others in kept.values() for run in others]


def _no_setting_differs(one: LoggedRun, other: LoggedRun) -> bool:
    pairs = ((one.task_version, other.task_version), (one.n_shot, other.n_shot))
    return all(first == second for first, second in pairs if None not in (first, second))


def _with_filters_joined(runs: list[LoggedRun]) -> list[LoggedRun]:
    """One run for the files of a run that was logged with a file for each filter."""
    groups: dict[tuple[str, str, str], list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault((run.base_model, run.task, run.date), []).append(run)
    kept = []
    for group in groups.values():
        names = [name for run in group for name in run.filters]
        if len(group) == 1 or None in names or len(set(names)) < len(names):
            kept += group
        else:
            kept.append(_joined_run(group))
    return kept


def _joined_run(group: Sequence[LoggedRun]) -> LoggedRun:
    columns, file_of = joined([run.answers.columns for run in group])
    stores = [store for run in group for store in run.answers.stores]
    digests = "".join(run.sha256 for run in group)
    return replace(
        group[0],
        answers=AnswerTable(columns, group[0].answers.book, stores, file_of),
        sha256=hashlib.sha256(digests.encode()).hexdigest(),
        partial=next((run.partial for run in group if run.partial), None),
        notices=[notice for run in group for notice in run.notices],
    )


def _newest(runs: list[LoggedRun]) -> list[LoggedRun]:
    """One run for each model, folder and setting: the newest that is complete.

    Runs whose version, few-shot or generation settings differ stay, because a choice between them
    is the user's; whoever compares them is told which differ.
    """
    groups: dict[str, list[LoggedRun]] = {}
    for run in runs:
        settings = (
            run.base_model, run.task, str(run.path.parent), run.task_version, run.n_shot,
            run.few_shot, run.generation_kwargs,
        )  # fmt: skip
        groups.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(run)
    kept = []
    for group in groups.values():
        group.sort(key=lambda run: (run.partial is None, run.date))
        newest, older = group[-1], group[:-1]
        if older and not all(run.date for run in group):
            kept += group  # without dates nothing tells which is the newest
            continue
        if older:
            left_out = ", ".join(run.path.name for run in older)
            newest.notices.append(
                f"{newest.path}: of {len(group)} runs of {newest.base_model} in this folder the "
                f"newest{' complete one' if newest.partial is None else ''} was taken; left out: "
                f"{left_out}"
            )
        kept.append(newest)
    return kept


def _told_apart(runs: list[LoggedRun]) -> list[LoggedRun]:
    """A name for each run: the model's, with what tells its runs apart where it has several."""
    groups: dict[tuple[str, str], list[LoggedRun]] = {}
    for run in runs:
        groups.setdefault((run.task, run.base_model), []).append(run)
    return [named for group in groups.values() for named in _named(group)]


def _named(group: list[LoggedRun]) -> list[LoggedRun]:
    if len(group) == 1:
        return group
    folders = [tuple(reversed(run.path.resolve().parent.parts)) for run in group]
    choices: list[list[str]] = [
        [parts[level] if level < len(parts) else "" for parts in folders]
        for level in range(max(map(len, folders)))
    ]
    choices.append([run.date for run in group])
    choices.append([str(run.path) for run in group])
    marks = next(marks for marks in choices if len(set(marks)) == len(marks))
    return [
        replace(run, model=f"{run.base_model}@{mark}")
        for run, mark in zip(group, marks, strict=True)
    ]
