"""The rows of a samples file, in every format that ``lm_eval`` has written since 0.4.0.

* 0.4.7 and later: a row a line, each with its ``filter`` and ``metrics``.
* 0.4.3 to 0.4.6: rows without both, so that several filters repeat a ``doc_id`` unlabelled, one
  block of documents per filter.
* 0.4.0 to 0.4.2: one JSON list, arguments as lists, no hashes.
* Details of the hub's Open LLM Leaderboard: as 0.4.3, also as Parquet.

A row's texts are read, measured and let go, so that memory holds some fifty bytes for an answer;
:class:`~lm_eval_adaptive.host.logs.answers.AnswerTable` reads a row again when asked for it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from lm_eval_adaptive.core.identity import content_hash_of_json
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs.foreign import kind_of
from lm_eval_adaptive.host.logs.reading import RowReader, RowStore
from lm_eval_adaptive.host.logs.records import LoggedAnswer, LoggedRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_NOT_METRICS = frozenset(
    [
        "doc_id",
        "doc",
        "target",
        "arguments",
        "resps",
        "filtered_resps",
        "filter",
        "metrics",
        "doc_hash",
        "prompt_hash",
        "target_hash",
    ]
)
_raw_row = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()


@dataclass(frozen=True)
class Row:
    """What one row tells, without its texts.

    Attributes:
        place: Where it begins, see :class:`RowReader`.
        doc_id: Position of the document in the task.
        content: Content hash of the document, "" where the row has none.
        doc_hash: The harness's own hash, "" where the log has none.
        prompt_hash: SHA-256 of the first prompt, "" where the row has no prompt.
        filter: As logged, None where the row names none.
        n_requests: How many questions were put to the model.
        prompt_chars: Length of the first prompt.
        reply_chars: Length of its answers, the median over repeats.
        metrics: Raw values.
    """

    place: int
    doc_id: int
    content: str
    doc_hash: str
    prompt_hash: str
    filter: str | None
    n_requests: int
    prompt_chars: int
    reply_chars: float
    metrics: Mapping[str, object]


@dataclass
class FileRows:
    """The rows of a file, and what was seen while they were read.

    Attributes:
        rows: In the order of the file.
        labelled: Whether the rows name their filters.
        lost: Rows that were cut off at the end.
        generation_kwargs: Settings of the first row's first request.
        sha256: Hash of the unpacked bytes.
        is_plain: Whether rows can be read again from the file itself.
        notices: What was left out, a line each.
    """

    rows: list[Row]
    labelled: bool = False
    lost: int = 0
    generation_kwargs: Mapping[str, object] = field(default_factory=dict)
    sha256: str = ""
    is_plain: bool = True
    notices: list[str] = field(default_factory=list)


class Hashes:
    """Content hashes of documents that were met before, by the digest of their text."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def forget(self) -> None:
        """Let all of them go."""
        self._known.clear()

    def of(self, text: bytes | memoryview) -> str | None:
        """Content hash of a document given as JSON, None where it is no object."""
        digest = hashlib.blake2b(text, digest_size=16).digest()
        known = self._known.get(digest)
        if known is None:
            doc = _document(bytes(text))
            if doc is None:
                return None
            known = self._known[digest] = content_hash_of_json(doc)
        return known


def read_rows(paths: Sequence[Path], hashes: Hashes) -> FileRows:
    """The rows of a samples file.

    Args:
        paths: The file, or the files of one split.
        hashes: Documents met before, taken along from file to file.

    Raises:
        DataError: The file holds no samples, is another program's, or is damaged before its end.
    """
    path, reader = paths[0], RowReader(paths)
    found = FileRows([])
    broken: tuple[int, str] | None = None
    for number, place, text in reader:
        if broken is not None:
            raise DataError(
                f"{path}, line {broken[0]}: is no JSON ({broken[1]}); restore the file or delete "
                "the line"
            )
        try:
            parts = _parts(text)
        except (ValueError, RecursionError) as error:
            if number == 1:
                _refuse_foreign(path)
            broken = (number, str(error))
            continue
        row = _row(path, number, place, parts, hashes)
        found.labelled |= "filter" in parts
        if not found.rows:
            found.generation_kwargs = _settings(parts)
        found.rows.append(row)
    found.notices += reader.notices
    if broken is not None:
        found.lost = 1
        found.notices.append(f"{path}: its last line ({broken[0]}) is cut off and was left out")
    if not found.rows:
        _refuse_foreign(path)
        raise DataError(f"{path}: holds no samples; run lm_eval again with --log_samples")
    found.sha256 = reader.digest.hexdigest()
    found.is_plain = reader.is_plain
    found.notices += _what_is_missing(path, found.rows)
    return found


def _refuse_foreign(path: Path) -> None:
    if kind := kind_of(path):
        raise DataError(f"{path}: expected samples of lm_eval (--log_samples), and this is {kind}")


def _what_is_missing(path: Path, rows: Sequence[Row]) -> list[str]:
    """Notices where rows lack what they are usually compared by."""
    notices = []
    if bare := sum(not row.content for row in rows):
        notices.append(
            f"{path}: {bare} of {len(rows)} rows have no doc; documents are told by doc_id alone, "
            "and edits of them are not seen"
        )
    if bare := sum(not row.prompt_hash for row in rows):
        notices.append(
            f"{path}: {bare} of {len(rows)} rows have no prompt; prompts are not compared there"
        )
    return notices


def _parts(text: bytes) -> dict[str, Any]:
    """A row's fields, each as the JSON text it was written in.

    Raises:
        ValueError: The text is no JSON.
    """
    try:
        return _raw_row.decode(text)
    except msgspec.ValidationError:
        return {"": text}  # JSON, and no object
    except msgspec.DecodeError:
        # NaN and lone surrogates are Python's own dialect of JSON.
        value = json.loads(text)
    if not isinstance(value, dict):
        return {"": text}
    return {key: json.dumps(part).encode() for key, part in value.items()}


def _value(part: Any) -> Any:
    """What a field's JSON text says; None where the field is missing."""
    if part is None:
        return None
    try:
        return _any.decode(part)
    except msgspec.DecodeError:
        return json.loads(bytes(part))


def _document(text: bytes) -> dict[str, Any] | None:
    """A document; some tables keep it as a string of JSON."""
    doc = json.loads(text)
    if isinstance(doc, str):
        try:
            doc = json.loads(doc)
        except ValueError:
            return None
    return doc if isinstance(doc, dict) else None


def _number(doc_id: Any) -> Any:
    """A document's number where a program that wrote the logs anew made a text of it."""
    is_text = isinstance(doc_id, str) and doc_id.isascii() and doc_id.isdigit()
    return int(doc_id) if is_text else doc_id


def _row(path: Path, number: int, place: int, parts: dict[str, Any], hashes: Hashes) -> Row:
    doc_id, doc = _number(_value(parts.get("doc_id"))), parts.get("doc")
    content = ""
    if doc is not None and bytes(doc) != b"null":
        content = hashes.of(doc) or ""
    if "" in parts or (not content and (doc_id is None or doc is not None)):
        if number == 1:
            _refuse_foreign(path)
        held = bytes(parts[""]) if "" in parts else json.dumps(sorted(parts)).encode()
        raise DataError(
            f"{path}, row {number}: expected a logged sample with a doc or at least a doc_id, got "
            f"{held[:60].decode('utf-8', 'replace')}; give the samples_….jsonl that --log_samples "
            "wrote"
        )
    if not isinstance(doc_id, int) or isinstance(doc_id, bool):
        raise DataError(f"{path}, row {number}: doc_id is {doc_id!r}, expected a whole number")
    arguments = _value(parts.get("arguments"))
    prompts, resps = _texts_of(arguments, _value(parts.get("resps")))
    prompt_hash = _value(parts.get("prompt_hash"))
    if not prompt_hash:
        prompt_hash = sha_of(prompts[0]) if arguments else ""
    names = _value(parts.get("metrics"))
    if not isinstance(names, list):
        names = [name for name in parts if name not in _NOT_METRICS]
    metrics = {name: _value(parts[name]) for name in names if name in parts}
    return Row(
        place=place,
        doc_id=doc_id,
        content=content,
        doc_hash=_value(parts.get("doc_hash")) or "",
        prompt_hash=prompt_hash,
        filter=_value(parts.get("filter")),
        n_requests=len(prompts),
        prompt_chars=len(prompts[0]) if prompts else 0,
        reply_chars=_median_length(resps),
        metrics=metrics,
    )


def _texts_of(arguments: Any, resps: Any) -> tuple[list[str], Sequence[str]]:
    """The prompts of a row, and the answers to the first one."""
    match arguments, resps:  # the usual form, which is most of a large file, without detours
        case {"gen_args_0": {"arg_0": str(prompt)}}, [[str(resp)]] if len(arguments) == 1:
            return [prompt], [resp]
    requests = _requests(arguments, resps)
    return [each.prompt for each in requests], requests[0].resps if requests else ()


def _median_length(texts: Sequence[str]) -> float:
    if len(texts) == 1:
        return float(len(texts[0]))
    return float(median(map(len, texts))) if texts else 0.0


def sha_of(prompt: str) -> str:
    """The harness's hash of a prompt."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _settings(parts: Mapping[str, Any]) -> Mapping[str, object]:
    requests = _requests(_value(parts.get("arguments")), _value(parts.get("resps")))
    return requests[0].generation_kwargs if requests else {}


def filters_of(found: FileRows, names: Sequence[str]) -> list[str | None]:
    """The filter of each row; formats before 0.4.7 tell it by the order of the rows alone.

    Args:
        found: The rows of a file.
        names: The task's filters in their order, where the results tell them.
    """
    if found.labelled:
        return [row.filter for row in found.rows]
    occurrence: Counter[int] = Counter()
    places = []
    for row in found.rows:
        places.append(occurrence[row.doc_id])
        occurrence[row.doc_id] += 1
    # Rows come in one block of documents per filter, within each rank of a parallel run.
    if len(names) > 1 and max(occurrence.values()) == len(names):
        return [names[place] for place in places]
    return [names[0] if len(names) == 1 else None] * len(found.rows)


def without_repeats(
    path: Path, found: FileRows, labels: Sequence[str | None], store: RowStore
) -> list[tuple[Row, str | None]]:
    """The rows with their filters, each answer once, sorted by document and filter.

    Args:
        path: The file, for messages.
        found: Its rows; its notices take a line where rows repeat.
        labels: The filter of each row.
        store: Reads rows again, to compare those that share a document and a filter.

    Raises:
        DataError: A document stands twice with different answers.
    """
    kept: dict[tuple[int, str | None], Row] = {}
    order = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    copies = 0
    for row, label in zip(found.rows, labels, strict=True):
        known = kept.setdefault((row.doc_id, label), row)
        if known is row:
            continue
        if _same(store.row(known.place), store.row(row.place)):
            copies += 1
            continue
        under = "" if label is None else f" under filter {label}"
        raise DataError(
            f"{path}: document {row.doc_id} stands twice{under} with different answers; keep "
            "one (in logs before 0.4.7, several filters are told apart only with the results file "
            "beside the samples)"
        )
    if copies:
        found.notices.append(f"{path}: {copies} rows repeat others word for word, left out")
    places = sorted(kept, key=lambda key: (key[0], order[key[1]]))
    return [(kept[key], key[1]) for key in places]


def _same(one: bytes, other: bytes) -> bool:
    """Whether two rows are one answer, as text, because a metric may be NaN (equal to nothing)."""
    first, second = (answer_of(text, None) for text in (one, other))
    return (
        first.content_hash,
        repr(first.requests),
        repr(first.filtered),
        repr(first.metrics),
    ) == (
        second.content_hash,
        repr(second.requests),
        repr(second.filtered),
        repr(second.metrics),
    )


def answer_of(text: bytes, label: str | None) -> LoggedAnswer:
    """A row in full, its texts included.

    Args:
        text: The row's JSON.
        label: Its filter.
    """
    row = json.loads(text)
    doc = _document(json.dumps(row.get("doc")).encode()) or {}
    requests = _requests(row.get("arguments"), row.get("resps"))
    names = row.get("metrics")
    if not isinstance(names, list):
        names = [name for name in row if name not in _NOT_METRICS]
    return LoggedAnswer(
        doc_id=_number(row["doc_id"]),
        doc=doc,
        content_hash=content_hash_of_json(doc) if doc else "",
        doc_hash=row.get("doc_hash") or "",
        prompt_hash=row.get("prompt_hash")
        or (sha_of(requests[0].prompt) if row.get("arguments") else ""),
        target=str(row.get("target", "")),
        requests=requests,
        filtered=row.get("filtered_resps"),
        filter=label,
        metrics={name: row[name] for name in names if name in row},
    )


def _requests(arguments: Any, resps: Any) -> tuple[LoggedRequest, ...]:
    """The questions of a row with their answers; without a prompt where only answers are logged.

    Answers come as a list for each request (one entry per repeat), as a plain list, or as one text.
    """
    if isinstance(arguments, dict):  # since 0.4.3: {"gen_args_0": {"arg_0": …, "arg_1": …}}
        arguments = [
            list(args.values()) if isinstance(args, dict) else args for args in arguments.values()
        ]
    elif isinstance(arguments, list) and len(arguments) == 2 and isinstance(arguments[1], dict):
        arguments = [arguments]  # one request that is not wrapped in a list
    given = [resps] if isinstance(resps, str) else list(resps or [])
    if not arguments:
        nested = any(isinstance(each, list) for each in given)
        arguments = [[] for _ in (given if nested else given[:1])]
    if len(arguments) == 1 and not any(isinstance(each, list) for each in given):
        given = [given]  # not nested: each entry is a repeat of the one request
    requests = []
    for place, args in enumerate(arguments):
        args = args if isinstance(args, list) else [args]  # noqa: PLW2901
        prompt = _text(args[0]) if args else ""
        settings = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
        said = given[place] if place < len(given) else []
        said = said if isinstance(said, list) else [said]
        requests.append(LoggedRequest(prompt, settings, tuple(_text(resp) for resp in said)))
    return tuple(requests)


def _text(value: Any) -> str:
    """A prompt or an answer as text; chat API models log a prompt as a list of one string."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return json.dumps(value, ensure_ascii=False)
