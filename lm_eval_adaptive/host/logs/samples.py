"""The rows of a samples file, in every format that ``lm_eval`` has written since 0.4.0.

* 0.4.7 and later: a row a line, each with its ``filter`` and ``metrics``.
* 0.4.3 to 0.4.6: rows without both, so that several filters repeat a ``doc_id`` unlabelled, one
  block of documents per filter.
* 0.4.0 to 0.4.2: one JSON list, arguments as lists, no hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.core.identity import content_hash_of_json
from lm_eval_adaptive.errors import DataError
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


@dataclass(frozen=True)
class Seen:
    """Documents and prompts of all runs, so that equal ones are kept in memory once."""

    docs: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def rows_of(path: Path, data: bytes, notices: list[str]) -> tuple[list[dict[str, Any]], int]:
    """The rows, and how many were lost at the end."""
    if data.lstrip()[:1] == b"[":
        try:
            rows = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: is no intact JSON list ({error}); run it again") from error
        numbered = list(enumerate(rows, start=1))
        truncated = 0
    else:
        lines = [(no, line) for no, line in enumerate(data.split(b"\n"), 1) if line.strip()]
        numbered = []
        for number, line in lines:
            row, fault = _parsed(line)
            if fault is None:
                numbered.append((number, row))
            elif number != lines[-1][0]:
                raise DataError(
                    f"{path}, line {number}: is no JSON ({fault}); restore the file or delete the "
                    "line"
                )
            else:
                notices.append(f"{path}: its last line ({number}) is cut off and was left out")
        truncated = len(lines) - len(numbered)
    for number, row in numbered:
        if not isinstance(row, dict) or not isinstance(row.get("doc"), dict):
            raise DataError(
                f"{path}, row {number}: expected a logged sample with a doc, got "
                f"{json.dumps(row)[:60]}; give the samples_….jsonl that --log_samples wrote"
            )
        doc_id = row.get("doc_id")
        if not isinstance(doc_id, int) or isinstance(doc_id, bool):
            raise DataError(f"{path}, row {number}: doc_id is {doc_id!r}, expected a whole number")
    return [row for _, row in numbered], truncated


def _parsed(line: bytes) -> tuple[Any, str | None]:
    """The value of a line of JSON, or what is wrong with it."""
    try:
        return json.loads(line), None
    except (ValueError, RecursionError) as error:
        return None, str(error)


def filters_of(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str | None]:
    """The filter of each row; formats before 0.4.7 tell it by the order of the rows alone.

    Args:
        rows: The rows of a file.
        names: The task's filters in their order, where the results tell them.
    """
    if any("filter" in row for row in rows):
        return [row.get("filter") for row in rows]
    occurrence: Counter[int] = Counter()
    places = []
    for row in rows:
        places.append(occurrence[row["doc_id"]])
        occurrence[row["doc_id"]] += 1
    # Rows come in one block of documents per filter, within each rank of a parallel run.
    if len(names) > 1 and max(occurrence.values()) == len(names):
        return [names[place] for place in places]
    return [names[0] if len(names) == 1 else None] * len(rows)


def answers_of(
    path: Path,
    rows: Sequence[Mapping[str, Any]],
    labels: Sequence[str | None],
    seen: Seen,
    notices: list[str],
) -> list[LoggedAnswer]:
    """The answers of a file's rows, sorted by document and filter.

    Args:
        path: The file, for messages.
        rows: Its rows.
        labels: The filter of each.
        seen: Documents and prompts of all runs.
        notices: Takes a line where rows repeat.

    Raises:
        DataError: A document stands twice with different answers.
    """
    kept: dict[tuple[int, str | None], LoggedAnswer] = {}
    order = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    copies = 0
    for row, label in zip(rows, labels, strict=True):
        answer = _answer(row, label, seen)
        known = kept.setdefault((answer.doc_id, label), answer)
        if known is answer:
            continue
        if _same(known, answer):
            copies += 1
            continue
        under = "" if label is None else f" under filter {label}"
        raise DataError(
            f"{path}: document {answer.doc_id} stands twice{under} with different answers; keep "
            "one (in logs before 0.4.7, several filters are told apart only with the results file "
            "beside the samples)"
        )
    if copies:
        notices.append(f"{path}: {copies} rows repeat others word for word and were left out")
    return sorted(kept.values(), key=lambda answer: (answer.doc_id, order[answer.filter]))


def _same(one: LoggedAnswer, other: LoggedAnswer) -> bool:
    # As text, because a metric may be NaN, which equals nothing.
    return (one.content_hash, repr(one.requests), repr(one.filtered), repr(one.metrics)) == (
        other.content_hash,
        repr(other.requests),
        repr(other.filtered),
        repr(other.metrics),
    )


def _answer(
    row: Mapping[str, Any],
    label: str | None,
    seen: Seen,
) -> LoggedAnswer:
    digest = content_hash_of_json(row["doc"])
    requests = _requests(row, seen)
    prompt_hash = row.get("prompt_hash")
    if not prompt_hash:
        prompt = requests[0].prompt if requests else ""
        prompt_hash = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
    names = row.get("metrics")
    if not isinstance(names, list):
        names = [name for name in row if name not in _NOT_METRICS]
    return LoggedAnswer(
        doc_id=row["doc_id"],
        doc=seen.docs.setdefault(digest, row["doc"]),
        content_hash=digest,
        doc_hash=row.get("doc_hash") or "",
        prompt_hash=prompt_hash,
        target=str(row.get("target", "")),
        requests=requests,
        filtered=row.get("filtered_resps"),
        filter=label,
        metrics={name: row[name] for name in names if name in row},
    )


def _requests(row: Mapping[str, Any], seen: Seen) -> tuple[LoggedRequest, ...]:
    arguments = row.get("arguments") or []
    if isinstance(arguments, dict):  # since 0.4.3: {"gen_args_0": {"arg_0": …, "arg_1": …}}
        arguments = [
            list(args.values()) if isinstance(args, dict) else args for args in arguments.values()
        ]
    resps = row.get("resps") or []
    requests = []
    for place, args in enumerate(arguments):
        prompt = _text(args[0]) if args else ""
        settings = args[1] if len(args) > 1 and isinstance(args[1], dict) else {}
        given = resps[place] if place < len(resps) else []
        given = given if isinstance(given, list) else [given]
        requests.append(
            LoggedRequest(
                seen.texts.setdefault(prompt, prompt),
                settings,
                tuple(_text(resp) for resp in given),
            )
        )
    return tuple(requests)


def _text(value: Any) -> str:
    """A prompt or an answer as text; chat API models log a prompt as a list of one string."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return json.dumps(value, ensure_ascii=False)
