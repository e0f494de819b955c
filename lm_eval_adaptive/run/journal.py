"""The journal of a run that goes on: where an answer becomes durable.

This module owns the writing of ``journal.jsonl``; what its lines say, and their reader, are
``records.journal``'s. The journal is the truth: a run is a function of the answers in it, and a run
that was killed goes on by doing it all again with the answers that are there. Lines are appended
and never changed; several threads may write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.records.journal import (
    NAME,
    NO_BANK,
    AnswerRecord,
    Header,
    JournalFile,
    Record,
    ResumedRecord,
    as_data,
    read_header,
    read_journal,
    written,
)
from lm_eval_adaptive.redact import same_but_for_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from lm_eval_adaptive.records.journal import RunHead

log = logging.getLogger(__name__)

LOCK = ".journal.lock"
NAMED = 3  # differences between two configurations that a refusal names


class Journal:
    """Appends lines to a journal; each is on disk when :meth:`sync` returns.

    Args:
        path: The file; made with its folder when missing.
        hold: The lock of its folder, released when the journal is closed.
    """

    def __init__(self, path: Path, hold: Hold | None = None) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0, opener=_for_its_owner)  # noqa: SIM115
        self._lock = threading.Lock()
        self._hold = hold

    def write(self, record: Record) -> None:
        """Append one line and hand it to the operating system, whole or not at all.

        Raises:
            OSError: It could not be written, as on a full disk; no part of it stays.
        """
        line = f"{written(record)}\n".encode("utf-8", "surrogatepass")
        with self._lock:
            start, done = self._file.seek(0, os.SEEK_END), 0
            try:
                while done < len(line):
                    done += self._file.write(line[done:])
            except BaseException:
                self._file.truncate(start)
                raise

    def sync(self) -> None:
        """Wait until everything written is on disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, and let other processes have the folder."""
        self._file.close()
        if self._hold is not None:
            self._hold.release()

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
        UsageError: The folder holds a run that is not finished or goes on in another process, or
            is no folder that can be written to.
    """
    path = folder / NAME
    hold = take_hold(folder)
    with _released_on_error(hold):
        if path.exists():
            _put_away(path)
        journal = Journal(path, hold)
        header = Header(config=head, command=tuple(command))
        journal.write(header)
        journal.sync()
    return journal, JournalFile(path, header)


def go_on(folder: Path, head: RunHead) -> tuple[Journal, JournalFile]:
    """Open the journal of an interrupted run, and tell what it holds.

    Raises:
        DataError: It cannot be read, or the run was another.
        UsageError: The run goes on in another process.
    """
    path = folder / NAME
    read_journal(path)  # no lock is left in a folder without a run
    hold = take_hold(folder)
    with _released_on_error(hold):
        held = read_journal(path)
        for notice in held.notices:
            log.warning(notice)
        check_same(as_data(held.header.config), as_data(head))
        _mend(path)
        journal = Journal(path, hold)
        journal.write(
            ResumedRecord(answers=sum(isinstance(each, AnswerRecord) for each in held.records))
        )
    return journal, held


def banks_begun_with(folder: Path | None) -> dict[str, frozenset[str]]:
    """Hashes of the banks that an interrupted run began with, by task.

    Args:
        folder: The run's, None for a run that begins, which has none.

    Raises:
        DataError: Its journal cannot be read.
    """
    if folder is None:
        return {}
    return {
        task: frozenset(
            {head.bank_sha256, *(each.bank_sha256 for each in head.further.values())} - {NO_BANK}
        )
        for task, head in read_header(folder / NAME).config.tasks.items()
    }


class Hold:
    """The lock on a run's folder: of one process at a time, and of none that is dead.

    Args:
        path: The lock's file.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path, timeout=0)

    def take(self) -> bool:
        """Whether the folder is ours now."""
        path = Path(self._lock.lock_file)
        for _ in range(10):
            try:
                self._lock.acquire()
            except Timeout:
                return False
            if path.exists():
                return True
            self._lock.release()  # taken away by who held it between our opening and locking it
        return False

    def release(self) -> None:
        """Take the lock's file away while it is ours, then let go of it."""
        if self._lock.is_locked:
            with contextlib.suppress(OSError):  # Windows keeps open files
                Path(self._lock.lock_file).unlink()
            self._lock.release()


def take_hold(folder: Path) -> Hold:
    """Keep other processes out of a run's folder until it is released or this process is gone.

    Raises:
        UsageError: Another process has it, or it is no folder that can be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hold = Hold(folder / LOCK)
        free = hold.take()
    except OSError as error:
        raise UsageError(
            f"--output_path {folder} cannot be written to ({error.strerror or error}); give a "
            "folder that can"
        ) from error
    if not free:
        raise UsageError(
            f"another process is running in {folder}; wait for it, or choose another --output_path"
        )
    return hold


@contextlib.contextmanager
def _released_on_error(hold: Hold) -> Iterator[None]:
    try:
        yield
    except BaseException:
        hold.release()
        raise


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
