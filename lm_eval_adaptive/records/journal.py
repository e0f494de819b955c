"""The lines of a journal: what is written of a run while it goes on, each with its type.

This module owns the meaning of ``journal.jsonl``, its schema, and the one way to write a line and
to read a file; it imports msgspec for the types and nothing of this package but errors. A line says
its kind under ``type``:

``run``       first line: schema, configuration, command line (:class:`Header`).
``round``     what is about to be asked, decided before anything of it is sent.
``answer``    a model's answer to a document, with all its metric values, its score, or the problem
              for which the document is left out for all models.
``failed``    a model that was set aside, with the reason.
``resumed``   the run went on from here after an interruption.
``end``       a task is finished, with the stop reason.

A reader refuses a line of another kind, and one that lacks a field or holds another type in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  dataclasses are looked at while the program runs
from typing import Any

import msgspec

from lm_eval_adaptive.errors import DataError

SCHEMA = 1
NAME = "journal.jsonl"
NO_BANK = "none"  # stands where a bank's hash does, of a run without one


class Record(msgspec.Struct, frozen=True, tag_field="type", kw_only=True):
    """A line of a journal."""


class FurtherHead(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal for a run to be resumed, of a metric after the first.

    Attributes:
        signature: The recipe of its ranking.
        bank_sha256: Hash of its bank, :data:`NO_BANK` where there is none.
    """

    signature: str
    bank_sha256: str


class TaskHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must be equal for a run to be resumed, of a task.

    Attributes:
        signature: The recipe of its ranking, by the first metric.
        bank_sha256: Hash of the bank, :data:`NO_BANK` where there is none.
        documents: How many documents the task has.
        further: The metrics after the first, by name.
    """

    signature: str
    bank_sha256: str
    documents: int
    further: dict[str, FurtherHead] = {}


class RunHead(msgspec.Struct, frozen=True, kw_only=True):
    """What must be equal for a run to be resumed.

    Options are kept as they were given: those of another version can be told apart, and shown, but
    mean nothing here.

    Attributes:
        tasks: By task.
        models: Options of the models, by name.
        adaptive: The adaptive options.
        settings: The harness's options that change what is asked.
        versions: Versions of the tools.
    """

    tasks: dict[str, TaskHead]
    models: dict[str, dict[str, Any]]
    adaptive: dict[str, Any]
    settings: dict[str, Any]
    versions: dict[str, str]


class Header(Record, frozen=True, tag="run", kw_only=True):
    """The first line.

    Attributes:
        schema: Version of the journal's format.
        config: What must be equal for the run to be resumed.
        command: The words of the command line, none where the run was started from Python.
    """

    schema: int = SCHEMA
    config: RunHead
    command: tuple[str, ...]


class AskRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Documents that a model is asked.

    Attributes:
        model: Its name.
        doc_ids: The documents, in the order of choice.
        draw_probabilities: With what probability each of them was drawn, given those before it; 1
            where nothing was left to chance. Design-based estimates rest on these. Journals of the
            first versions lack them.
    """

    model: str
    doc_ids: tuple[int, ...]
    draw_probabilities: tuple[float, ...] = ()


class RoundRecord(Record, frozen=True, tag="round", kw_only=True):
    """What is about to be asked, without what was answered before an interruption.

    Attributes:
        task: The task.
        round: Its number, from 1.
        asks: Documents by model.
    """

    task: str
    round: int
    asks: tuple[AskRecord, ...]


class ScoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is worth under a metric.

    Attributes:
        raw_score: In the metric's units; None where the document is to be left out.
        score: In [0, 1]; None likewise.
        clipped: Whether the raw score lay outside the metric's range.
        problem: Why the document is to be left out, "" where it is not.
    """

    raw_score: float | None
    score: float | None
    clipped: bool
    problem: str


class AnswerRecord(Record, frozen=True, tag="answer", kw_only=True, omit_defaults=True):
    """A model's answer to a document, and what it is worth under the first metric.

    Attributes:
        task: The task.
        round: The round it was asked in.
        model: The model.
        doc_id: The document's true id.
        prompt_hash: The harness's hash of the prompt.
        resps: The responses, one per repeat.
        filtered: What each filter made of them.
        metrics: The values of all metrics, by filter and name.
        raw_score: See :class:`ScoreRecord`.
        score: Likewise.
        clipped: Likewise.
        problem: Likewise.
        input_tokens: Tokens of the prompt, once per response.
        output_tokens: Tokens of all responses.
        tokens_counted: Whether a tokenizer counted them.
        cost: What the answer cost.
        scores: What it is worth under the metrics after the first, by name.
    """

    task: str
    round: int
    model: str
    doc_id: int
    prompt_hash: str
    resps: tuple[str, ...]
    filtered: dict[str, Any]
    metrics: dict[str, dict[str, Any]]
    raw_score: float | None
    score: float | None
    clipped: bool
    problem: str
    input_tokens: float
    output_tokens: float
    tokens_counted: bool
    cost: float
    scores: dict[str, ScoreRecord] = {}

    @property
    def first(self) -> ScoreRecord:
        """What the answer is worth under the first metric."""
        return ScoreRecord(
            raw_score=self.raw_score, score=self.score, clipped=self.clipped, problem=self.problem
        )


class FailedRecord(Record, frozen=True, tag="failed", kw_only=True):
    """A model that was set aside.

    Attributes:
        task: The task it was set aside on.
        model: The model.
        reason: Why.
    """

    task: str
    model: str
    reason: str


class ResumedRecord(Record, frozen=True, tag="resumed", kw_only=True):
    """The run went on from here.

    Attributes:
        answers: How many answers were there already.
    """

    answers: int


class EndRecord(Record, frozen=True, tag="end", kw_only=True):
    """A task is finished.

    Attributes:
        task: The task.
        stop_reason: Why nothing more is asked.
    """

    task: str
    stop_reason: str


_Line = Header | RoundRecord | AnswerRecord | FailedRecord | ResumedRecord | EndRecord


@dataclass(frozen=True)
class JournalFile:
    """What a journal holds.

    Attributes:
        path: The file.
        header: Its first line.
        records: The lines after it, in their order.
        notices: What its reader has to know, such as a last line that was cut off.
    """

    path: Path
    header: Header
    records: tuple[Record, ...] = ()
    notices: tuple[str, ...] = ()

    def answers(self, task: str) -> list[AnswerRecord]:
        """The answers of a task, in their order."""
        return [
            each for each in self.records if isinstance(each, AnswerRecord) and each.task == task
        ]

    def failures(self, task: str) -> list[FailedRecord]:
        """The models that were set aside on a task, in their order."""
        return [
            each for each in self.records if isinstance(each, FailedRecord) and each.task == task
        ]

    def stop_reasons(self) -> dict[str, str]:
        """Why the tasks that are finished stopped, by task."""
        return {each.task: each.stop_reason for each in self.records if isinstance(each, EndRecord)}


def as_data(record: msgspec.Struct) -> dict[str, Any]:
    """A record as plain data, in the order of its fields."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found


def written(record: Record) -> str:
    """A record as a line, without its end."""
    return json.dumps(as_data(record), ensure_ascii=False)


def read_journal(path: Path) -> JournalFile:
    """All whole lines of a journal; the file is not changed.

    A last line that was cut off in the middle is dropped with a notice: it may be being written.

    Raises:
        DataError: There is no journal, it is of another schema, or a line before the last is
            damaged.
    """
    if not path.is_file():
        raise DataError(
            f"no {NAME} in {path.parent}; --resume takes the --output_path of an adaptive run"
        )
    *whole, rest = path.read_bytes().split(b"\n")
    cut = (
        f"dropped a half-written last line of {path.name} (line {len(whole) + 1}); its document "
        "will be asked again"
    )
    lines = [_parsed(path, number, line) for number, line in enumerate(whole, start=1)]
    _check_schema(path, lines)
    header, *records = (_record(path, number, line) for number, line in enumerate(lines, start=1))
    if not isinstance(header, Header):  # cannot be: its type was looked at
        raise DataError(f"{path} does not start with a run's configuration")
    return JournalFile(path, header, tuple(records), (cut,) if rest else ())


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise _damaged(path, number, error) from error


def _record(path: Path, number: int, line: Any) -> Record:
    try:
        return msgspec.convert(line, _Line)  # type: ignore[no-any-return]  # a union, to mypy
    except msgspec.ValidationError as error:
        raise _damaged(path, number, error) from error


def _damaged(path: Path, number: int, error: Exception) -> DataError:
    return DataError(
        f"{path} line {number} is damaged ({error}); restore the file from a copy, or start anew "
        "with another --output_path"
    )


def _check_schema(path: Path, lines: list[Any]) -> None:
    first = lines[0] if lines else None
    if not isinstance(first, dict) or first.get("type") != "run":
        raise DataError(
            f"{path} does not start with a run's configuration; it is no journal of an adaptive run"
        )
    if first.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {first.get('schema')}, this version reads schema {SCHEMA}; use the "
            "version that wrote it"
        )
