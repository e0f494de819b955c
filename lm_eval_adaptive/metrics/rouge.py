"""ROUGE F1 by the package rouge-score, per document, the best over the references.

This module owns two things the package lacks: words of scripts that its tokenizer drops, and
answers too long for its quadratic table.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.metrics.base import best_of, require, unspaced, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case

# Cells of the package's table of common subsequences, in pure Python, that take about a second.
_LARGE = 2_000_000
_WORD = re.compile(r"[^\W_]+")


class UnicodeTokenizer:
    """Words of any script, lower-cased; single characters where a script has no spaces."""

    def tokenize(self, text: str) -> list[str]:
        """Cut text into words.

        >>> UnicodeTokenizer().tokenize("Ça va, 東京!")
        ['ça', 'va', '東', '京']
        """
        found: list[str] = []
        for word in _WORD.findall(unicodedata.normalize("NFC", text).lower()):
            start = 0
            for place, char in enumerate(word):
                if unspaced(char):
                    found += [word[start:place], char]
                    start = place + 1
            found.append(word[start:])
        return [word for word in found if word]


@functools.cache
def _tokenizers() -> tuple[Any, Any]:
    module = require("rouge_score.tokenizers", "rouge", "")
    return module.DefaultTokenizer(use_stemmer=False), UnicodeTokenizer()


@functools.cache
def _scorer(kind: str, *, any_script: bool) -> Any:
    module = require("rouge_score.rouge_scorer", "rouge", "")
    return module.RougeScorer([kind], tokenizer=_tokenizers()[any_script])


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
    default, unicode = _tokenizers()
    expected = default.tokenize(reference)
    # Depends on the reference alone, so that all models' answers are read alike.
    any_script = not expected
    if kind == "rougeL":
        tokenizer = unicode if any_script else default
        expected, given = tokenizer.tokenize(reference), tokenizer.tokenize(answer)
        if len(expected) * len(given) > _LARGE:
            common = common_subsequence(expected, given)
            return 2 * common / (len(expected) + len(given))
    scores = _scorer(kind, any_script=any_script).score(reference, answer)
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
    """The package's version; stemming is off."""
    return f"{name}|rouge-score {version_of('rouge-score')}|stem:no"
