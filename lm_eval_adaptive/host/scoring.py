"""From what a metric returned for one document to one number.

This module owns the shapes of metric values: plain numbers, and the pairs that corpus metrics of
the harness collect per document. It imports sacrebleu inside functions; ranges and directions are
``core.scale``'s business.
"""

from __future__ import annotations

import numbers
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.metrics import OPEN_ENDED as _OWN_OPEN_ENDED
from lm_eval_adaptive.metrics import known_directions, known_ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Metrics for which the harness keeps (reference, prediction) per document and computes one corpus
# score at the end. Each document is scored alone here; BLEU with effective order, because a
# perfect three-word answer would otherwise score 0 for want of four-grams.
CORPUS_METRICS = ("bleu", "chrf", "chrf++", "ter")

# Metrics of a whole run that no single document has a score for, with the reason.
_NOT_PER_DOCUMENT = {
    "f1": "is computed over all documents from (gold, predicted) labels",
    "mcc": "is computed over all documents from (gold, predicted) labels",
    "brier_score": "is computed over all documents from (gold, probabilities)",
    "word_perplexity": "weighs documents by their length",
    "byte_perplexity": "weighs documents by their length",
    "bits_per_byte": "weighs documents by their length",
    "likelihood": "is computed over all documents",
}

# Ranges of metrics by name; those of this package first.
KNOWN_RANGES: dict[str, tuple[float, float]] = {
    **known_ranges(),
    "bleu": (0.0, 100.0),
    "chrf": (0.0, 100.0),
    "chrf++": (0.0, 100.0),
    "ter": (0.0, 100.0),
    "exact_match": (0.0, 1.0),
    "acc": (0.0, 1.0),
}

# Metrics whose single values can pass an end of their range by their nature: they are clipped
# there, and counted.
OPEN_ENDED = frozenset({"ter"}) | _OWN_OPEN_ENDED

# Directions that task configurations and old logs are known to get wrong.
KNOWN_DIRECTIONS: dict[str, bool] = {"ter": False}

# Directions by name where nobody says: error rates, and MetricX, which counts errors.
_USUAL_DIRECTIONS = {
    **dict.fromkeys(("wer", "cer", "mer", "wil", "ter", "metricx"), False),
    **dict.fromkeys(("exact_match", "acc", "acc_norm", "em", "f1"), True),
}

# Shares of documents solved within k attempts, as the harness's code tasks name them.
_SHARE_AT_K = re.compile(r"(pass|acc|maj)(@|_at_)(\d+|k)", re.IGNORECASE)


def direction(metric: str, logged: bool | None) -> bool | None:
    """Whether a higher value is better, None where nobody says.

    Args:
        metric: Its name.
        logged: What the logs say, None where they do not.

    >>> direction("ter", True), direction("fkgl", None), direction("mine", None)
    (False, False, None)
    >>> direction("pass@1", None), direction("pass_at_k", None), direction("exact_match", None)
    (True, True, True)
    """
    if metric in KNOWN_DIRECTIONS:
        return KNOWN_DIRECTIONS[metric]
    if logged is not None:
        return logged
    if _SHARE_AT_K.fullmatch(metric):
        return True
    return {**_USUAL_DIRECTIONS, **known_directions()}.get(metric)


@cache
def _corpus_scorer(metric: str) -> Callable[[str, Sequence[str]], float]:
    from sacrebleu.metrics import BLEU, CHRF, TER

    scorer: Any = {
        "bleu": lambda: BLEU(effective_order=True),
        "chrf": CHRF,
        "chrf++": lambda: CHRF(word_order=2),
        "ter": TER,
    }[metric]()
    return lambda prediction, references: float(
        scorer.sentence_score(prediction, list(references)).score
    )


def document_score(metric: str, value: object) -> float:
    """One document's score as a number, in the metric's own units.

    Args:
        metric: The metric's name, as a key of ``process_results``.
        value: What ``process_results`` returned for the document.

    Returns:
        The number; NaN where the metric returned NaN.

    Raises:
        DataError: The value is not a number and no known pair; the message names its kind.

    >>> document_score("rougeL", 0.25)
    0.25
    >>> round(document_score("bleu", ["the cat sat", "the cat sat"]), 6)
    100.0
    """
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, list | tuple) and len(value) == 1:  # as functions of hf_evaluate give it
        return document_score(metric, value[0])
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "size", None) == 1:  # 0-d arrays and tensors
        return float(item())
    if metric in CORPUS_METRICS and isinstance(value, list | tuple) and len(value) == 2:
        reference, prediction = value
        if isinstance(prediction, list | tuple):
            prediction = prediction[0]
        references = list(reference) if isinstance(reference, list | tuple) else [reference]
        return _corpus_scorer(metric)(str(prediction), [str(each) for each in references])
    reason = _NOT_PER_DOCUMENT.get(metric, f"gives {_describe(value)} for a document, not a number")
    raise DataError(
        f"metric {metric!r} cannot rank models document by document: it {reason}; choose another "
        "with --metric"
    )


def _describe(value: object) -> str:
    if value is None:
        return "nothing (None)"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
