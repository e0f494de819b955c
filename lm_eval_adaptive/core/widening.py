"""How much wider errors are than a posterior says, for models it has not seen.

This module owns the constants of the error model and imports nothing but numpy. They were fitted on
simulated tests of held-out calibration models, pooled over 13 real score matrices, but for PLAIN,
which is a guess that left coverage as it was; the test lengths enter as l = log(items / 20).

Error of a score: variance e^(SCALE + SCALE_L l) SE^2, plus, where there are several estimates
(``robust-2pl``), (e^(SHRINK + SHRINK_L l) (score - mean)^2 + e^VIEWS dv^2 + PLAIN dp^2) times the
share of items not asked; mean is that of the calibration models, dv the difference of the views and
dp that of the views' mean and the estimate from plain means. Error of a difference of scores:
variance PAIR (items / 20)^PAIR_L SE_ab^2 + PAIR_VIEWS (dv_a - dv_b)^2 + PAIR_PLAIN (dp_a - dp_b)^2.

They hold for banks from about FITTED_MODELS models. Fewer know less than their own errors say: all
variances are multiplied by e^(FEW (1/C - 1/17)) for scores, and by that with PAIR_FEW for pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Degrees of freedom of score intervals, and of differences of two scores.
INTERVAL_DF = PAIR_DF = 8.0
SCALE, SCALE_L = 0.25, 0.40
SHRINK, SHRINK_L = -5.6, -0.45
VIEWS = -0.5
PLAIN = 0.1
PAIR, PAIR_L = 0.68, 0.25
PAIR_VIEWS = 0.036
PAIR_PLAIN = 0.11
# Shorter tests than this are treated as this long.
LEAST_ITEMS = 5
# Fitted on banks from 3 to 12 models, where intervals of 95 % held .87 to .93 without it.
FEW, PAIR_FEW = 6.0, 3.0
FITTED_MODELS, LEAST_MODELS = 17, 4


def log_length(answered: NDArray[np.int_]) -> FloatArray:
    """The length l of tests of so many items, shape (m,)."""
    return np.asarray(np.log(np.maximum(answered, LEAST_ITEMS) / 20.0))


def lack_of_models(count: int) -> float:
    """How much less C calibration models know than those the constants were fitted on, 1/C - 1/17.

    0 from 17 models on; fewer than 4 count as 4.
    """
    return max(1.0 / max(count, LEAST_MODELS) - 1.0 / FITTED_MODELS, 0.0)


def pair_factor(answered: NDArray[np.int_]) -> FloatArray:
    """What multiplies the variance of every difference, shape (m, m); the shorter test counts."""
    least = np.minimum(answered[:, None], answered[None, :])
    return np.asarray(PAIR * (np.maximum(least, LEAST_ITEMS) / 20.0) ** PAIR_L)


def score_extra(
    deviation: FloatArray, views_apart: FloatArray, plain_apart: FloatArray, length: FloatArray
) -> FloatArray:
    """Variance of a score beyond its posterior's, before the bank's own factor, shape (m,).

    Args:
        deviation: Score less the calibration models' mean, shape (m,).
        views_apart: Difference of the two views' scores, shape (m,).
        plain_apart: Difference of their mean and the score from plain means, shape (m,).
        length: log(items / 20), shape (m,).
    """
    return np.asarray(
        np.exp(SHRINK + SHRINK_L * length) * deviation**2
        + np.exp(VIEWS) * views_apart**2
        + PLAIN * plain_apart**2
    )
