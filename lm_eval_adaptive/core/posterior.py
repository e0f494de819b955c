"""From answers to abilities and full-benchmark scores with their errors.

This module owns the posterior: a grid over theta, recomputed from all of a model's responses, so
that the order of the questions does not matter. It imports numpy, scipy and the response formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, stdtrit

from lm_eval_adaptive.core.response import (
    expected_score,
    information,
    log_likelihood,
    variance,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.response import ItemParameters

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
        misfit: How badly each model's answers fit, shape (m,), near 1 where they do; None where
            the response model does not tell.
        grid: Abilities of the posterior's grid, shape (g,), logits; None without one.
        weights: Posterior weights over it, shape (m, g), rows sum to 1; None without a grid.
        latents: Joint posteriors under each view; empty where there are none.
    """

    theta: FloatArray
    theta_se: FloatArray
    score: FloatArray
    score_cov: FloatArray
    level: FloatArray
    level_cov: FloatArray
    pair_var: FloatArray | None = None
    interval_df: float = math.inf
    misfit: FloatArray | None = None
    grid: FloatArray | None = None
    weights: FloatArray | None = None
    latents: tuple[Latent, ...] = ()

    @property
    def score_se(self) -> FloatArray:
        """Standard errors of the full-benchmark scores, shape (m,)."""
        return np.sqrt(np.diag(self.score_cov))

    @property
    def score_half_interval(self) -> FloatArray:
        """Half widths of the scores' 95 % intervals, shape (m,), in [0, 1] units."""
        return float(stdtrit(self.interval_df, 0.975)) * self.score_se

    @property
    def level_se(self) -> FloatArray:
        """Standard errors of what the ranking compares, shape (m,)."""
        return np.sqrt(np.diag(self.level_cov))


class Posterior:
    """Beliefs about models from their responses, under one bank's parameters.

    Args:
        items: Parameters of the bank's n items.
        parameters: The response model's global parameters, as calibration returned them.
    """

    shared = False

    def __init__(self, items: ItemParameters, parameters: dict[str, float]) -> None:
        self.items = items
        self.parameters = parameters
        self.is_paper = items.model == "paper-1pl"
        mean, sd = parameters["prior_mean"], parameters["prior_sd"]
        # robust-2pl's abilities are standardised, so +-4 holds every model; the paper's prior is
        # wide, and its grid must be finer than one answer's precision.
        half, points = (4.0 * sd, 801) if self.is_paper else (4.0, 121)
        self.grid: FloatArray = np.linspace(mean - half, mean + half, points)
        self.log_prior: FloatArray = -0.5 * ((self.grid - mean) / sd) ** 2
        self._expected = expected_score(self.grid, items)
        self._information = information(self.grid, items)
        self._variance = variance(self.grid, items)

    def weights(self, responses: FloatArray) -> FloatArray:
        """Posterior weights over the grid, shape (m, g), from responses of shape (m, n)."""
        out = np.empty((len(responses), len(self.grid)))
        for row, scores in enumerate(responses):
            asked = np.flatnonzero(np.isfinite(scores))
            log_weight = self.log_prior
            if len(asked):
                log_weight = log_weight + log_likelihood(
                    self.grid, self.items.take(asked), scores[asked]
                )
            weight = np.exp(log_weight - log_weight.max())
            out[row] = weight / weight.sum()
        return out

    def estimate(self, responses: FloatArray) -> Estimates:
        """Abilities and scores of m models.

        Args:
            responses: Shape (m, n), scores in [0, 1], NaN where not asked.

        Returns:
            Estimates of all m models; the same whatever order the items were asked in.
        """
        weights = self.weights(responses)
        if self.is_paper:
            return self._estimate_paper(responses, weights)
        theta = weights @ self.grid
        theta_se = np.sqrt(np.maximum(weights @ self.grid**2 - theta**2, 0.0))
        score = np.empty(len(responses))
        score_se = np.empty(len(responses))
        n = responses.shape[1]
        for row, scores in enumerate(responses):
            open_items = ~np.isfinite(scores)
            # The full score: what was observed, and what the rest is expected to give.
            full = (np.nansum(scores) + (self._expected[:, open_items]).sum(axis=1)) / n
            score[row] = weights[row] @ full
            spread = weights[row] @ (full - score[row]) ** 2
            chance = weights[row] @ self._variance[:, open_items].sum(axis=1) / n**2
            score_se[row] = np.sqrt(spread + chance)
        cov = np.diag(score_se**2)
        return Estimates(theta, theta_se, score, cov, score, cov, grid=self.grid, weights=weights)

    def _estimate_paper(self, responses: FloatArray, weights: FloatArray) -> Estimates:
        """The paper's estimate: the mode, and SE = 1 / sqrt(sum of information at it)."""
        prior_mean, prior_sd = self.parameters["prior_mean"], self.parameters["prior_sd"]
        theta = np.full(len(responses), prior_mean)
        theta_se = np.full(len(responses), prior_sd)
        for row, scores in enumerate(responses):
            asked = np.flatnonzero(np.isfinite(scores))
            if not len(asked):
                continue
            items = self.items.take(asked)
            mode = float(self.grid[int(np.argmax(weights[row]))])
            k = items.noise
            for _ in range(50):
                mu = expit(mode - items.difficulty)
                slope = ((scores[asked] - mu) / k).sum() - (mode - prior_mean) / prior_sd**2
                curvature = (mu * (1.0 - mu) / k).sum() + 1.0 / prior_sd**2
                step = float(np.clip(slope / curvature, -1.0, 1.0))
                mode += step
                if abs(step) < 1e-10:
                    break
            theta[row] = mode
            theta_se[row] = 1.0 / np.sqrt(information(np.array([mode]), items).sum())
        link = self.parameters
        score = expit(link["score_intercept"] + link["score_slope"] * theta)
        score_var = (link["score_slope"] * score * (1.0 - score) * theta_se) ** 2
        score_cov = np.diag(score_var + link["score_sd"] ** 2)
        level_cov = np.diag(theta_se**2)
        return Estimates(
            theta, theta_se, score, score_cov, theta, level_cov, grid=self.grid, weights=weights
        )

    def item_information(self, weights: FloatArray, theta: FloatArray) -> FloatArray:
        """Information of each item about each model, shape (m, n), logits^-2.

        Averaged over the posterior, except under ``paper-1pl``, which takes it at the estimate.

        Args:
            weights: Posterior weights, shape (m, g).
            theta: Estimates, shape (m,), logits.
        """
        if self.is_paper:
            return information(theta, self.items)
        return np.asarray(weights @ self._information)
