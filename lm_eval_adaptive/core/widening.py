"""How much wider errors are than a posterior says, for models it has not seen.

This module owns the constants of the error model and imports nothing but numpy. They were fitted on
simulated tests of models that did not calibrate, pooled over 13 real score matrices and over models
of the bank's own kind, one family, stronger and weaker than all that calibrated, and the best; the
test lengths enter as l = log(items / 20).

Error of a score under ``robust-2pl``: variance e^(SCALE + SCALE_L l) SE^2, plus the share of items
not asked times SHRINK (score - mean)^2 + PLAIN dp^2 + OWN do^2 + LEVEL SE_level^2; mean is that of
the calibration models, dp the difference of the views' mean and the estimate from plain means, do
that of a model's score and the same by regression of its own answers, which has no prior, SE_level
the error of the models' mean score by regression. All of them grow with the distance from the
calibration models. Error of a difference of scores: variance PAIR (items / 20)^PAIR_L SE_ab^2
(1 + PAIR_OUT o^2) + PAIR_VIEWS (dv_a - dv_b)^2 + PAIR_PLAIN (dp_a - dp_b)^2, dv being the
difference of the views, o how far the farther of the two lies outside the range of the calibration
models, in standard deviations of their scores, at most MOST_OUT.

They hold for banks from about FITTED_MODELS models. Fewer know less than their own errors say: all
variances are multiplied by e^(FEW (1/C - 1/17)) for scores, and by that with PAIR_FEW for pairs. C
counts models by their kinds; see ``siblings``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Degrees of freedom of score intervals, and of differences of two scores.
INTERVAL_DF = PAIR_DF = 8.0
SCALE, SCALE_L = -0.55, 0.20
SHRINK, PLAIN, OWN, LEVEL = 0.0025, 0.135, 0.41, 0.59
PAIR, PAIR_L = 0.50, -0.20
PAIR_OUT, MOST_OUT = 0.23, 4.0
PAIR_VIEWS, PAIR_PLAIN = 0.10, 0.12
# Of ``bernoulli-2pl``, whose posterior errors are another's: SCALE, SCALE_L, PAIR and PAIR_L.
BINARY_SCALE, BINARY_SCALE_L = 0.25, 0.40
BINARY_PAIR, BINARY_PAIR_L = 0.68, 0.25
# Shorter tests than this are treated as this long.
LEAST_ITEMS = 5
# Fitted on banks from 3 to 12 models, where intervals of 95 % held .87 to .93 without it.
FEW, PAIR_FEW = 6.0, 3.0
FITTED_MODELS, LEAST_MODELS = 17, 4


def log_length(answered: NDArray[np.int_]) -> FloatArray:
    """The length l of tests of so many items, shape (m,)."""
    return np.asarray(np.log(np.maximum(answered, LEAST_ITEMS) / 20.0))


def lack_of_models(count: float) -> float:
    """How much less C calibration models know than those the constants were fitted on, 1/C - 1/17.

    0 from 17 models on; fewer than 4 count as 4.
    """
    return max(1.0 / max(count, LEAST_MODELS) - 1.0 / FITTED_MODELS, 0.0)


def pair_factor(
    answered: NDArray[np.int_], factor: float = PAIR, power: float = PAIR_L
) -> FloatArray:
    """What multiplies the variance of every difference, shape (m, m); the shorter test counts."""
    least = np.minimum(answered[:, None], answered[None, :])
    return np.asarray(factor * (np.maximum(least, LEAST_ITEMS) / 20.0) ** power)


def score_extra(
    deviation: FloatArray,
    plain_apart: FloatArray,
    own_apart: FloatArray,
    level_var: FloatArray | float,
) -> FloatArray:
    """Variance of a score beyond its posterior's, before the bank's own factor, shape (m,).

    Args:
        deviation: Score less the calibration models' mean, shape (m,).
        plain_apart: Difference of the views' mean and the score from plain means, shape (m,).
        own_apart: Difference of the score and that by regression of the model's own answers.
        level_var: Variance of the models' mean score by regression.
    """
    return np.asarray(
        SHRINK * deviation**2
        + PLAIN * plain_apart**2
        + OWN * own_apart**2
        + LEVEL * np.asarray(level_var)
    )


def distance_outside(score: FloatArray, low: float, high: float, spread: float) -> FloatArray:
    """How far scores lie outside a range, in units of a spread: above positive, below negative."""
    above = np.maximum(score - high, 0.0) - np.maximum(low - score, 0.0)
    return np.asarray(above / max(spread, 1e-9))


def pair_widening(distance: float) -> float:
    """What a model's distance outside the range multiplies variances of its differences by."""
    return 1.0 + PAIR_OUT * min(abs(distance), MOST_OUT) ** 2


def place(distance: float, models: int) -> str:
    """Where a model lies among those that calibrated, in words.

    Args:
        distance: How far outside their range; see :func:`distance_outside`.
        models: How many they are.

    >>> place(0.7, 17)
    'above all 17 calibration models'
    """
    if distance == 0.0:
        return f"within the range of the {models} calibration models"
    return f"{'above' if distance > 0.0 else 'below'} all {models} calibration models"
