"""Sentence BLEU and chrF by sacrebleu, the best over the references.

This module owns the choice of settings: BLEU with effective order, because a perfect three-word
translation would otherwise score 0 for want of four-grams, and by characters where the reference
is of a script without spaces, because a sentence would otherwise be one word.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.metrics import words
from lm_eval_adaptive.metrics.base import best_of, require, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case


@functools.cache
def _scorer(kind: str, tokenize: str) -> Any:
    module = require("sacrebleu.metrics", kind, "")
    if kind == "sentence_bleu":
        return module.BLEU(effective_order=True, tokenize=tokenize)
    return module.CHRF()


def _tokenizer(reference: str) -> str:
    """Sacrebleu's name of the tokenizer; by the reference alone, the same for all models."""
    return "char" if words.mostly_unspaced(reference) else "13a"


def _score(kind: str, answer: str, reference: str) -> float:
    scorer = _scorer(kind, _tokenizer(reference))
    return float(scorer.sentence_score(answer, [reference]).score)


def sentence_bleu(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Sentence BLEU in 0..100: effective order, tokenizer 13a (char for unspaced scripts)."""
    return best_of(cases, functools.partial(_score, "sentence_bleu"))


def sentence_chrf(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Sentence chrF in 0..100, sacrebleu's defaults."""
    return best_of(cases, functools.partial(_score, "sentence_chrf"))


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The package's version."""
    return f"{name}|sacrebleu {version_of('sacrebleu')}"
