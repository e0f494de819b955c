"""From answers to abilities and full-benchmark scores with their errors.

This module owns the posterior of one model at a time, recomputed from all of its responses, so
that the order of the questions does not matter. It imports numpy, scipy and the response formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, log_expit, logit, stdtrit

from lm_eval_adaptive.core.response import (
    expected_score,
    information,
    variance,
)
from lm_eval_adaptive.core.widening import (
    INTERVAL_DF,
    PAIR_DF,
    SCALE,
    SCALE_L,
    log_length,
    pair_factor,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.response import ItemParameters

    FloatArray = NDArray[np.float64]


# The grid of abilities, in units of the calibration models' spread: its step is below the standard
# deviation that 1,000 good items leave; its ends are chosen by the bank.
GRID_STEP = 0.05
LEAST_HALF, MOST_HALF = 8.0, 24.0
END = 0.001
# Newton steps to the paper's mode; each is at most one logit.
MOST_STEPS = 100


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


class Posterior:
    """Beliefs about models from their responses, under one bank's parameters.

    ``paper-1pl`` finds the mode of its concave quasi-posterior by Newton's method,
    ``bernoulli-2pl`` averages over a grid of abilities; ``robust-2pl`` has beliefs of its own, see
    ``robust``.

    Args:
        items: Parameters of the bank's n items, under one of those two models.
        parameters: The response model's global parameters, as calibration returned them.
    """

    shared = False

    def __init__(self, items: ItemParameters, parameters: dict[str, float]) -> None:
        assert items.model != "robust-2pl"
        self.items = items
        self.parameters = parameters
        self.is_paper = items.model == "paper-1pl"
        mean, sd = parameters["prior_mean"], parameters["prior_sd"]
        if self.is_paper:
            return
        self.grid: FloatArray = ability_grid(items, mean)
        self.log_prior: FloatArray = -0.5 * ((self.grid - mean) / sd) ** 2
        self._expected: FloatArray = expected_score(self.grid, items).T  # n, g
        self._variance: FloatArray = variance(self.grid, items).T
        self._totals = self._expected.sum(axis=0), self._variance.sum(axis=0)
        self._information = information(self.grid, items)
        # The only part of a Bernoulli likelihood that is not linear in the score.
        self._log_wrong: FloatArray = log_expit(
            items.discrimination[:, None] * (items.difficulty[:, None] - self.grid[None, :])
        )

    def weights(self, responses: FloatArray) -> FloatArray:
        """Posterior weights over the grid, shape (m, g), from responses of shape (m, n)."""
        out = np.empty((len(responses), len(self.grid)))
        for row, scores in enumerate(responses):
            asked = np.flatnonzero(np.isfinite(scores))
            log_weight = self.log_prior
            if len(asked):
                log_weight = log_weight + self._log_likelihood(asked, scores[asked])
            weight = np.exp(log_weight - log_weight.max())
            out[row] = weight / weight.sum()
        return out

    def _log_likelihood(self, asked: NDArray[np.intp], scores: FloatArray) -> FloatArray:
        items = self.items
        # y log mu + (1 - y) log(1 - mu) = y a (theta - b) + log(1 - mu), with noise 1.
        slope = items.discrimination[asked] * scores
        linear = slope.sum() * self.grid - (slope * items.difficulty[asked]).sum()
        return np.asarray(linear + self._log_wrong[asked].sum(axis=0))

    def estimate(self, responses: FloatArray) -> Estimates:
        """Abilities and scores of m models.

        Args:
            responses: Shape (m, n), scores in [0, 1], NaN where not asked.

        Returns:
            Estimates of all m models; the same whatever order the items were asked in.
        """
        if self.is_paper:
            return self._estimate_paper(responses)
        weights = self.weights(responses)
        theta = weights @ self.grid
        theta_se = np.sqrt(np.maximum(weights @ self.grid**2 - theta**2, 0.0))
        score = np.empty(len(responses))
        score_se = np.empty(len(responses))
        n = responses.shape[1]
        for row, scores in enumerate(responses):
            asked = np.isfinite(scores)
            # The full score: what was observed, and what the rest is expected to give.
            full = (np.nansum(scores) + self._open_sum(0, asked)) / n
            score[row] = weights[row] @ full
            spread = weights[row] @ (full - score[row]) ** 2
            chance = weights[row] @ self._open_sum(1, asked) / n**2
            score_se[row] = np.sqrt(spread + chance)
        answered = np.isfinite(responses).sum(axis=1)
        wider = np.exp(SCALE + SCALE_L * log_length(answered))
        own = score_se**2
        return Estimates(
            theta,
            theta_se,
            score,
            np.diag(own * wider),
            score,
            np.diag(own),
            pair_var=pair_factor(answered) * (own[:, None] + own[None, :]),
            interval_df=INTERVAL_DF,
            pair_df=PAIR_DF,
            grid=self.grid,
            weights=weights,
        )

    def _open_sum(self, part: int, asked: NDArray[np.bool_]) -> FloatArray:
        """Sum over the items not asked of expected scores (part 0) or variances (1), shape (g,)."""
        each = (self._expected, self._variance)[part]
        if 2 * int(asked.sum()) < len(asked):
            return np.asarray(self._totals[part] - each[asked].sum(axis=0))
        return np.asarray(each[~asked].sum(axis=0))

    def _estimate_paper(self, responses: FloatArray) -> Estimates:
        """The paper's estimate: the mode, and SE = 1 / sqrt(sum of information at it).

        The mode is that of the prior times the quasi-likelihood of the paper's mean and variance,
        sum [y log mu + (1 - y) log(1 - mu)] / k (Wedderburn 1974): its slope is sum (y - mu) / k
        and its curvature the paper's information exactly, and unlike the full normal density it
        does not run off to infinity at scores of 0 and 1, where k mu (1 - mu) vanishes.
        """
        prior_mean, prior_sd = self.parameters["prior_mean"], self.parameters["prior_sd"]
        theta = np.full(len(responses), prior_mean)
        theta_se = np.full(len(responses), prior_sd)
        for row, scores in enumerate(responses):
            asked = np.flatnonzero(np.isfinite(scores))
            if not len(asked):
                continue
            items = self.items.take(asked)
            k = items.noise
            # From where the mean score is as observed if all items were of average difficulty.
            share = float(np.clip(scores[asked].mean(), 0.001, 0.999))
            mode = float(items.difficulty.mean() + logit(share))
            for _ in range(MOST_STEPS):
                mu = expit(mode - items.difficulty)
                slope = ((scores[asked] - mu) / k).sum() - (mode - prior_mean) / prior_sd**2
                curvature = (mu * (1.0 - mu) / k).sum() + 1.0 / prior_sd**2
                # The curve bends over a logit or so: a longer step may leap over the mode.
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
        return Estimates(theta, theta_se, score, score_cov, theta, np.diag(theta_se**2))

    def item_information(self, weights: FloatArray | None, theta: FloatArray) -> FloatArray:
        """Information of each item about each model, shape (m, n), logits^-2.

        Averaged over the posterior, except under ``paper-1pl``, which takes it at the estimate.

        Args:
            weights: Posterior weights, shape (m, g); None under ``paper-1pl``.
            theta: Estimates, shape (m,), logits.
        """
        if weights is None:
            return information(theta, self.items)
        return np.asarray(weights @ self._information)


def ability_grid(items: ItemParameters, mean: float) -> FloatArray:
    """Abilities that hold every model, also one far better than all that calibrated.

    The grid reaches at least 8 to each side of the prior's mean, further where the bank's items
    can still tell models apart there: until the mean expected score is within 0.001 of 0 and 1, or
    to 24.

    Args:
        items: The bank's items.
        mean: Mean of the prior, logits.

    Returns:
        Shape (g,), odd, equally spaced, symmetric about ``mean``.
    """
    half = LEAST_HALF
    while half < MOST_HALF:
        low, high = expected_score(np.array([mean - half, mean + half]), items).mean(axis=1)
        if low < END and high > 1.0 - END:
            break
        half += 2.0
    steps = round(half / GRID_STEP)
    return np.asarray(mean + GRID_STEP * np.arange(-steps, steps + 1), dtype=np.float64)
