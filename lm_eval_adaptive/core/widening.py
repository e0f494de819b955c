"""How much wider errors are than a posterior says, for models it has not seen.

This module owns the constants of the error model and imports nothing but numpy. They were fitted on
simulated tests of held-out calibration models, pooled over 13 real score matrices; the test lengths
enter as l = log(items / 20).

Error of a score: variance e^(SCALE + SCALE_L l) SE^2, plus, where there are two views of the items
(``robust-2pl``), (e^(SHRINK + SHRINK_L l) (score - mean)^2 + e^VIEWS dv^2) times the share of items
not asked; mean is that of the calibration models and dv the difference of the views. Error of a
difference of scores: variance PAIR (items / 20)^PAIR_L SE_ab^2 + PAIR_VIEWS (dv_a - dv_b)^2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Degrees of freedom of score intervals.
INTERVAL_DF = 8.0
SCALE, SCALE_L = 0.25, 0.40
SHRINK, SHRINK_L = -5.6, -0.45
VIEWS = -0.5
PAIR, PAIR_L = 0.98, 0.25
PAIR_VIEWS = 0.05
# Shorter tests than this are treated as this long.
LEAST_ITEMS = 5


def log_length(answered: NDArray[np.int_]) -> FloatArray:
    """The length l of tests of so many items, shape (m,)."""
    return np.asarray(np.log(np.maximum(answered, LEAST_ITEMS) / 20.0))


def pair_factor(answered: NDArray[np.int_]) -> FloatArray:
    """What multiplies the variance of every difference, shape (m, m); the shorter test counts."""
    least = np.minimum(answered[:, None], answered[None, :])
    return np.asarray(PAIR * (np.maximum(least, LEAST_ITEMS) / 20.0) ** PAIR_L)
