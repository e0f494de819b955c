"""The journal of a run that goes on: where an answer becomes durable.

This module owns the writing of ``journal.jsonl``; what its lines say, and their reader, are
``records.journal``'s. The journal is the truth: a run is a function of the answers in it, and a run
that was killed goes on by doing it all again with the answers that are there. Lines are appended
and never changed; several threads may write.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.records.journal import (
    NAME,
    AnswerRecord,
    Header,
    JournalFile,
    Record,
    ResumedRecord,
    as_data,
    read_journal,
    written,
)
from lm_eval_adaptive.redact import same_but_for_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from lm_eval_adaptive.records.journal import RunHead

log = logging.getLogger(__name__)

NAMED = 3  # differences between two configurations that a refusal names


class Journal:
    """Appends lines to a journal; each is on disk when :meth:`sync` returns.

    Args:
        path: The file; made with its folder when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8", opener=_for_its_owner)  # noqa: SIM115
        self._lock = threading.Lock()

    def write(self, record: Record) -> None:
        """Append one line and hand it to the operating system."""
        line = written(record)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _for_its_owner(path: str, flags: int) -> int:
    """Open a file that nobody else reads, whatever the umask says."""
    file = os.open(path, flags, 0o600)
    with suppress(OSError, AttributeError):  # not everywhere are there such rights
        os.fchmod(file, 0o600)  # one that was there before
    return file


def begin(folder: Path, head: RunHead, command: Sequence[str]) -> tuple[Journal, JournalFile]:
    """Start a journal; that of a finished run in the folder is kept under another name.

    Raises:
        UsageError: The folder holds a run that is not finished.
    """
    path = folder / NAME
    if path.exists():
        _put_away(path)
    journal = Journal(path)
    header = Header(config=head, command=tuple(command))
    journal.write(header)
    journal.sync()
    return journal, JournalFile(path, header)


def go_on(folder: Path, head: RunHead) -> tuple[Journal, JournalFile]:
    """Open the journal of an interrupted run, and tell what it holds.

    Raises:
        DataError: It cannot be read, or the run was another.
    """
    path = folder / NAME
    held = read_journal(path)
    for notice in held.notices:
        log.warning(notice)
    check_same(as_data(held.header.config), as_data(head))
    _mend(path)
    journal = Journal(path)
    journal.write(
        ResumedRecord(answers=sum(isinstance(each, AnswerRecord) for each in held.records))
    )
    return journal, held


def plain(value: Any) -> Any:
    """Options as a journal gives them back: what JSON has no shape for becomes text."""
    return json.loads(json.dumps(value, default=str))


def check_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume a run under another configuration, naming what differs.

    Secrets are not in a journal and may be others by now: a new key, the same run.

    Raises:
        DataError: Something differs.
    """
    found = list(_differences(then, now))
    if found:
        more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise DataError(
            f"--resume: {'; '.join(found[:NAMED])}{more}; resume with the original settings "
            "(--resume DIR alone takes them all), or start a new run"
        )


def _differences(then: Mapping[str, Any], now: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key in sorted({*then, *now}):
        old, new = then.get(key), now.get(key)
        name = f"{path}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{name}.")
        elif not same_but_for_secrets(old, new):
            yield f"{name} was {old!r} when the run began and is {new!r} now"


def _mend(path: Path) -> None:
    """Cut a half-written last line off the file, so that appending goes on from a whole line."""
    whole = path.read_bytes().rpartition(b"\n")
    if whole[2]:
        with path.open("r+b") as file:
            file.truncate(len(whole[0]) + 1)


def _put_away(path: Path) -> None:
    """Keep an earlier run's journal under another name; refuse when that run is unfinished."""
    held = read_journal(path)
    if set(held.header.config.tasks) - set(held.stop_reasons()):
        raise UsageError(
            f"{path.parent} holds an unfinished run; go on with --resume {path.parent}, or choose "
            "another --output_path"
        )
    number = 1
    while (kept := path.with_name(f"journal_{number}.jsonl")).exists():
        number += 1
    path.rename(kept)
