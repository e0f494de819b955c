"""What is known of a run, gathered from its folder for the report.

This module owns finding the files that belong together: ranking, journal, samples, bank. It reads
only, asks no model and loads no task; how far a run is that has no ranking yet it is told.
"""

from __future__ import annotations

import json
from glob import escape
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.banks.of_run import bank_of_run
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.records.files import file_part, folder_of
from lm_eval_adaptive.records.journal import NAME, left_out, read_journal
from lm_eval_adaptive.records.ranking import (
    BankStamp,
    Excluded,
    RankingDocument,
    Recipe,
    SetAside,
    read_ranking,
)
from lm_eval_adaptive.records.standing import Standing
from lm_eval_adaptive.report.texts import command_line
from lm_eval_adaptive.report.view import TaskView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lm_eval_adaptive.records.journal import JournalFile

    # From a run's folder and journal: how far each task is that has no ranking file.
    Standings = Callable[[Path, JournalFile], Mapping[str, Standing]]


def views_of(source: Path, standings: Standings) -> tuple[Path, list[TaskView]]:
    """What there is to show of a run.

    Args:
        source: The run's folder, one ranking file in it, or its journal.
        standings: How far the tasks are that have no ranking file.

    Returns:
        The run's folder, and a view per task.

    Raises:
        UsageError: There is no such file or folder, or no run in it.
        DataError: A ranking file or the journal cannot be read.
    """
    if source.name == NAME:
        source = source.parent
    if not source.exists():
        raise UsageError(
            f"report: no {source}; give the --output_path of an adaptive run, or one of its "
            "ranking_*.json files"
        )
    folder = source if source.is_dir() else source.parent
    views = _views_of_folder(folder, standings) if source.is_dir() else [_finished_view(source)]
    if not views:
        raise UsageError(
            f"report: {folder} holds neither ranking_*.json nor {NAME}; give the --output_path of "
            "an adaptive run"
        )
    return folder, views


def _views_of_folder(folder: Path, standings: Standings) -> list[TaskView]:
    """One view per task: from the current journal, and from rankings it does not know."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("ranking_*.json"), key=lambda each: each.stat().st_mtime_ns):
        newest[read_ranking(path).task] = path
    views = []
    if (folder / NAME).is_file():
        journal = read_journal(folder / NAME)
        standing = standings(folder, journal)
        ended = journal.stop_reasons()
        for task in journal.header.config.tasks:
            path = newest.pop(task, folder)
            if task in ended and path != folder:
                views.append(_finished_view(path))
            else:
                views.append(_unfinished_view(journal, task, standing.get(task, Standing())))
    return views + [_finished_view(path) for _, path in sorted(newest.items())]


def _finished_view(path: Path) -> TaskView:
    ranking = read_ranking(path)
    journal = _journal_of(path.parent, ranking)
    words = journal.header.command if journal else ()
    bank, notes = bank_of_run(ranking.bank.sha256, ranking.bank.response_model, path.parent, words)
    if journal is None:
        notes.append("The run's journal was not found beside the ranking.")
    answers = journal.answers(ranking.task) if journal else []
    samples = _read_samples(path.parent, ranking)
    return TaskView(ranking, bank, answers, samples, command_line(words), False, tuple(notes))


def _journal_of(folder: Path, ranking: RankingDocument) -> JournalFile | None:
    """The journal, among those kept in the folder, that holds the answers of a ranking."""
    wanted = {(step.model, step.doc_id, step.raw_score) for step in ranking.trace}
    for path in (folder / NAME, *sorted(folder.glob("journal_*.jsonl"))):
        if not path.is_file():
            continue
        journal = read_journal(path)
        answers = journal.answers(ranking.task)
        if wanted <= {(answer.model, answer.doc_id, answer.raw_score) for answer in answers}:
            return journal
    return None


def _read_samples(folder: Path, ranking: RankingDocument) -> dict[str, dict[int, dict[str, Any]]]:
    """The samples logged with a ranking, by model and document id."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    prefix, date = f"samples_{file_part(ranking.task)}_", ranking.date or "9"
    for name in ranking.names:
        own = folder / folder_of(name, ranking.config.names)
        files = sorted(own.glob(f"{escape(prefix)}[0-9]*.jsonl"))
        files = [path for path in files if path.stem[len(prefix) :] <= date]
        if not files:
            continue
        mine = found.setdefault(name, {})
        with files[-1].open("rb") as lines:
            for line in lines:
                try:
                    sample = json.loads(line)
                except ValueError:  # a file that was cut off: what is whole is shown
                    break
                if sample.get("filter", ranking.filter) == ranking.filter:
                    mine[int(sample["doc_id"])] = sample
    return found


def _unfinished_view(journal: JournalFile, task: str, standing: Standing) -> TaskView:
    """A task that has no ranking file: its standing where there is one, else its journal alone."""
    answers = journal.answers(task)
    command = command_line(journal.header.command)
    ranking = standing.ranking or _journal_document(journal, task)
    return TaskView(ranking, standing.bank, answers, {}, command, True, standing.notes)


def _journal_document(journal: JournalFile, task: str) -> RankingDocument:
    """A ranking document without estimates: what the journal alone tells."""
    head = journal.header.config
    about = head.tasks[task]
    parts = dict(part.partition(":")[::2] for part in about.signature.split("|"))
    specs = [spec for _, spec in sorted(head.models.items())]
    answers = journal.answers(task)
    items_full = len(specs) * about.documents
    prices = [spec.get("cost", 1.0) for spec in specs]
    # Prices by the token say what an answer cost, not what a full run would.
    fixed = all(isinstance(price, int | float) for price in prices)
    return RankingDocument(
        task=task,
        metric=parts.get("metric", ""),
        filter=parts.get("filter", ""),
        higher_is_better=None,
        bank=BankStamp(sha256=about.bank_sha256),
        config=Recipe(adaptive=head.adaptive, models=tuple(specs)),
        signature=about.signature,
        versions=head.versions,
        ranking=(),
        pairs=(),
        stop_reason=journal.stop_reasons().get(task, ""),
        items_total=len(answers),
        items_full=items_full,
        fraction=len(answers) / items_full if items_full else 0.0,
        cost_total=sum(answer.cost for answer in answers),
        cost_full=(sum(prices) if fixed else float("nan")) * about.documents,
        excluded=tuple(
            Excluded(doc_id=doc_id, reason=reason)
            for doc_id, reason in left_out(answers, [each.first for each in answers]).items()
        ),
        set_aside=tuple(
            SetAside(
                model=failure.model,
                reason=failure.reason,
                items=sum(answer.model == failure.model for answer in answers),
            )
            for failure in journal.failures(task)
        ),
    )
