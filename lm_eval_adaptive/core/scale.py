"""The map from a metric's own units to scores in [0, 1] and back.

This module owns direction and range; it imports numpy only. A score of 1 is always the best end of
the declared range, whichever way the raw metric points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ScoreScale:
    """A metric's range and direction.

    Attributes:
        lo: Raw value at the low end of the range, metric's units.
        hi: Raw value at the high end, metric's units; above ``lo``.
        higher_is_better: Whether ``hi`` (True) or ``lo`` (False) maps to a score of 1.

    >>> ScoreScale(0.0, 50.0).to_score([0.0, 25.0, 60.0]).tolist()
    [0.0, 0.5, 1.0]
    >>> ScoreScale(0.0, 100.0, higher_is_better=False).to_score([20.0]).tolist()
    [0.8]
    """

    lo: float
    hi: float
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lo) and math.isfinite(self.hi) and self.lo < self.hi):
            raise DataError(
                f"a score range needs two finite numbers, low below high; got [{self.lo}, "
                f"{self.hi}]; a metric that is the same for all answers cannot rank models"
            )

    @property
    def width(self) -> float:
        """Length of the range, metric's units."""
        return self.hi - self.lo

    def to_score(self, raw: ArrayLike) -> FloatArray:
        """Scores in [0, 1]; raw values outside the range are clipped, NaN stays NaN."""
        share = (np.asarray(raw, dtype=np.float64) - self.lo) / self.width
        if not self.higher_is_better:
            share = 1.0 - share
        return np.clip(share, 0.0, 1.0)

    def outside(self, raw: ArrayLike) -> NDArray[np.bool_]:
        """Which raw values lie outside the range, by more than rounding."""
        values = np.asarray(raw, dtype=np.float64)
        slack = 1e-9 * self.width
        return (values < self.lo - slack) | (values > self.hi + slack)

    def to_raw(self, score: ArrayLike) -> FloatArray:
        """Raw values of scores; the inverse of :meth:`to_score` inside the range."""
        share = np.asarray(score, dtype=np.float64)
        if not self.higher_is_better:
            share = 1.0 - share
        return np.asarray(self.lo + share * self.width, dtype=np.float64)
