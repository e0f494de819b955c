"""Sentence BLEU and chrF by sacrebleu, the best over the references.

This module owns nothing but the choice of settings: BLEU with effective order, because a perfect
three-word translation would otherwise score 0 for want of four-grams.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.metrics.base import best_of, require, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.metrics.base import Case


@functools.cache
def _scorer(kind: str) -> Any:
    module = require("sacrebleu.metrics", kind, "")
    return module.BLEU(effective_order=True) if kind == "sentence_bleu" else module.CHRF()


def _score(kind: str, answer: str, reference: str) -> float:
    return float(_scorer(kind).sentence_score(answer, [reference]).score)


def sentence_bleu(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Sentence BLEU in 0..100, sacrebleu's defaults with effective order."""
    return best_of(cases, functools.partial(_score, "sentence_bleu"))


def sentence_chrf(cases: Sequence[Case], _: Mapping[str, Any]) -> list[float]:
    """Sentence chrF in 0..100, sacrebleu's defaults."""
    return best_of(cases, functools.partial(_score, "sentence_chrf"))


def signature(name: str, _: Mapping[str, Any]) -> str:
    """The package's version."""
    return f"{name}|sacrebleu {version_of('sacrebleu')}"
