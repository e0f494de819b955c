"""The lines of a journal: what is written of a run while it goes on, each with its type.

This module owns the meaning of ``journal.jsonl``, its schema, and the one way to write a line and
to read a file; it imports msgspec for the types and nothing of this package but errors. A line says
its kind under ``type``:

``run``       first line: schema, configuration, command line (:class:`Header`).
``round``     what is about to be asked, decided before anything of it is sent.
``response``  what a served model said to a document, the moment it came and before it is scored.
``answer``    a model's answer to a document, with all its metric values, and its score or what is
              wrong with it; with no responses, that the model gave none.
``failed``    a model that was set aside, with the reason.
``resumed``   the run went on from here after an interruption.
``end``       a task is finished, with the stop reason.

Settings, the command line and what was said of a failure are kept without secrets: the records see
to it when they are made, whoever makes them. Answers are kept as they came.

A reader refuses a line of another kind, and one that lacks a field or holds another type in it.
"""

from __future__ import annotations

import contextlib
import gc
import json
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  dataclasses are looked at while the program runs
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.records.files import as_json, finite
from lm_eval_adaptive.redact import hide, redact, redact_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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

    def __post_init__(self) -> None:
        """Keep the settings without secrets."""
        force_setattr(self, "models", {name: redact(each) for name, each in self.models.items()})
        force_setattr(self, "settings", redact(self.settings))


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

    def __post_init__(self) -> None:
        """Keep the command line without secrets; where they come from again is kept."""
        force_setattr(self, "command", tuple(redact_words(self.command)))


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


class TakenRecord(Record, frozen=True, tag="taken", kw_only=True):
    """That a round was taken in; of runs whose models do not wait for each other.

    Attributes:
        task: The task.
        round: The round's number; rounds count in the order of these lines.
    """

    task: str
    round: int


class ScoreRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer is worth under a metric.

    Attributes:
        raw_score: In the metric's units; None where the answer has none and is missing.
        score: In [0, 1]; None likewise.
        clipped: Whether the raw score lay outside the metric's range.
        problem: What failed, "" where nothing did; with a score beside it, the user said what a
            failure counts as.
    """

    raw_score: float | None
    score: float | None
    clipped: bool
    problem: str

    def __post_init__(self) -> None:
        """Keep what failed without secrets."""
        force_setattr(self, "problem", hide(self.problem) if self.problem else "")


class AnswerRecord(Record, frozen=True, tag="answer", kw_only=True, omit_defaults=True):
    """A model's answer to a document, and what it is worth under the first metric.

    Attributes:
        task: The task.
        round: The round it was asked in.
        model: The model.
        doc_id: The document's true id.
        prompt_hash: The harness's hash of the prompt.
        resps: The responses, one per repeat; none where the model gave none.
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

    def __post_init__(self) -> None:
        """Keep what failed without secrets."""
        force_setattr(self, "problem", hide(self.problem) if self.problem else "")

    @property
    def first(self) -> ScoreRecord:
        """What the answer is worth under the first metric."""
        return ScoreRecord(
            raw_score=self.raw_score, score=self.score, clipped=self.clipped, problem=self.problem
        )

    @property
    def answered(self) -> bool:
        """Whether the model said anything; else the document was refused."""
        return bool(self.resps)


class ResponseRecord(Record, frozen=True, tag="response", kw_only=True):
    """What a served model said to a document; its score follows in an ``answer``.

    Attributes:
        task: The task.
        model: The model.
        doc_id: The document's true id.
        resps: The responses, one per repeat.
    """

    task: str
    model: str
    doc_id: int
    resps: tuple[str, ...]


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

    def __post_init__(self) -> None:
        """Keep the reason without secrets: it quotes what a server said."""
        force_setattr(self, "reason", hide(self.reason))


class ResumedRecord(Record, frozen=True, tag="resumed", kw_only=True):
    """The run went on from here.

    Attributes:
        answers: How many answers were there already.
    """

    answers: int


class EndRecord(Record, frozen=True, tag="end", kw_only=True, omit_defaults=True):
    """A task is finished.

    Attributes:
        task: The task.
        stop_reason: Why nothing more is asked.
        notices: What the task's metrics had to say of what they scored.
    """

    task: str
    stop_reason: str
    notices: tuple[str, ...] = ()


_Line = (
    Header
    | RoundRecord
    | TakenRecord
    | ResponseRecord
    | AnswerRecord
    | FailedRecord
    | ResumedRecord
    | EndRecord
)
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Line)


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
        """The answers of a task, in their order.

        A document that a model gave no answer to may be asked again when the run is resumed: then
        what came later stands for it.
        """
        all_of_task = [
            each for each in self.records if isinstance(each, AnswerRecord) and each.task == task
        ]
        last = {(each.model, each.doc_id): each for each in all_of_task}
        return [
            each for each in all_of_task if each.answered or last[each.model, each.doc_id] is each
        ]

    def open_failures(self, task: str) -> set[tuple[str, int]]:
        """Documents without an answer that models were set aside for: they may answer yet."""
        found: set[tuple[str, int]] = set()
        row: dict[str, list[int]] = {}  # documents without an answer since a model's last one
        for each in self.records:
            if isinstance(each, AnswerRecord) and each.task == task:
                found.discard((each.model, each.doc_id))
                mine = row.setdefault(each.model, [])
                mine[:] = [] if each.answered else [*mine, each.doc_id]
            elif isinstance(each, FailedRecord) and each.task == task:
                found |= {(each.model, doc_id) for doc_id in row.pop(each.model, [])}
        return found

    def responses(self, task: str) -> dict[tuple[str, int], ResponseRecord]:
        """What models said, by model and document; most of it was scored since."""
        return {
            (each.model, each.doc_id): each
            for each in self.records
            if isinstance(each, ResponseRecord) and each.task == task
        }

    def closing_notices(self, task: str) -> tuple[str, ...]:
        """What a finished task's metrics had to say."""
        ends = [each for each in self.records if isinstance(each, EndRecord) and each.task == task]
        return tuple(dict.fromkeys(notice for each in ends for notice in each.notices))

    def failures(self, task: str) -> list[FailedRecord]:
        """The models that were set aside on a task, in their order."""
        return [
            each for each in self.records if isinstance(each, FailedRecord) and each.task == task
        ]

    def taken(self, task: str) -> tuple[int, ...]:
        """Rounds in the order in which they were taken in; none where that is their number's.

        One that was taken in again, since its model was mended, stands where it was the last time.
        """
        found = [
            each.round
            for each in self.records
            if isinstance(each, TakenRecord) and each.task == task
        ]
        return tuple(reversed(dict.fromkeys(reversed(found))))

    def stop_reasons(self) -> dict[str, str]:
        """Why the tasks that are finished stopped, by task."""
        return {each.task: each.stop_reason for each in self.records if isinstance(each, EndRecord)}


def left_out(answers: Sequence[AnswerRecord], scores: Sequence[ScoreRecord]) -> dict[int, str]:
    """Documents that no model asked has a score of, of two or more: why, by id.

    What fails for one model alone is that model's missing answer.

    Args:
        answers: Answers, in their order.
        scores: What each is worth.
    """
    problems: dict[int, dict[str, str]] = {}
    scored: set[int] = set()
    for answer, score in zip(answers, scores, strict=True):
        if score.score is None:
            problems.setdefault(answer.doc_id, {})[answer.model] = score.problem
        else:
            scored.add(answer.doc_id)
    found = {}
    for doc_id, by_model in problems.items():
        if doc_id not in scored and len(by_model) > 1:
            model, problem = next(iter(by_model.items()))
            found[doc_id] = f"{model}: {problem}"
    return found


def as_data(record: msgspec.Struct) -> dict[str, Any]:
    """A record as plain data, in the order of its fields."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found


def written(record: Record) -> str:
    """A record as a line, without its end; ``surrogatepass`` makes bytes of any."""
    return as_json(finite(as_data(record)))


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
    records: list[Record] = []
    notices: tuple[str, ...] = ()
    with _uncollected(), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                cut = (
                    f"dropped a half-written last line of {path.name} (line {number}); its "
                    "document will be asked again"
                )
                notices = (cut,)
                break
            if number == 1:
                _check_schema(path, _parsed(path, number, line))
            records.append(_record(path, number, line))
    header = records[0] if records else None
    if not isinstance(header, Header):
        _check_schema(path, None)
        raise DataError(f"{path} does not start with a run's configuration")
    return JournalFile(path, header, tuple(records[1:]), notices)


def read_header(path: Path) -> Header:
    """A journal's first line alone.

    Raises:
        DataError: There is no journal, it is of another schema or damaged.
    """
    if not path.is_file():
        raise DataError(
            f"no {NAME} in {path.parent}; --resume takes the --output_path of an adaptive run"
        )
    with path.open("rb") as file:
        line = file.readline()
    _check_schema(path, _parsed(path, 1, line) if line.endswith(b"\n") else None)
    header = _record(path, 1, line)
    assert isinstance(header, Header)  # the check of the schema tells
    return header


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Let nothing be looked for that could be freed: of a million new records nothing could."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, number, error) from error


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        return _DECODER.decode(line)  # type: ignore[no-any-return]  # a union, to mypy
    except msgspec.DecodeError:
        pass  # not a number, half a character: what Python's reader takes, and msgspec's does not
    try:
        return msgspec.convert(_parsed(path, number, line), _Line)  # type: ignore[no-any-return]  # a union, to mypy
    except msgspec.ValidationError as error:
        raise _damaged(path, number, error) from error


def _damaged(path: Path, number: int, error: Exception) -> DataError:
    return DataError(
        f"{path} line {number} is damaged ({error}); restore the file from a copy, or start anew "
        "with another --output_path"
    )


def _check_schema(path: Path, first: Any) -> None:
    if not isinstance(first, dict) or first.get("type") != "run":
        raise DataError(
            f"{path} does not start with a run's configuration; it is no journal of an adaptive run"
        )
    if first.get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {first.get('schema')}, this version reads schema {SCHEMA}; use the "
            "version that wrote it"
        )
