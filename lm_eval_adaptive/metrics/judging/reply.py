"""What a judge said: reasoning apart, a verdict on the scale, or the reason why there is none.

This module owns the reading of replies. A reply that the token limit cut is no verdict, whatever
numbers stand in it: the reasoning of a model that got no further names every number of the scale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


class UnansweredError(Exception):
    """One answer gets no verdict from the judge; the message says why."""


@dataclass(frozen=True)
class Reply:
    """A judge's reply.

    Attributes:
        text: As it came, reasoning included.
        finish: Why it ended, in the protocol's words (``stop``, ``length``), "" where not told.
        limit: How many tokens it was allowed, 0 where not known.
    """

    text: str
    finish: str = ""
    limit: int = 0

    @property
    def cut(self) -> bool:
        """Whether the reply ended before the judge did."""
        return self.finish in ("length", "max_tokens") or without_reasoning(self.text) is None


_NUMBER = r"(-?\d{1,20}(?:\.\d{1,20})?)"
# "Score: 7", "**Rating:** [[7]]", '"score": 7', "Score: 7/10"; the last one counts, after the
# reasons. A bare number is a verdict only where it is the whole reply.
_NAMED = re.compile(
    rf"(?:score|rating|verdict|grade)\b[\s\"'*_`:=]{{0,20}}(?:is\s{{1,9}}|[-–]\s{{1,9}})?"
    rf"[\[\s*_(]{{0,20}}{_NUMBER}(?![\w.]{{0,40}}\d)(?!\s{{0,9}}[-–]\s{{0,9}}\d)",
    re.IGNORECASE,
)
_BARE = re.compile(
    rf"[\s\"'*_`\[(]{{0,40}}{_NUMBER}\s{{0,9}}(?:/\s{{0,9}}\d{{1,9}})?[\s\"'*_`\])]{{0,40}}\.?\s{{0,40}}"
)
# A verdict stands at the end; a longer reply is not searched through.
_TAIL = 10_000

# How models mark the reasoning that comes before their reply.
_TRACES = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)


def without_reasoning(text: str) -> str | None:
    r"""The reply after its reasoning, None where the reasoning has no end.

    >>> without_reasoning("<think>A 3? No, an 8.</think>\nScore: 8")
    '\nScore: 8'
    >>> without_reasoning("A 3? No, an 8.</think>Score: 8"), without_reasoning("<think>A score: 1")
    ('Score: 8', None)
    """
    for start, end in _TRACES:
        if text.lstrip()[: len(start)].lower() == start.lower():
            _, found, rest = _cut_at(text, end, last=False)
            return without_reasoning(rest) if found else None
        # Servers that write the start themselves give the end alone.
        _, found, rest = _cut_at(text, end, last=True)
        if found:
            return rest
    return text


def _cut_at(text: str, mark: str, *, last: bool) -> tuple[str, bool, str]:
    lowered = text.lower() if text.isascii() else text
    mark = mark.lower() if text.isascii() else mark
    place = lowered.rfind(mark) if last else lowered.find(mark)
    return (text, False, "") if place < 0 else (text[:place], True, text[place + len(mark) :])


def read_verdict(reply: str, scale: tuple[float, float]) -> float | None:
    r"""The number a judge gave, None where there is none on the scale.

    >>> read_verdict("Mostly right, one date is wrong.\nScore: 7/10", (1, 10))
    7.0
    >>> read_verdict("I would say it is fine.", (1, 10)) is None
    True
    """
    text = without_reasoning(reply)
    if text is None:
        return None
    named = _NAMED.findall(text[-_TAIL:])
    bare = _BARE.fullmatch(text) if len(text) <= _TAIL else None
    number = named[-1] if named else bare.group(1) if bare else None
    if number is None:
        return None
    value = float(number)
    return value if scale[0] <= value <= scale[1] else None


def why_no_verdict(reply: Reply, scale: tuple[float, float]) -> str:
    """The reason for which a reply counts for nothing, "" where it holds a verdict."""
    if reply.cut:
        limit = f" at {reply.limit} tokens" if reply.limit else ""
        return f"the judge's reply was cut{limit} before its verdict"
    if read_verdict(reply.text, scale) is None:
        return f"the judge's reply holds no verdict on {scale[0]:g} to {scale[1]:g}"
    return ""
