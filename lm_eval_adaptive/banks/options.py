"""What ``calibrate`` can be asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lm_eval_adaptive.errors import UsageError


@dataclass(frozen=True)
class CalibrateOptions:
    """What ``calibrate`` was asked for; see its ``--help``."""

    task: str = ""
    metric: str = ""
    samples: tuple[str, ...] = ()
    scores: str | None = None
    exclude_model: tuple[str, ...] = ()
    response_model: str = "auto"
    score_range: tuple[float, float] | None = None
    clip: bool = False
    lower_is_better: bool | None = None
    allow: tuple[str, ...] = ()
    licence: str = ""
    update: str | None = None
    include_path: str = ""


def parse_range(text: str) -> tuple[float, float]:
    """``LO,HI`` as two numbers.

    >>> parse_range("0,100")
    (0.0, 100.0)
    """
    try:
        lo, hi = (float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--range takes two numbers LO,HI, got {text!r}; for example --range 0,100"
        ) from error
    if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise UsageError(
            f"--range takes two finite numbers LO,HI, LO below HI, got {text!r}; for example "
            "--range 0,100"
        )
    return lo, hi
