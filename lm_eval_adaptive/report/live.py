"""What a person sees while a run is going on: a live table, or plain lines without a screen.

This module owns progress on standard error; it imports rich inside functions and reads the fold and
the core's predictions. It decides nothing: a run without it asks the same questions.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from typing_extensions import Self

from lm_eval_adaptive.core.outlook import look_ahead
from lm_eval_adaptive.host.environment import silenced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.scale import ScoreScale
    from lm_eval_adaptive.core.state import RunState

PACKAGE = "lm_eval_adaptive"
LINE_EVERY = 10.0  # seconds between plain lines where no further pair was decided
REFRESH = 4  # pictures a second
NAMED_ON_A_LINE = 4
STATE_STYLES = {
    "asking": "cyan",
    "settled": "green",
    "too close": "yellow",
    "at limit": "yellow",
    "undecided": "yellow",
    "failed": "red",
    "known": "dim",
}


def printable(name: str) -> str:
    """A model's name without characters that would move the cursor or break a line."""
    return "".join(each if each.isprintable() else "�" for each in name)


def bare_names(names: Sequence[str]) -> list[str]:
    """Names without their organisation, where they still differ.

    >>> bare_names(["org/small", "other/large"]), bare_names(["a/m", "b/m"])
    (['small', 'large'], ['a/m', 'b/m'])
    """
    found = [printable(name) for name in names]
    last = [name.replace("__", "/").rsplit("/", 1)[-1] for name in found]
    return last if all(last) and len(set(last)) == len(set(found)) else found


def short_names(names: Sequence[str], width: int) -> list[str]:
    """Names cut to a width that still differ: without their organisation, else in the middle.

    >>> short_names(["org/a-large-model", "org/a-small-model"], 13)
    ['a-large-model', 'a-small-model']
    >>> short_names(["a-large-model", "a-small-model"], 9)
    ['a-la…odel', 'a-sm…odel']
    """
    found = [printable(name) for name in names]
    if max(map(len, found), default=0) > width:
        found = bare_names(found)
    for head in range((width - 1) // 2, 2, -1):
        cut = [
            name if len(name) <= width else f"{name[:head]}…{name[head - width + 1 :]}"
            for name in found
        ]
        if len(set(cut)) == len(set(found)):
            return cut
    return [name if len(name) <= width else f"{name[: width - 1]}…" for name in found]


def duration(seconds: float) -> str:
    """Seconds in words of two digits at most.

    >>> duration(41.0), duration(200.0), duration(5000.0)
    ('40 s', '3 min', '1 h 23 min')
    """
    if seconds < 10.0:
        return f"{max(round(seconds), 1)} s"
    if seconds < 90.0:
        return f"{round(seconds / 10.0) * 10} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class Terms(Protocol):
    """What one metric brings to a contest, as far as people are told of it."""

    @property
    def metric(self) -> str: ...  # noqa: D102  the metric's name
    @property
    def filter(self) -> str: ...  # noqa: D102  its filter
    @property
    def scale(self) -> ScoreScale: ...  # noqa: D102  its range and direction
    @property
    def names(self) -> tuple[str, ...]: ...  # noqa: D102  the models, by row
    @property
    def response_model(self) -> str: ...  # noqa: D102  how scores follow from abilities


class View(Protocol):
    """A contest by one metric, as far as people are told of it."""

    @property
    def terms(self) -> Terms: ...  # noqa: D102  what the metric brings
    @property
    def procedure(self) -> Procedure: ...  # noqa: D102  inference and rules
    @property
    def state(self) -> RunState: ...  # noqa: D102  what was answered
    @property
    def stop_reason(self) -> str: ...  # noqa: D102  why it is over, "" while it is not
    @property
    def notices(self) -> Sequence[str]: ...  # noqa: D102  what to know before it begins


class Contest(Protocol):
    """Models on a task, as far as people are told of them: the run's own knows more."""

    @property
    def task(self) -> str: ...  # noqa: D102  the task's name
    @property
    def views(self) -> Sequence[View]: ...  # noqa: D102  by metric, the first leads
    @property
    def rounds(self) -> int: ...  # noqa: D102  rounds taken in


@dataclass(frozen=True)
class ModelLine:
    """One model as it stands.

    Attributes:
        name: Its name.
        score: Estimated score on the whole benchmark, metric's units.
        error: Its standard error.
        low: Lower end of its 95 % interval.
        high: Upper end.
        items: Items asked.
        cost: What they cost.
        state: What is done with it.
    """

    name: str
    score: float
    error: float
    low: float
    high: float
    items: int
    cost: float
    state: str


@dataclass(frozen=True)
class Picture:
    """A run as it stands after a round.

    Attributes:
        title: Task, metric and direction.
        lines: Models, best first; those that were set aside last.
        bank_items: Items of the bank.
        priced: Whether costs are other than one per item.
        asked: Items asked of all models.
        full: Items a full run asks.
        decided: Required pairs that are decided.
        required: Required pairs.
        given_up: Required pairs that are not pursued.
        hardest: Names of the pair that decides how long it takes, none where no pair is open.
        items_left: Items predicted to be asked yet.
        seconds_left: Time predicted for them, None where none is known.
        stop_reason: Why the task's run is over, "" while it is not.
    """

    title: str
    lines: tuple[ModelLine, ...]
    bank_items: int
    priced: bool
    asked: int
    full: int
    decided: int
    required: int
    given_up: int
    hardest: tuple[str, ...]
    items_left: int
    seconds_left: float | None
    stop_reason: str


def take_picture(contest: Contest, seconds_per_item: float | None = None) -> Picture:
    """A run as it stands.

    With several metrics the models' scores are those of the first; what is decided and what is left
    is told of all of them.

    Args:
        contest: The models on the task.
        seconds_per_item: Time of an answer so far, over all models.
    """
    pictures = [_of_metric(contest.task, view) for view in contest.views]
    first = pictures[0]
    longest = max(pictures, key=lambda each: each.items_left)
    asking = {line.name for each in pictures for line in each.lines if line.state == "asking"}
    others = len(pictures) - 1
    more = f" (and {others} more metric{'s' if others > 1 else ''})" if others else ""
    return replace(
        first,
        title=f"{first.title}{more}",
        lines=tuple(
            replace(line, state="asking" if line.name in asking else line.state)
            for line in first.lines
        ),
        decided=sum(each.decided for each in pictures),
        required=sum(each.required for each in pictures),
        given_up=sum(each.given_up for each in pictures),
        hardest=longest.hardest,
        items_left=longest.items_left,
        seconds_left=None if seconds_per_item is None else seconds_per_item * longest.items_left,
    )


def _of_metric(task: str, view: View) -> Picture:
    """What one metric tells of a run."""
    procedure, state, terms = view.procedure, view.state, view.terms
    names, scale = terms.names, terms.scale
    estimates = procedure.estimate(state)
    outlook = look_ahead(procedure, state, estimates)
    raw = scale.to_raw(estimates.score)
    half = estimates.score_half_interval * scale.width
    states: list[str] = list(outlook.standing)
    if view.stop_reason:
        states = ["undecided" if each == "asking" else each for each in states]
    if view.stop_reason == "fixed_length":
        states = ["settled" if each == "undecided" else each for each in states]
    order = sorted(
        range(len(names)), key=lambda row: (state.failed[row], -estimates.level[row], row)
    )
    arrow = "↑" if scale.higher_is_better else "↓"
    filtered = "" if terms.filter == "none" else f", {terms.filter}"
    hardest = outlook.hardest
    return Picture(
        title=f"{task}: {terms.metric}{filtered} {arrow}",
        lines=tuple(
            ModelLine(
                names[row],
                float(raw[row]),
                float(estimates.score_se[row] * scale.width),
                float(np.clip(raw[row] - half[row], scale.lo, scale.hi)),
                float(np.clip(raw[row] + half[row], scale.lo, scale.hi)),
                int(state.administered[row]),
                float(state.spent[row]),
                states[row],
            )
            for row in order
        ),
        bank_items=len(state.available),
        priced=bool((procedure.item_costs != 1.0).any()),
        asked=int(state.answered.sum()),
        full=len(state.available) * int((~procedure.known).sum()),
        decided=outlook.decided,
        required=outlook.required,
        given_up=outlook.given_up,
        hardest=() if hardest is None or view.stop_reason else (names[hardest.a], names[hardest.b]),
        items_left=0 if view.stop_reason else outlook.items_left,
        seconds_left=None,
        stop_reason=view.stop_reason,
    )


class IntervalBar:
    """A 95 % interval with its middle half and its estimate, drawn to the table's common scale.

    Args:
        line: The model.
        low: Score at the left end.
        high: Score at the right end.
    """

    def __init__(self, line: ModelLine, low: float, high: float) -> None:
        self.line = line
        self.low, self.high = low, high

    def __rich_measure__(self, console: Any, options: Any) -> Any:
        """As wide as the column gets."""
        from rich.measure import Measurement

        del console
        return Measurement(8, max(8, options.max_width))

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        """One line of it."""
        from rich.text import Text

        fancy = str(console.encoding).lower().startswith("utf")
        thin, thick, dot = "─━●" if fancy else "-=o"
        width = max(int(options.max_width), 1)
        span = (self.high - self.low) or 1.0

        def column(value: float) -> int:
            return int(np.clip(round((value - self.low) / span * (width - 1)), 0, width - 1))

        line = self.line
        cells = [" "] * width
        for at in range(column(line.low), column(line.high) + 1):
            cells[at] = thin
        for at in range(column(line.score - line.error), column(line.score + line.error) + 1):
            cells[at] = thick
        cells[column(line.score)] = dot
        yield Text("".join(cells), style=STATE_STYLES.get(line.state, ""), no_wrap=True)


def live_table(picture: Picture, width: int, rows: int = 1000) -> Any:
    """The live view, as something rich can draw.

    Args:
        picture: The run as it stands.
        width: Columns of the screen.
        rows: Most models to show; those still asked come first, the rest is counted.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = _most_telling(picture.lines, rows)
    names = short_names([line.name for line in picture.lines], max(14, min(60, width // 4)))
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True, title=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("model", no_wrap=True)
    table.add_column("score", justify="right", no_wrap=True)
    wide = width >= (95 if picture.priced else 70)
    table.add_column("95 % interval" if width >= 76 else "95 %", ratio=1, no_wrap=True, min_width=8)
    table.add_column("items", justify="right", no_wrap=True)
    if wide:
        table.add_column("of bank", justify="right", no_wrap=True)
    if picture.priced:
        table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    low = min((line.low for line in picture.lines), default=0.0)
    high = max((line.high for line in picture.lines), default=1.0)
    for place in shown:
        line = picture.lines[place]
        table.add_row(
            Text(str(place + 1)),
            Text(names[place]),
            Text(score_text(line.score, line.error)),
            IntervalBar(line, low, high),
            Text("" if line.state == "known" else str(line.items)),
            *([Text(_of_bank(line, picture.bank_items))] if wide else []),
            *([Text(f"{line.cost:.3g}")] if picture.priced else []),
            Text(line.state, style=STATE_STYLES.get(line.state, "")),
        )
    parts: list[Any] = [Text(printable(picture.title), style="bold"), table]
    if len(shown) < len(picture.lines):
        parts.append(Text(f"… and {len(picture.lines) - len(shown)} more models", style="dim"))
    labels = dict(zip([line.name for line in picture.lines], names, strict=True))
    parts.append(Text(status(picture, labels)))
    return Group(*parts)


def _of_bank(line: ModelLine, bank_items: int) -> str:
    return "" if line.state == "known" else share(line.items / bank_items)


def _most_telling(lines: Sequence[ModelLine], rows: int) -> list[int]:
    """Places to show, in their order: models that are still asked before the others."""
    places = sorted(range(len(lines)), key=lambda place: (lines[place].state != "asking", place))
    return sorted(places[: max(rows, 1)])


def score_text(score: float, error: float) -> str:
    """A score with its error, to the digits that the error leaves.

    >>> score_text(28.8985, 1.105), score_text(0.41234, 0.0213), score_text(1234.5, 210.0)
    ('28.9 ± 1.1', '0.412 ± 0.021', '1234 ± 210')
    """
    if not (np.isfinite(error) and error > 0.0):
        return f"{score:.4g}"
    digits = int(np.clip(1 - np.floor(np.log10(error)), 0, 8))
    return f"{score:.{digits}f} ± {error:.{digits}f}"


def share(fraction: float) -> str:
    """A share in percent, to two digits.

    >>> share(0.0312), share(0.252), share(0.0004)
    ('3.1 %', '25 %', '<0.1 %')
    """
    percent = 100.0 * fraction
    if 0.0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if percent < 10.0 else f"{percent:.0f} %"


def status(picture: Picture, labels: dict[str, str] | None = None) -> str:
    """What is decided, what is asked, what is left, in one line of text."""
    labels = labels or {}
    told = []
    if picture.required:
        told.append(f"{picture.decided} of {picture.required} pairs decided")
    if picture.given_up:
        told.append(f"{picture.given_up} too close to pursue")
    told.append(f"{picture.asked} items asked, {share(picture.asked / picture.full)} of a full run")
    if picture.hardest:
        first, second = (labels.get(name) or printable(name) for name in picture.hardest)
        told.append(f"hardest: {first} or {second}")
    if picture.items_left > 0:
        left = f"about {picture.items_left} items left"
        if picture.seconds_left is not None:
            left += f", {duration(picture.seconds_left)}"
        told.append(left)
    if picture.stop_reason:
        told.append(f"stopped: {picture.stop_reason}; writing the files")
    return "; ".join(told)


def plain_line(picture: Picture, round_number: int) -> str:
    """The state of a run as one line, for logs."""
    leading = picture.lines[:NAMED_ON_A_LINE]
    names = [line.name for line in picture.lines]
    labels = dict(zip(names, bare_names(names), strict=True))
    standing = "  ".join(
        f"{place} {labels[line.name]} {score_text(line.score, line.error).replace(' ', '')}"
        for place, line in enumerate(leading, 1)
    )
    more = len(picture.lines) - len(leading)
    tail = f"  and {more} more" if more else ""
    return f"round {round_number}: {status(picture, labels)} | {standing}{tail}"


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
            text = f"{record.levelname.lower()}: {record.getMessage()}"
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

            self._console = Console(stderr=True, markup=False, highlight=False, emoji=False)
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
        self._line_at, self._line_for = -np.inf, (-1, 0)
        first = contest.views[0]
        models = len(first.terms.names)
        head = (
            f"{contest.task}: {models} model{'' if models == 1 else 's'}, "
            f"{len(first.state.available)} items, ranked by {first.terms.metric} "
            f"({first.terms.response_model})"
        )
        for text in (head, *first.notices):
            self.console.print(Text(printable(text)), soft_wrap=not self.console.is_terminal)
        if self._is_screen():
            from rich.live import Live

            self._live = Live(
                get_renderable=self._draw,
                console=self.console,
                refresh_per_second=REFRESH,
                vertical_overflow="crop",
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
        if picture is None:
            return Text(f"first round: {fresh} answers" if fresh else "first round: asking")
        left = max(picture.items_left - fresh, 0)
        each = self._clock.seconds_per_item
        now = replace(
            picture,
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
