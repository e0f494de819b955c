"""Rank language models on a generation task by asking each only the documents that tell most.

The public names load on first use, so that ``import lm_eval_adaptive`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_PUBLIC = (
    "AdaptiveConfig",
    "AdaptiveError",
    "CandidateSpec",
    "ItemBank",
    "ScoreMatrix",
    "calibrate",
    "rank",
    "read_scores",
    "simple_evaluate",
)

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604  names only


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lm_eval_adaptive' has no attribute {name!r}")
    return getattr(importlib.import_module("lm_eval_adaptive.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
