"""The journal: everything that happened in a run, one JSON line each, safe on disk.

This module owns the file ``journal.jsonl`` and the meaning of its lines; it imports the standard
library only. The journal is the truth: a run is a function of the answers in it, and a run that was
killed goes on by doing it all again with the answers that are there. Lines are appended and never
changed; several threads may write. Types of lines:

``run``       first line: schema, configuration, command line.
``round``     what is about to be asked, decided before anything of it is sent.
``answer``    a model's answer to a document, with all its metric values, its score, or the problem
              for which the document is left out for all models.
``failed``    a model that was set aside, with the reason.
``resumed``   the run went on from here after an interruption.
``end``       a task is finished, with the stop reason.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

SCHEMA = 1
NAME = "journal.jsonl"


class Journal:
    """Appends lines to a journal; each is on disk when :meth:`sync` returns.

    Args:
        path: The file; made with its folder when missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, kind: str, **record: Any) -> dict[str, Any]:
        """Append one line and hand it to the operating system.

        Returns:
            The record as a reader of the journal would see it.
        """
        line = json.dumps({"type": kind, **record}, ensure_ascii=False)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
        found: dict[str, Any] = json.loads(line)
        return found

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


def read_journal(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """All records of a journal, and notices.

    A last line that was cut off in the middle is dropped with a notice; :func:`mend_journal` cuts
    it off the file before a run goes on.

    Raises:
        DataError: There is no journal, it is of another schema, or a line before the last is
            damaged.
    """
    if not path.is_file():
        raise DataError(
            f"no {NAME} in {path.parent}; --resume takes the --output_path of an adaptive run"
        )
    records: list[dict[str, Any]] = []
    notices: list[str] = []
    *whole, rest = path.read_bytes().split(b"\n")
    if rest:
        notices.append(
            f"dropped a half-written last line of {path.name} (line {len(whole) + 1}); its "
            "document will be asked again"
        )
    for number, line in enumerate(whole, start=1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is damaged ({error}); restore the file from a copy, or "
                "start anew with another --output_path"
            ) from error
    if not records or records[0].get("type") != "run":
        raise DataError(
            f"{path} does not start with a run's configuration; it is no journal of an adaptive run"
        )
    if records[0].get("schema") != SCHEMA:
        raise DataError(
            f"{path} has schema {records[0].get('schema')}, this version reads schema {SCHEMA}; "
            "resume it with the version that wrote it"
        )
    return records, notices


def mend_journal(path: Path) -> None:
    """Cut a half-written last line off the file, so that appending goes on from a whole line."""
    whole = path.read_bytes().rpartition(b"\n")
    if whole[2]:
        with path.open("r+b") as file:
            file.truncate(len(whole[0]) + 1)
