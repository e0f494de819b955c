"""Flesch-Kincaid grade level by textstat: years of school that a text asks of its reader.

Lower is better where plain language is the task. This module owns what textstat leaves open: an
answer with nothing to read in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.metrics.base import METRICS, note, require, version_of
from lm_eval_adaptive.metrics.words import mostly_latin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

# The formula counts English syllables. Without a Latin letter there are none to count, and
# textstat's 0 or -3.4 would make saying nothing the plainest language.
_LETTER = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_WORD = re.compile(r"[^\W\d_]+")
# A fifth to a half of any English text.
_ENGLISH = re.compile(
    "the|of|and|to|a|in|is|it|that|for|on|was|with|as|be|by|at|this|are|or|from|an|not|have|has|can|"
    "may|but|which|their|they|we|you|he|she|its|were|will|been|more|than|these"
)
_ENOUGH_WORDS = 20
_ENGLISH_SHARE = 0.05
_FOREIGN = (
    "fkgl counts syllables as English has them: {some} of {of} answers are not in English, and "
    "their grades say little; rank by another metric"
)


def readable(answer: str) -> bool:
    """Whether at least half of an answer's letters are Latin, of which there must be one.

    Below that the rest is what the grade would be of: one Latin name in a Russian answer is a text
    of one word, plainer than any.

    >>> readable("DNA is long."), readable("ДНК (DNA) хранит память"), readable("…")
    (True, False, False)
    """
    return _LETTER.search(answer) is not None and mostly_latin(answer)


def foreign(answer: str) -> bool:
    """Whether an answer of 20 words or more has hardly any of English's commonest words."""
    words = _WORD.findall(answer.lower())
    english = sum(_ENGLISH.fullmatch(word) is not None for word in words)
    return len(words) >= _ENOUGH_WORDS and english < _ENGLISH_SHARE * len(words)


def fkgl(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Grade level of each answer, textstat's own value; lower is better.

    An answer less than half of whose letters are Latin (empty, blank, another script) gets the
    worst of the range, 20. Values are not bounded: a text without a full stop reaches thousands.
    Answers in Latin letters that are not English are graded, counted and told.

    Raises:
        UsageError: textstat, or the dictionary it needs, is missing.
    """
    textstat = require("textstat", "fkgl", METRICS["fkgl"].extra)
    worst = METRICS["fkgl"].hi
    found = []
    for case in cases:
        if not readable(case.answer):
            found.append(worst)
            continue
        try:
            found.append(float(textstat.flesch_kincaid_grade(case.answer)))
        except LookupError as error:
            raise UsageError(
                f"metric fkgl: textstat {version_of('textstat')} looks for the CMU dictionary in "
                'NLTK\'s data and finds none: pip install "lm-eval-adaptive[readability]" takes a '
                "version that brings it, or run python -m nltk.downloader cmudict once"
            ) from error
    written = [case.answer for case in cases if case.answer.strip()]
    note(_FOREIGN, sum(not readable(each) or foreign(each) for each in written), len(written))
    return found


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The package's version: syllables are counted differently between versions."""
    return f"{name}|textstat {version_of('textstat')}|latin:half"
