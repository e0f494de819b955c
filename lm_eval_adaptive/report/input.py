"""What is known of a run, gathered from its folder for the report.

This module owns finding the files that belong together: ranking, journal, samples, bank. It reads
only, asks no model and loads no task; how far a run is that has no ranking yet it is told.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.banks.of_run import bank_of_run
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.settings import folder_name
from lm_eval_adaptive.records.ranking import (
    BankStamp,
    Excluded,
    RankingDocument,
    Recipe,
    SetAside,
    read_ranking,
)
from lm_eval_adaptive.records.standing import Standing
from lm_eval_adaptive.run.journal import NAME, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank

    # From a run's folder and journal: how far each task is that has no ranking file.
    Standings = Callable[[Path, Sequence[Mapping[str, Any]]], Mapping[str, Standing]]
    Samples = Mapping[str, Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class TaskView:
    """All that the report shows of one task.

    Attributes:
        ranking: A ranking document; its ``ranking`` list is empty where only
            the journal is known.
        bank: The bank, None where it was not found.
        answers: The journal's ``answer`` records.
        samples: The harness's logged samples, by model and document id.
        command: The command line that repeats the run, "" where it is not known.
        unfinished: Whether the run is going on or was interrupted.
        notes: What the reader of this page has to know about the page.
    """

    ranking: RankingDocument
    bank: ItemBank | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    samples: Samples = field(default_factory=dict)
    command: str = ""
    unfinished: bool = False
    notes: tuple[str, ...] = ()


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
    records = _read_records(folder / NAME)
    views = []
    if records:
        standing = standings(folder, records)
        ended = {record["task"] for record in records if record["type"] == "end"}
        for task in records[0]["config"]["tasks"]:
            path = newest.pop(task, folder)
            if task in ended and path != folder:
                views.append(_finished_view(path))
            else:
                views.append(_unfinished_view(records, task, standing.get(task, Standing())))
    return views + [_finished_view(path) for _, path in sorted(newest.items())]


def _read_records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal, [] where there is none; the file is never changed.

    ``journal.read_journal`` cuts a half-written last line off the file, which must not happen to a
    run that is still writing it.
    """
    if not path.is_file():
        return []
    records = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # the last one has no newline yet
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is damaged ({error}); restore the file from a copy"
            ) from error
    if not records or records[0].get("type") != "run" or records[0].get("schema") != SCHEMA:
        raise DataError(
            f"{path} does not start with a run's configuration of schema {SCHEMA}; it is no "
            "journal of this version"
        )
    return records


def _finished_view(path: Path) -> TaskView:
    ranking = read_ranking(path)
    records = _journal_of(path.parent, ranking)
    words = list(records[0].get("command") or []) if records else []
    bank, notes = bank_of_run(ranking.bank.sha256, ranking.bank.response_model, path.parent, words)
    if not records:
        notes.append("The run's journal was not found beside the ranking.")
    answers = [
        record
        for record in records
        if record["type"] == "answer" and record["task"] == ranking.task
    ]
    names = ranking.names
    samples = _read_samples(path.parent, ranking, names)
    return TaskView(ranking, bank, answers, samples, _command(words), False, tuple(notes))


def _journal_of(folder: Path, ranking: RankingDocument) -> list[dict[str, Any]]:
    """The journal, among those kept in the folder, that holds the answers of a ranking."""
    wanted = {(step.model, step.doc_id, step.raw_score) for step in ranking.trace}
    for path in (folder / NAME, *sorted(folder.glob("journal_*.jsonl"))):
        records = _read_records(path)
        held = {
            (record["model"], record["doc_id"], record["raw_score"])
            for record in records
            if record["type"] == "answer" and record["task"] == ranking.task
        }
        if records and wanted <= held:
            return records
    return []


_SECRET = re.compile(r"(?i)\b((?:\w+_)?(?:key|token|secret|password|authorization))(=|: ?)[^,\s]+")


def _command(words: Sequence[str]) -> str:
    """The command line without secrets: a report is made to be passed on."""
    words = [_SECRET.sub(r"\1\2***", word) for word in words]
    return f"lm-eval-adaptive {shlex.join(words)}" if words else ""


def without_secrets(value: Any) -> Any:
    """Options as they may be shown."""
    if isinstance(value, dict):
        return {
            key: "***" if each and _SECRET.match(f"{key}=x") else without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return _SECRET.sub(r"\1\2***", value) if isinstance(value, str) else value


def _read_samples(
    folder: Path, ranking: RankingDocument, names: Sequence[str]
) -> dict[str, dict[int, dict[str, Any]]]:
    """The samples logged with a ranking, by model and document id."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    prefix, date = f"samples_{ranking.task}_", ranking.date or "9"
    for name in names:
        files = sorted((folder / folder_name(name)).glob(f"{prefix}[0-9]*.jsonl"))
        files = [path for path in files if path.stem[len(prefix) :] <= date]
        if not files:
            continue
        mine = found.setdefault(name, {})
        with files[-1].open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    sample = json.loads(line)
                except ValueError:  # a file that was cut off: what is whole is shown
                    break
                if sample.get("filter", ranking.filter) == ranking.filter:
                    mine[int(sample["doc_id"])] = sample
    return found


def _unfinished_view(
    records: Sequence[Mapping[str, Any]], task: str, standing: Standing
) -> TaskView:
    """A task that has no ranking file: its standing where there is one, else its journal alone."""
    header = records[0]["config"]
    mine = [record for record in records[1:] if record.get("task") == task]
    answers = [record for record in mine if record["type"] == "answer"]
    command = _command(list(records[0].get("command") or []))
    ranking = standing.ranking or _journal_document(header, mine, task)
    return TaskView(ranking, standing.bank, answers, {}, command, True, standing.notes)


def _journal_document(
    header: Mapping[str, Any], records: Sequence[Mapping[str, Any]], task: str
) -> RankingDocument:
    """A ranking document without estimates: what the journal alone tells."""
    recipe = header["tasks"][task]["signature"]
    parts = dict(part.partition(":")[::2] for part in recipe.split("|"))
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(record["type"], []).append(record)
    models = sorted(header["models"].items())
    answers = kinds.get("answer", [])
    items_full = len(models) * int(header["tasks"][task]["documents"])
    per_item = {name: spec.get("cost", 1.0) for name, spec in models}
    # Prices by the token say what an answer cost, not what a full run would.
    fixed = all(isinstance(price, int | float) for price in per_item.values())
    full = sum(per_item.values()) if fixed else float("nan")
    return RankingDocument(
        task=task,
        metric=parts.get("metric", ""),
        filter=parts.get("filter", ""),
        higher_is_better=None,
        bank=BankStamp(sha256=header["tasks"][task]["bank_sha256"]),
        config=Recipe(adaptive=header["adaptive"], models=tuple(spec for _, spec in models)),
        signature=recipe,
        versions=header.get("versions", {}),
        ranking=(),
        pairs=(),
        stop_reason="".join(record["stop_reason"] for record in kinds.get("end", [])[-1:]),
        items_total=len(answers),
        items_full=items_full,
        fraction=len(answers) / items_full if items_full else 0.0,
        cost_total=sum(float(record["cost"]) for record in answers),
        cost_full=full * int(header["tasks"][task]["documents"]),
        excluded=tuple(
            Excluded(doc_id=record["doc_id"], reason=f"{record['model']}: {record['problem']}")
            for record in answers
            if record["problem"]
        ),
        set_aside=tuple(
            SetAside(
                model=record["model"],
                reason=record["reason"],
                items=sum(each["model"] == record["model"] for each in answers),
            )
            for record in kinds.get("failed", [])
        ),
    )


def direction_of(ranking: RankingDocument) -> str:
    """The metric's direction in words, "" where it is unknown."""
    better = ranking.higher_is_better
    return "" if better is None else "higher is better" if better else "lower is better"


def valid_answers(view: TaskView) -> dict[str, list[Mapping[str, Any]]]:
    """Answers that count, by model in ranking order."""
    excluded = {each.doc_id for each in view.ranking.excluded}
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in view.ranking.names}
    for record in view.answers:
        counts = record["score"] is not None and record["doc_id"] not in excluded
        if counts and record["model"] in found:
            found[record["model"]].append(record)
    return found
