"""What is believed about models.

This module owns the shape of beliefs that all inferences share; it imports numpy and scipy only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.agreement import Agreement
    from lm_eval_adaptive.core.joint import Latent

    FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Estimates:
    """What is believed about m models.

    Attributes:
        theta: Posterior means (``paper-1pl``: modes), shape (m,), logits.
        theta_se: Standard errors, shape (m,), logits.
        score: Full-benchmark scores, shape (m,), in [0, 1].
        score_cov: Their covariance, shape (m, m).
        level: What the ranking compares, shape (m,): score, or theta under ``paper-1pl``.
        level_cov: Covariance of ``level``, shape (m, m).
        pair_var: Variance of every difference of two levels, shape (m, m), where it is not that of
            ``level_cov``.
        interval_df: Degrees of freedom of score intervals; infinite for normal ones.
        pair_df: Degrees of freedom of differences of two levels.
        misfit: How badly each model's answers fit, shape (m,), near 1 where they do; None where
            the response model does not tell.
        grid: Abilities of the posterior's grid, shape (g,), logits; None without one.
        weights: Posterior weights over it, shape (m, g), rows sum to 1; None without a grid.
        latents: Joint posteriors under each view; empty where there are none.
        half_interval: Half widths of the scores' 95 % intervals, shape (m,), where they are not
            those of ``interval_df``.
        within: Confidence that two scores differ by less than the margin of equivalence, shape
            (m, m), where it is not that of ``score_cov``.
        outside: How far each score lies outside the calibration models' range, shape (m,), in
            standard deviations of their scores, above positive; None where there is no bank.
        agreement: Whether the models bear the bank out; None where it cannot be told.
    """

    theta: FloatArray
    theta_se: FloatArray
    score: FloatArray
    score_cov: FloatArray
    level: FloatArray
    level_cov: FloatArray
    pair_var: FloatArray | None = None
    interval_df: float = math.inf
    pair_df: float = math.inf
    misfit: FloatArray | None = None
    grid: FloatArray | None = None
    weights: FloatArray | None = None
    latents: tuple[Latent, ...] = ()
    half_interval: FloatArray | None = None
    within: FloatArray | None = None
    outside: FloatArray | None = None
    agreement: Agreement | None = None

    @property
    def score_se(self) -> FloatArray:
        """Standard errors of the full-benchmark scores, shape (m,)."""
        return np.sqrt(np.diag(self.score_cov))

    @property
    def score_half_interval(self) -> FloatArray:
        """Half widths of the scores' 95 % intervals, shape (m,), in [0, 1] units."""
        if self.half_interval is not None:
            return self.half_interval
        return float(stdtrit(self.interval_df, 0.975)) * self.score_se

    @property
    def level_se(self) -> FloatArray:
        """Standard errors of what the ranking compares, shape (m,)."""
        return np.sqrt(np.diag(self.level_cov))

    def take(self, rows: NDArray[np.intp]) -> Estimates:
        """Beliefs about some of the models; the grid and the views stay those of all."""

        def square(found: FloatArray | None) -> FloatArray | None:
            return None if found is None else found[np.ix_(rows, rows)]

        return replace(
            self,
            theta=self.theta[rows],
            theta_se=self.theta_se[rows],
            score=self.score[rows],
            score_cov=self.score_cov[np.ix_(rows, rows)],
            level=self.level[rows],
            level_cov=self.level_cov[np.ix_(rows, rows)],
            pair_var=square(self.pair_var),
            within=square(self.within),
            outside=None if self.outside is None else self.outside[rows],
        )
