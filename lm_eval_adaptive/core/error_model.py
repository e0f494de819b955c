"""From pooled estimates to errors that hold out of sample.

This module owns how the errors of ``robust-2pl``'s scores and pairs are made: posterior errors are
too small where a new model differs from all that calibrated, so they are widened, by constants
common to all banks, by the distance from these models, and by a factor of the bank's own. It
imports numpy, the constants and the shape of a bank's correction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.widening import (
    FEW,
    MOST_OUT,
    PAIR_FEW,
    PAIR_OUT,
    PAIR_PLAIN,
    PAIR_VIEWS,
    SCALE,
    SCALE_L,
    distance_outside,
    lack_of_models,
    log_length,
    pair_factor,
    score_extra,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.correction import Correction
    from lm_eval_adaptive.core.pooled import Pooled

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.int_]

# Models whose answers fit badly get their error widened: phi = ((n misfit + 10) / (n + 10))^1.25.
MISFIT_ITEMS, MISFIT_POWER = 10.0, 1.25


@dataclass(frozen=True)
class ErrorModel:
    """What is added to a posterior's errors; see ``widening`` for the formulas.

    Attributes:
        means: Full scores of the calibration models.
        score_scale: Logarithm of what multiplies the variances of scores.
        pair_scale: Logarithm of what multiplies the variances of differences.
    """

    means: FloatArray
    score_scale: float
    pair_scale: float

    @classmethod
    def of(cls, means: FloatArray, kinds: float, correction: Correction | None) -> ErrorModel:
        """That of a bank.

        Args:
            means: Full scores of its calibration models.
            kinds: How many models they count for; see ``siblings``.
            correction: What the bank learned from its own held-out models.
        """
        log_scale = 0.0 if correction is None else correction.log_scale
        lack = lack_of_models(kinds)
        return cls(means, log_scale + FEW * lack, log_scale / 2.0 + PAIR_FEW * lack)

    def outside(self, score: FloatArray) -> FloatArray:
        """How far scores lie outside the calibration models' range, shape (m,).

        In standard deviations of these models' scores; above positive, below negative.
        """
        low, high = float(self.means.min()), float(self.means.max())
        return distance_outside(score, low, high, float(self.means.std()))

    def level_cov(self, found: Pooled, answered: IntArray) -> FloatArray:
        """Posterior covariance of the scores, wider where a model's answers fit badly: (m, m)."""
        phi = (answered * found.misfit + MISFIT_ITEMS) / (answered + MISFIT_ITEMS)
        phi = phi**MISFIT_POWER
        return np.asarray(found.cov * np.sqrt(phi[:, None] * phi[None, :]))

    def score_cov(
        self, found: Pooled, cov: FloatArray, answered: IntArray, open_share: FloatArray
    ) -> FloatArray:
        """Covariance of the errors of full scores, shape (m, m).

        Args:
            found: The estimates.
            cov: Their covariance, see :meth:`level_cov`.
            answered: Items answered, shape (m,).
            open_share: Share of the items not asked, shape (m,).
        """
        length = log_length(answered)
        factor = np.exp((self.score_scale + SCALE + SCALE_L * length) / 2.0)
        deviation = found.score - float(self.means.mean())
        extra = score_extra(deviation, found.plain_apart, found.own_apart, found.level_var)
        own = np.exp(self.score_scale) * extra * open_share
        return np.asarray(cov * factor[:, None] * factor[None, :] + np.diag(own))

    def pair_var(self, found: Pooled, cov: FloatArray, answered: IntArray) -> FloatArray:
        """Variance of the error of every difference of two scores; arguments as above: (m, m)."""
        own = np.diag(cov)
        differ = np.maximum(own[:, None] + own[None, :] - 2.0 * cov, 0.0)
        variance = pair_factor(answered) * self.pair_widening(found.score) * differ
        for share, apart in ((PAIR_VIEWS, found.views_apart), (PAIR_PLAIN, found.plain_apart)):
            variance += share * (apart[:, None] - apart[None, :]) ** 2
        return np.asarray(np.exp(self.pair_scale) * variance)

    def pair_widening(self, score: FloatArray) -> FloatArray:
        """What the distance of the farther of two models multiplies their variance by: (m, m)."""
        out = np.minimum(np.abs(self.outside(score)), MOST_OUT)
        return np.asarray(1.0 + PAIR_OUT * np.maximum(out[:, None], out[None, :]) ** 2)
