"""Rank language models on a generation task by asking each only the documents that tell most.

The public names load on first use, so that ``import lm_eval_adaptive`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "AdaptiveConfig": "lm_eval_adaptive.run.config",
    "AdaptiveError": "lm_eval_adaptive.errors",
    "CandidateSpec": "lm_eval_adaptive.host.settings",
    "ItemBank": "lm_eval_adaptive.core.bank",
    "ScoreMatrix": "lm_eval_adaptive.core.matrix",
    "calibrate": "lm_eval_adaptive.core.build",
    "rank": "lm_eval_adaptive.core.rank",
    "read_scores": "lm_eval_adaptive.core.matrix",
    "simple_evaluate": "lm_eval_adaptive.run.loop",
}

__all__ = ["__version__", *sorted(_WHERE)]  # noqa: PLE0604  names only


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'lm_eval_adaptive' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
