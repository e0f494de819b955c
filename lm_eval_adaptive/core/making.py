"""How good a bank would be that is made from a part of a benchmark's answers, and when more pays.

This module owns that forecast; it imports the calibration and its hold-outs. All models answer the
same documents: of designs in which each model answers another part, with some documents in common,
none came near (docs/banks.md). What such a bank does not know is the documents that nobody
answered: scores on the part stand for scores on the whole, with a sampling error that falls with
its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.crossvalidation import cross_validated_correction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Length of the tests that the forecast is of.
TEST_ITEMS = 20
# Least fall of the error, as a share of it, for which a further step pays.
LEAST_FALL = 0.03


@dataclass(frozen=True)
class Promise:
    """What a bank of a part of the documents would do.

    Attributes:
        items: Documents answered so far.
        within: Root mean squared error of held-out models' scores on these documents after tests
            of 20 items, in [0, 1].
        beyond: Standard error of scores on these documents as scores on the whole benchmark, what
            is common to all models left out.
        correlation: Of held-out models' estimated and true scores.
        after: Error against the whole benchmark after the next step.
    """

    items: int
    within: float
    beyond: float
    correlation: float
    after: float

    @property
    def error(self) -> float:
        """Error of a test of 20 items against the whole benchmark, in [0, 1]."""
        return float(np.hypot(self.within, self.beyond))

    @property
    def pays(self) -> bool:
        """Whether the next step would make the bank better by more than it is worth saying."""
        return self.after < (1.0 - LEAST_FALL) * self.error


def promise(scores: FloatArray, total: int, following: int) -> Promise | None:
    """The forecast from the answers so far.

    Args:
        scores: Of C models on the documents answered, shape (C, k), in [0, 1], NaN where missing.
        total: Documents of the benchmark.
        following: Documents after the next step.

    Returns:
        None where it cannot be told: with fewer than 8 models, or too few documents to test by.
    """
    part = scores[:, np.isfinite(scores).all(axis=0)]
    if part.shape[1] <= TEST_ITEMS or np.ptp(part.mean(axis=1)) <= 0.0:
        return None
    told = cross_validated_correction(part)
    if told is None or not told.lengths:
        return None
    held = told.lengths.get(TEST_ITEMS) or told.lengths[max(told.lengths)]
    items = part.shape[1]
    own = part - part.mean(axis=0)
    spread = float(own.var(axis=1, ddof=1).mean())

    def beyond(count: int) -> float:
        return float(np.sqrt(spread / count * max(1.0 - count / total, 0.0)))

    return Promise(
        items=items,
        within=held.rmse,
        beyond=beyond(items),
        correlation=held.correlation,
        after=float(np.hypot(held.rmse, beyond(following))),
    )
