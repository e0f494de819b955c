"""Names and numbers as a person reads them in a terminal."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.redact import redact_words

if TYPE_CHECKING:
    from collections.abc import Sequence


def command_line(words: Sequence[str]) -> str:
    """The command line without secrets: a report is made to be passed on."""
    return f"lm-eval-adaptive {shlex.join(redact_words(words))}" if words else ""


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


def console_of_users() -> Any:
    """A rich console on standard output that takes nothing in a text for markup."""
    from rich.console import Console

    # Names of models, tasks and metrics are the users' own: nothing in them is markup.
    return Console(soft_wrap=False, markup=False, highlight=False, emoji=False)
