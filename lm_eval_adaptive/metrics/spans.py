"""Spans of text with labels: how many an answer found, and how many of those it named right.

This module owns the reading of ``EXTRACTED_TEXT | LABEL`` lines and the matching of spans; it
needs no package.
"""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.metrics.base import Missing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

Span = tuple[str, str]

_NO_SPANS = Missing("the document has no spans")
EXACT = 1.0
CONTAINED = 0.5
_BULLET = re.compile(r"^(?:[-*•]|\d+[.)])\s+")
_SPACES = re.compile(r"\s+")
_LABEL_GAPS = re.compile(r"[\s\-]+")


def plain_text(text: object) -> str:
    """Text as it is compared: case, runs of spaces and ways to write an accent do not count."""
    return _SPACES.sub(" ", _composed(str(text).casefold())).strip()


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def plain_label(label: object) -> str:
    """Label as it is compared.

    >>> plain_label(" Phone-Number")
    'phone_number'
    """
    return _LABEL_GAPS.sub("_", _composed(str(label).strip().strip("`*\"'[]<>").casefold()))


def read_answer(answer: str) -> list[Span]:
    r"""The spans of an answer's lines; lines without a bar are passed over.

    >>> read_answer("Here they are:\n- Ann Lee | first name\n555 | 0199 | phone_number")
    [('ann lee', 'first_name'), ('555 | 0199', 'phone_number')]
    """
    found: dict[Span, None] = {}
    for line in answer.splitlines():
        text, bar, label = line.strip().rpartition("|")
        text = plain_text(_BULLET.sub("", text).strip().strip("`\"'"))
        if bar and text and plain_label(label):
            found[text, plain_label(label)] = None
    return list(found)


def read_gold(value: Any) -> list[Span]:
    """The spans of a document: dicts with text and label, or a list of them written as text.

    Raises:
        DataError: The value is nothing of the kind.
    """
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, list | tuple):
        raise DataError(f"spans must be a list of {{text, label}}, got {type(value).__name__}")
    found: dict[Span, None] = {}
    for span in value:
        if not isinstance(span, dict) or "text" not in span or "label" not in span:
            raise DataError(f"a span must have text and label, got {str(span)[:60]!r}")
        if plain_text(span["text"]):
            found[plain_text(span["text"]), plain_label(span["label"])] = None
    return list(found)


def _parsed(text: str) -> Any:
    """A list written as JSON, or as Python as the dataset has it; nothing is executed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise DataError(
                f"spans must be a list of {{text, label}} or its text form, got {text[:60]!r}; "
                "check the dataset's revision"
            ) from error


def match(gold: Sequence[Span], given: Sequence[Span]) -> list[tuple[int, int, float]]:
    """Pairs of spans that stand for each other, each span in one pair at most.

    Equal texts first, then texts one of which holds the other, the most alike in length first;
    among equals, the pair of one label, then the order of the spans.

    Returns:
        (place in gold, place in given, credit) with credit 1 or 0.5.
    """
    candidates = []
    for row, (text, label) in enumerate(gold):
        for column, (answer, name) in enumerate(given):
            if text == answer:
                candidates.append((-EXACT, 0.0, label != name, row, column))
            elif text in answer or answer in text:
                likeness = min(len(text), len(answer)) / max(len(text), len(answer))
                candidates.append((-CONTAINED, -likeness, label != name, row, column))
    rows: set[int] = set()
    columns: set[int] = set()
    found = []
    for credit, _, _, row, column in sorted(candidates):
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            found.append((row, column, -credit))
    return found


def score(gold: Sequence[Span], given: Sequence[Span]) -> float:
    """Mean of a detection F1 and of the share of right labels among matched spans, in [0, 1].

    Detection: F1 = 2 × credit / (number of gold spans + number of given ones), a match of equal
    texts counting 1, of one inside the other 0.5. Nothing to find and nothing given scores 1.

    >>> score([("ann", "first_name"), ("lee", "last_name")], [("ann", "first_name")])
    0.8333333333333333
    """
    if not gold and not given:
        return 1.0
    pairs = match(gold, given)
    detection = 2.0 * sum(credit for _, _, credit in pairs) / (len(gold) + len(given))
    right = sum(gold[row][1] == given[column][1] for row, column, _ in pairs)
    named = right / len(pairs) if pairs else 0.0
    return (detection + named) / 2.0


def _span_score(case: Case) -> float:
    if case.doc.get("spans") is None:
        return _NO_SPANS
    try:
        return score(read_gold(case.doc["spans"]), read_answer(case.answer))
    except DataError as error:  # this document's, not the run's
        return Missing(str(error))


def span_score(cases: Sequence[Case], settings: Mapping[str, Any]) -> list[float]:
    """Span score of each answer against the ``spans`` of its document.

    Missing where the document has no such column, or something else in it.
    """
    del settings
    return [_span_score(case) for case in cases]


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The version of the matching rules."""
    return f"{name}|rules 2"
