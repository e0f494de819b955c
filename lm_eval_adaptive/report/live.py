"""What a person sees while a run is going on: a live table, or plain lines without a screen.

This module owns progress on standard error; it imports rich inside functions. It decides nothing: a
run without it asks the same questions.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import Self

from lm_eval_adaptive.host.environment import silenced
from lm_eval_adaptive.redact import hide
from lm_eval_adaptive.report.live_table import WAITING, live_table, plain_line
from lm_eval_adaptive.report.snapshot import take_picture
from lm_eval_adaptive.report.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from lm_eval_adaptive.report.snapshot import Contest, Picture

PACKAGE = "lm_eval_adaptive"
LINE_EVERY = 10.0  # seconds between plain lines where no further pair was decided
REFRESH = 4  # pictures a second


class Clock:
    """How long answers take: those of the first round wait for models to load and count only there.

    Args:
        now: Gives seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._answers = 0
        self._at_round = 0
        self._begun = self._warm_at = now()
        self._warm_answers: int | None = None
        self._seconds: float | None = None

    def answer(self) -> None:
        """An answer came, in whichever thread."""
        with self._lock:
            self._answers += 1

    def round(self) -> None:
        """A round ended; one without fresh answers, as when a run is resumed, tells nothing."""
        with self._lock:
            now, fresh = self._now(), self._answers - self._at_round
            self._at_round = self._answers
            if not fresh:
                if self._warm_answers is None:
                    self._begun = now
                return
            if self._warm_answers is None:
                self._warm_answers, self._warm_at = self._answers, now
                self._seconds = (now - self._begun) / self._answers
            else:
                self._seconds = (now - self._warm_at) / (self._answers - self._warm_answers)

    @property
    def fresh(self) -> int:
        """Answers since the last round ended."""
        return self._answers - self._at_round

    @property
    def seconds_per_item(self) -> float | None:
        """Seconds an answer takes, None before any came."""
        return self._seconds


class _ToConsole(logging.Handler):
    """Warnings of this package, above the live table or between the plain lines."""

    def __init__(self, console: Any) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        from rich.text import Text

        try:
            text = hide(f"{record.levelname.lower()}: {record.getMessage()}")
            style = "yellow" if record.levelno < logging.ERROR else "red"
            # On a terminal lines break between words; elsewhere each stays one.
            self._console.print(Text(text, style=style), soft_wrap=not self._console.is_terminal)
        except Exception:  # noqa: BLE001  as logging itself does
            self.handleError(record)


class Progress:
    """Listens to a run and shows it: live on a terminal, as plain lines elsewhere, or not at all.

    Silent with ``LMEVAL_LOG_LEVEL=ERROR``. Where that variable asks for more than usual, the
    harness's own bars and lines are on the screen, and a live table would fight with them: then it
    is plain lines as well. While entered, warnings of this package go through the same console.

    Args:
        console: A rich console; default: standard error.
        now: Gives seconds.
    """

    def __init__(self, console: Any = None, now: Callable[[], float] = time.monotonic) -> None:
        self._silent = silenced()
        self._now = now
        self._console = console
        self._live: Any = None
        self._picture: Picture | None = None
        self._contest: Contest | None = None
        self._clock = Clock(now)
        self._handler: logging.Handler | None = None
        self._before: tuple[bool, int] = (True, logging.NOTSET)
        self._line_at = -np.inf
        self._line_for = (-1, 0)  # decided pairs and models set aside when a line was written last

    @property
    def console(self) -> Any:
        """The rich console that is written to."""
        if self._console is None:
            from rich.console import Console

            # This very stream: libraries may be led to another in the meantime.
            self._console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
        return self._console

    def __enter__(self) -> Self:
        logger = logging.getLogger(PACKAGE)
        self._before = logger.propagate, logger.level
        if self._silent:
            logger.setLevel(logging.ERROR)
            return self
        self._handler = _ToConsole(self.console)
        logger.addHandler(self._handler)
        logger.propagate = False
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # The ranking takes the table's place, where it is printed next on the same screen.
        self._stop(keep=kind is not None or not sys.stdout.isatty())
        logger = logging.getLogger(PACKAGE)
        logger.propagate, level = self._before
        logger.setLevel(level)
        if self._handler is not None:
            logger.removeHandler(self._handler)
            self._handler = None

    def __call__(self, contest: Contest, event: str) -> None:
        """Take in an event of the loop; ``answer`` comes from the threads that ask."""
        if event == "answer":
            self._clock.answer()
            return
        if self._silent:
            return
        if event == "start":
            self._start(contest)
            return
        if event == "round":
            self._clock.round()
        self._picture = take_picture(contest, self._clock.seconds_per_item)
        if self._live is None:
            self._line(self._picture, contest.rounds, last=event == "end")

    def _start(self, contest: Contest) -> None:
        from rich.text import Text

        self._stop(keep=True)
        self._picture, self._clock = None, Clock(self._now)
        self._contest = contest
        self._line_at, self._line_for = -np.inf, (-1, 0)
        first = contest.views[0]
        models = len(first.terms.names)
        head = (
            f"{contest.task}: {models} model{'' if models == 1 else 's'}, "
            f"{len(first.state.available)} items, ranked by {first.terms.metric} "
            f"({first.terms.response_model})"
        )
        for text in (head, *first.notices):
            self.console.print(Text(printable(hide(text))), soft_wrap=not self.console.is_terminal)
        if self._is_screen():
            from rich.live import Live

            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=REFRESH,
                vertical_overflow="crop",
                redirect_stderr=sys.stderr is self.console.file,
            )
            self._live.start()

    def _is_screen(self) -> bool:
        console = self.console
        usual = not os.environ.get("LMEVAL_LOG_LEVEL")
        return bool(console.is_terminal and not console.is_dumb_terminal and usual)

    def _stop(self, *, keep: bool) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.transient = not keep
            live.stop()

    def _draw(self) -> Any:
        """The latest picture, with the answers that came since."""
        from rich.text import Text

        picture, fresh = self._picture, self._clock.fresh
        # Other threads write it.
        waiting = {} if self._contest is None else dict(self._contest.waiting)
        if picture is None:
            words = f"first round: {fresh} answers" if fresh else "first round: asking"
            away = "".join(f"\n{printable(name)}: {what}" for name, what in waiting.items())
            return Text(f"{words}{away}")
        left = max(picture.items_left - fresh, 0)
        each = self._clock.seconds_per_item
        now = replace(
            picture,
            lines=tuple(
                replace(line, state=WAITING) if line.name in waiting else line
                for line in picture.lines
            ),
            asked=picture.asked + fresh,
            items_left=left,
            seconds_left=None if each is None else each * left,
        )
        # Room for the title, the heads, the status line and what wraps.
        return live_table(now, self.console.width, max(self.console.height - 7, 3))

    def _line(self, picture: Picture, round_number: int, *, last: bool) -> None:
        from rich.text import Text

        failed = sum(line.state == "failed" for line in picture.lines)
        changed = (picture.decided, failed) != self._line_for
        due = self._now() - self._line_at >= LINE_EVERY
        if last or changed or due:
            self._line_at, self._line_for = self._now(), (picture.decided, failed)
            self.console.print(Text(plain_line(picture, round_number)), soft_wrap=True)
