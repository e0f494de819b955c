"""What libraries say while a run goes on: kept in a file of the run's folder, off the terminal.

This module owns ``harness.log`` and the switches that lead there for a run's time: log records of
all packages, Python's warnings, and what is written to standard error (progress bars, tracebacks of
tasks and threads that nobody waited for). It imports the standard library only. Nothing of it
decides anything, and nothing that a user has to know is said there alone.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from lm_eval_adaptive.redact import hide

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

NAME = "harness.log"
# Lines that wait for the run's folder; a run that is refused leaves none.
MOST_WAITING = 10_000


class Noise:
    """While entered, keeps what libraries say away from the terminal.

    Where ``LMEVAL_LOG_LEVEL`` asks for the harness's own lines they stay on the terminal, and this
    does nothing.

    Args:
        wanted: Whether the lines are to be kept; default: as the environment says.
    """

    kept = False  # whether one is entered

    def __init__(self, wanted: bool | None = None) -> None:
        self._wanted = _is_quiet() if wanted is None else wanted
        self._handler: _Lines | None = None

    @property
    def path(self) -> Path | None:
        """The file, None while nothing was written to it."""
        return None if self._handler is None else self._handler.path

    def open(self, folder: Path) -> None:
        """From here on lines go to the run's folder, with those that waited."""
        if self._handler is not None:
            self._handler.lead_to(folder / NAME)

    def named(self) -> str:
        """Where to look when something failed, as a message's end; "" where there is nothing."""
        return "" if self.path is None else f"; what the libraries said is in {self.path}"

    def __enter__(self) -> Self:
        if not self._wanted:
            return self
        self._handler = _Lines()
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s")
        )
        logging.getLogger().addHandler(self._handler)
        logging.captureWarnings(True)
        self._stderr = sys.stderr
        sys.stderr = _Stream(self._handler)
        Noise.kept = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is None:
            return
        Noise.kept = False
        sys.stderr = self._stderr
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


def _is_quiet() -> bool:
    level = logging.getLevelName(os.environ.get("LMEVAL_LOG_LEVEL", "").upper())
    silenced = isinstance(level, int) and level >= logging.ERROR
    return silenced or not os.environ.get("LMEVAL_LOG_LEVEL")


class _Lines(logging.Handler):
    """Appends lines without secrets to a file for its owner alone; till there is one they wait."""

    def __init__(self) -> None:
        super().__init__()
        self.path: Path | None = None
        self._place: Path | None = None
        self._waiting: list[str] = []
        self._order = threading.RLock()

    def lead_to(self, place: Path) -> None:
        """Write what waited, and all that comes."""
        with self._order:
            self._place = place
            waiting, self._waiting = self._waiting, []
            self._write(waiting)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record."""
        with suppress(Exception):  # a log must cost a run nothing, nor talk of itself
            self.keep(self.format(record))

    def keep(self, line: str) -> None:
        """Keep a line."""
        with self._order:
            if self._place is None:
                if len(self._waiting) < MOST_WAITING:
                    self._waiting.append(line)
            else:
                self._write([line])

    def _write(self, lines: list[str]) -> None:
        if not lines or self._place is None:
            return
        text = "".join(f"{hide(line)}\n" for line in lines)
        with suppress(OSError):  # a full disk: the journal says so
            file = os.open(self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(file, text.encode("utf-8", "backslashreplace"))
            finally:
                os.close(file)
            self.path = self._place


class _Stream(io.TextIOBase):
    """Stands for standard error: whole lines are kept, of a bar its last state."""

    encoding = "utf-8"

    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines
        self._rest = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take in a text."""
        *whole, rest = (self._rest + text).split("\n")
        self._rest = rest[rest.rfind("\r", 0, -1) + 1 :]  # a bar that is drawn again
        for line in whole:
            last = line.rstrip("\r ").rpartition("\r")[2]
            if last.strip():
                self._lines.keep(last)
        return len(text)
