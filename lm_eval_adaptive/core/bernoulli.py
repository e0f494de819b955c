"""``bernoulli-2pl``: beliefs about one model at a time, over a grid of abilities.

This module owns that posterior, recomputed from all of a model's responses, so that the order of
the questions does not matter. It imports numpy, scipy, the response formulas and the constants of
the error model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_expit

from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.floor import least_pair_variance, with_least_variance
from lm_eval_adaptive.core.forecast import FASTEST
from lm_eval_adaptive.core.response import expected_score, information, variance
from lm_eval_adaptive.core.widening import (
    BINARY_PAIR,
    BINARY_PAIR_L,
    BINARY_SCALE,
    BINARY_SCALE_L,
    INTERVAL_DF,
    PAIR_DF,
    log_length,
    pair_factor,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.response import ItemParameters

    FloatArray = NDArray[np.float64]

# The grid of abilities, in units of the calibration models' spread: its step is below the standard
# deviation that 1,000 good items leave; its ends are chosen by the bank.
GRID_STEP = 0.05
LEAST_HALF, MOST_HALF = 8.0, 24.0
END = 0.001


class BernoulliPosterior:
    """Beliefs about models from their responses, under one bank's parameters.

    Args:
        items: Parameters of the bank's n items under ``bernoulli-2pl``.
        parameters: The response model's global parameters, as calibration returned them.
    """

    shared = True
    ranks_by_score = True
    one_at_a_time = False
    draws = True
    warm_up = 1
    gives_up = False
    stop_share = 0.5
    least_round = 1
    forecast = FASTEST

    def __init__(self, items: ItemParameters, parameters: Mapping[str, float]) -> None:
        self.items = items
        mean, sd = parameters["prior_mean"], parameters["prior_sd"]
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
        """See :meth:`~lm_eval_adaptive.core.inference.Inference.estimate`."""
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
        wider = np.exp(BINARY_SCALE + BINARY_SCALE_L * log_length(answered))
        own = score_se**2
        apart = pair_factor(answered, BINARY_PAIR, BINARY_PAIR_L) * (own[:, None] + own[None, :])
        return Estimates(
            theta,
            theta_se,
            score,
            with_least_variance(np.diag(own * wider), n),
            score,
            with_least_variance(np.diag(own), n),
            pair_var=least_pair_variance(apart, n),
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

    def item_information(
        self, weights: FloatArray, items: NDArray[np.intp] | None = None
    ) -> FloatArray:
        """Information of each item averaged over the posterior, shape (m, n), logits^-2.

        Args:
            weights: Posterior weights, shape (m, g).
            items: Some of the items; None for all.
        """
        part = self._information if items is None else self._information[:, items]
        return np.asarray(weights @ part)

    def worth(
        self, estimates: Estimates, items: NDArray[np.intp] | None = None
    ) -> AverageInformation:
        """Fisher information averaged over the posterior."""
        return AverageInformation(self, estimates, items)

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Nobody's: scores of 0 and 1 hardly tell."""
        del estimates
        return np.zeros(len(responses), dtype=bool)


class AverageInformation:
    """Fisher information averaged over the posterior, items chosen counted as asked.

    An item that is chosen will narrow the posterior. Until its answer is known it is treated as if
    it came out as expected: the weights are multiplied by a normal curve about the posterior mean
    with the chosen items' information as precision.
    """

    def __init__(
        self,
        posterior: BernoulliPosterior,
        estimates: Estimates,
        items: NDArray[np.intp] | None = None,
    ) -> None:
        self._posterior, self._estimates, self._items = posterior, estimates, items
        self._precision: dict[int, float] = {}  # what the chosen items add, by model
        self._informative: dict[int, FloatArray] = {}

    def worth(self, model: int) -> FloatArray:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.worth`; logits^-2."""
        if model not in self._informative:
            weights = self._narrowed(model)
            self._informative[model] = self._posterior.item_information(weights, self._items)[0]
        return self._informative[model]

    def ask(self, item: int, models: Sequence[int]) -> None:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.ask`."""
        for model in models:
            told = float(self.worth(model)[item])
            self._precision[model] = self._precision.get(model, 0.0) + told
            del self._informative[model]

    def _narrowed(self, model: int) -> FloatArray:
        """Weights of one model under the items chosen, shape (1, g)."""
        assert self._estimates.weights is not None
        weights = self._estimates.weights[[model]]
        precision = self._precision.get(model, 0.0)
        if not precision > 0.0:
            return weights
        # Scaled by its peak: very precise items would underflow at every grid point.
        with np.errstate(divide="ignore"):
            height = np.log(weights[0])
        height = (
            height
            - 0.5 * precision * (self._posterior.grid - self._estimates.theta[[model]][0]) ** 2
        )
        narrowed = np.exp(height - height.max())
        return np.asarray((narrowed / narrowed.sum())[None, :])


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
