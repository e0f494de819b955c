"""A run as it stands, drawn: a table for a screen, a line for a log.

This module owns how a picture of a run looks; it imports rich inside functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.report.texts import (
    bare_names,
    duration,
    printable,
    score_text,
    share,
    short_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lm_eval_adaptive.report.snapshot import ModelLine, Picture

NAMED_ON_A_LINE = 4
WAITING = "server away"
STATE_STYLES = {
    WAITING: "red",
    "asking": "cyan",
    "settled": "green",
    "too close": "yellow",
    "at limit": "yellow",
    "undecided": "yellow",
    "failed": "red",
    "known": "dim",
}


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
