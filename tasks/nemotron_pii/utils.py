"""Documents and metric of the task ``nemotron_pii``."""

from __future__ import annotations

import random
from typing import Any

from lm_eval_adaptive.metrics import document_metrics
from lm_eval_adaptive.metrics.spans import read_gold

SEED = 2601
SIZE = 2000

process_results = document_metrics("span_score")


def sample(docs: Any) -> Any:
    """The task's fixed sample: 2,000 documents by seed, in the dataset's order."""
    if len(docs) <= SIZE:
        return docs
    return docs.select(sorted(random.Random(SEED).sample(range(len(docs)), SIZE)))


def doc_to_target(doc: dict[str, Any]) -> str:
    """The spans as an answer would list them."""
    return "\n".join(f"{text} | {label}" for text, label in read_gold(doc["spans"]))
