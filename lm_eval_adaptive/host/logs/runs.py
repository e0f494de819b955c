"""Logged runs: a samples file paired with its results, each run with a name of its own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs.files import SamplesFile, as_list, bytes_of, find_files, is_of_task
from lm_eval_adaptive.host.logs.records import LoggedRun, is_named
from lm_eval_adaptive.host.logs.results import RunResults, read_results
from lm_eval_adaptive.host.logs.samples import Seen, answers_of, filters_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def find_runs(spec: str | Path | Sequence[str | Path], task: str | None = None) -> list[LoggedRun]:
    """All logged runs of a task.

    Args:
        spec: A samples file, a directory (searched with its subdirectories), a glob, or several.
        task: The task's name, or None for every task that is found.

    Returns:
        Sorted by name. Runs of one model are told apart by the directory that differs, else by
        date: ``model@directory``. Incomplete runs are included and say so in ``partial``.

    Raises:
        DataError: Nothing is found, or a file is damaged, empty or contradicts itself.
    """
    found = find_files(spec)
    picked = found
    if task is not None:
        picked = [replace(entry, task=task) for entry in found if is_of_task(entry, task)]
    if not picked:
        where = ", ".join(map(str, as_list(spec)))
        others = sorted({entry.task for entry in found if entry.task})
        hint = f"; they hold {', '.join(others)}" if others else ""
        name = f" of task {task}" if task else ""
        raise DataError(
            f"{where}: no samples{name} found, expected samples_<task>_<date>.jsonl as lm_eval "
            f"--log_samples writes it{hint}"
        )
    seen = Seen()
    runs = [_read_run(entry, seen) for entry in picked]
    return sorted(_told_apart(_without_copies(runs)), key=lambda run: (run.model, run.task))


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


def _read_run(entry: SamplesFile, seen: Seen) -> LoggedRun:
    """Read one samples file and the results beside it."""
    path, notices = entry.path, list[str]()
    data = bytes_of(path, notices)
    rows, truncated = rows_of(path, data, notices)
    if not rows:
        raise DataError(f"{path}: holds no samples; run lm_eval again with --log_samples")
    results = read_results(entry)
    if results.path is None:
        notices.append(
            f"{path}: no results file beside it, so task version, few-shot settings and chat "
            "template are not checked"
        )
    answers = answers_of(path, rows, filters_of(rows, results.filters), seen, notices)
    answered = len({answer.doc_id for answer in answers}) + truncated
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
        generation_kwargs=answers[0].requests[0].generation_kwargs if answers[0].requests else {},
        higher_is_better=results.higher_is_better,
        limit=results.limit,
        n_original=results.n_original,
        n_effective=results.n_effective,
        answers=answers,
        path=path,
        results_path=results.path,
        sha256=hashlib.sha256(data).hexdigest(),
        model_args=results.model_args,
        facts=results.facts,
        totals=results.totals,
        partial=_why_partial(results, answered),
        notices=notices,
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
    kept: dict[tuple[str, str, str], LoggedRun] = {}
    for run in runs:
        known = kept.setdefault((run.base_model, run.task, run.sha256), run)
        if known is not run:
            known.notices.append(f"{run.path}: is a copy of {known.path} and was left out")
    return list(kept.values())


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
