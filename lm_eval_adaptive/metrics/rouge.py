"""ROUGE F1 by the package rouge-score, per document, the best over the references.

The package's tokenizer drops every letter beyond ASCII; words are cut by ``words`` here, the same
on ASCII texts. This module owns answers too long for the package's quadratic table.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.metrics import words
from lm_eval_adaptive.metrics.base import best_of, require, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

# Cells of the package's table of common subsequences, in pure Python, that take about a second.
_LARGE = 2_000_000


class Words:
    """The package's interface of a tokenizer, over :func:`words.tokens`."""

    def tokenize(self, text: str) -> list[str]:
        """Cut text into words."""
        return words.tokens(text)


@functools.cache
def _scorer(kind: str) -> Any:
    module = require("rouge_score.rouge_scorer", "rouge", "")
    return module.RougeScorer([kind], tokenizer=Words())


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest common subsequence, by bit-parallel addition.

    Source: H. Hyyrö, Bit-parallel LCS-length computation revisited, 2004. It equals the table's
    result and takes a 64th of its steps.

    >>> common_subsequence("abcde", "xbxdx")
    2
    """
    places: dict[str, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    full = (1 << len(first)) - 1
    row = full
    for token in second:
        matched = row & places.get(token, 0)
        row = ((row + matched) | (row - matched)) & full
    return len(first) - row.bit_count()


def _f1(kind: str, answer: str, reference: str) -> float:
    if kind == "rougeL":
        expected, given = words.tokens(reference), words.tokens(answer)
        if len(expected) * len(given) > _LARGE:
            common = common_subsequence(expected, given)
            return 2 * common / (len(expected) + len(given))
    scores = _scorer(kind).score(reference, answer)
    return float(scores[kind].fmeasure)


def _rouge(kind: str, cases: Sequence[Case]) -> list[float]:
    return best_of(cases, functools.partial(_f1, kind))


def rouge1(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """ROUGE-1 F1 in [0, 1]."""
    return _rouge("rouge1", cases)


def rouge2(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """ROUGE-2 F1 in [0, 1]."""
    return _rouge("rouge2", cases)


def rouge_l(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """ROUGE-L F1 in [0, 1]."""
    return _rouge("rougeL", cases)


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The package's version and the rules for words; stemming is off."""
    return f"{name}|rouge-score {version_of('rouge-score')}|stem:no|words:2"
