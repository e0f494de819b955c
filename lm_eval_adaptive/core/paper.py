"""``paper-1pl``: the published method's beliefs about one model at a time.

This module owns that estimate, recomputed from all of a model's responses, so that the order of the
questions does not matter. It imports numpy, scipy and the response formulas. Source: Balkir et al.
2026, arXiv 2601.13885, sections "Continuous CAT" and "Adaptive Ranker".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from lm_eval_adaptive.core.estimates import Estimates
from lm_eval_adaptive.core.forecast import FASTEST
from lm_eval_adaptive.core.response import information

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.response import ItemParameters

    FloatArray = NDArray[np.float64]

# Newton steps to the mode; each is at most one logit.
MOST_STEPS = 100


class PaperPosterior:
    """Beliefs about models from their responses: the mode, and SE = 1 / sqrt(sum of information).

    The mode is that of the prior times the quasi-likelihood of the paper's mean and variance,
    sum [y log mu + (1 - y) log(1 - mu)] / k (Wedderburn 1974): its slope is sum (y - mu) / k and
    its curvature the paper's information exactly, and unlike the full normal density it does not
    run off to infinity at scores of 0 and 1, where k mu (1 - mu) vanishes.

    Args:
        items: Parameters of the bank's n items under ``paper-1pl``.
        parameters: The response model's global parameters, as calibration returned them.
    """

    shared = False
    ranks_by_score = False
    one_at_a_time = True
    draws = False
    warm_up = 1
    gives_up = False
    stop_share = 1.0
    least_round = 1
    forecast = FASTEST

    def __init__(self, items: ItemParameters, parameters: Mapping[str, float]) -> None:
        self.items = items
        self.parameters = parameters

    def estimate(self, responses: FloatArray) -> Estimates:
        """See :meth:`~lm_eval_adaptive.core.inference.Inference.estimate`."""
        link = self.parameters
        theta = np.full(len(responses), link["prior_mean"])
        theta_se = np.full(len(responses), link["prior_sd"])
        for row, scores in enumerate(responses):
            asked = np.flatnonzero(np.isfinite(scores))
            if len(asked):
                theta[row], theta_se[row] = self._mode(self.items.take(asked), scores[asked])
        score = expit(link["score_intercept"] + link["score_slope"] * theta)
        score_var = (link["score_slope"] * score * (1.0 - score) * theta_se) ** 2
        score_cov = np.diag(score_var + link["score_sd"] ** 2)
        return Estimates(theta, theta_se, score, score_cov, theta, np.diag(theta_se**2))

    def _mode(self, items: ItemParameters, scores: FloatArray) -> tuple[float, float]:
        """Mode and standard error from the scores of some items."""
        prior_mean, prior_sd = self.parameters["prior_mean"], self.parameters["prior_sd"]
        k = items.noise
        # From where the mean score is as observed if all items were of average difficulty.
        share = float(np.clip(scores.mean(), 0.001, 0.999))
        mode = float(items.difficulty.mean() + logit(share))
        for _ in range(MOST_STEPS):
            mu = expit(mode - items.difficulty)
            slope = ((scores - mu) / k).sum() - (mode - prior_mean) / prior_sd**2
            curvature = (mu * (1.0 - mu) / k).sum() + 1.0 / prior_sd**2
            # The curve bends over a logit or so: a longer step may leap over the mode.
            step = float(np.clip(slope / curvature, -1.0, 1.0))
            mode += step
            if abs(step) < 1e-10:
                break
        return mode, float(1.0 / np.sqrt(information(np.array([mode]), items).sum()))

    def worth(
        self, estimates: Estimates, items: NDArray[np.intp] | None = None
    ) -> InformationAtEstimate:
        """Fisher information at the estimate."""
        part = self.items if items is None else self.items.take(items)
        return InformationAtEstimate(part, estimates.theta)

    def misfitting(self, responses: FloatArray, estimates: Estimates) -> NDArray[np.bool_]:
        """Nobody's: the published method does not look."""
        del estimates
        return np.zeros(len(responses), dtype=bool)


class InformationAtEstimate:
    """Fisher information of each item at a model's estimate; items chosen do not change it.

    Args:
        items: n items.
        theta: Estimates, shape (m,), logits.
    """

    def __init__(self, items: ItemParameters, theta: FloatArray) -> None:
        self._items, self._theta = items, theta
        self._found: dict[int, FloatArray] = {}

    def worth(self, model: int) -> FloatArray:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.worth`; logits^-2."""
        if model not in self._found:
            self._found[model] = information(self._theta[[model]], self._items)[0]
        return self._found[model]

    def ask(self, item: int, models: Sequence[int]) -> None:
        """See :meth:`~lm_eval_adaptive.core.inference.Worth.ask`."""
