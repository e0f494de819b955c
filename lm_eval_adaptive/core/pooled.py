"""Full scores of models from all estimates of them: under each view, and from plain means.

This module owns how several estimates become one; it imports numpy, the views and the joint
posterior. A posterior trusts what calibration learned of each item, its slope and its noise; where
that misleads, a few answers get nearly all of the weight. So half of an estimate's weight goes to
one that uses the same answers all alike, and the distance of the two tells how far to trust them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.joint import full_scores, latent_posterior, misfit
from lm_eval_adaptive.core.views import PRIOR_SD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

# Weight of the estimate from plain means.
PLAIN_WEIGHT = 0.5


@dataclass(frozen=True)
class Pooled:
    """Estimates of m models' full scores.

    Attributes:
        latents: The posterior under each view.
        score: Pooled estimate, shape (m,).
        cov: Posterior covariance of the scores, mean over the views, shape (m, m); not widened.
        views_apart: Score under the first view less that under the second, shape (m,).
        plain_apart: Mean score of the views less that from plain means, shape (m,).
        misfit: Mean squared standardised residual of a model's answers, shape (m,).
    """

    latents: tuple[Latent, ...]
    score: FloatArray
    cov: FloatArray
    views_apart: FloatArray
    plain_apart: FloatArray
    misfit: FloatArray


def pool(views: tuple[View, View], responses: FloatArray) -> Pooled:
    """One estimate of every model from its answers.

    Args:
        views: The logistic view and the linear one, n items.
        responses: Scores, shape (m, n), NaN where not asked.
    """
    latents = tuple(latent_posterior(view, responses) for view in views)
    found = [full_scores(latent, responses) for latent in latents]
    by_views = np.mean([score for score, _ in found], axis=0)
    plain = from_plain_means(views[1], responses)
    return Pooled(
        latents=latents,
        score=(1.0 - PLAIN_WEIGHT) * by_views + PLAIN_WEIGHT * plain,
        cov=np.mean([cov for _, cov in found], axis=0),
        views_apart=found[0][0] - found[1][0],
        plain_apart=by_views - plain,
        misfit=np.mean([misfit(latent, responses) for latent in latents], axis=0),
    )


def from_plain_means(view: View, responses: FloatArray) -> FloatArray:
    """Full scores from nothing but the plain mean of each model's answers: best linear prediction.

    With heights h, slopes a, loadings w and noise s^2 of a linear view, bars for means over all n
    items and S for means over the items asked, and latent values of variance v: h + b (y_S - h_S),
    b = (v (a a_S + w w_S) + s_S^2 / n) / (v (a_S^2 + w_S w_S) + s_S^2 / |S|), h, a and w barred.
    It is the plain mean itself where all items were asked.

    Args:
        view: A linear view.
        responses: Scores, shape (m, n), NaN where not asked.

    Returns:
        Shape (m,).
    """
    asked = np.isfinite(responses)
    count = np.maximum(asked.sum(axis=1), 1)
    mean = np.where(asked, responses, 0.0).sum(axis=1) / count
    height = asked @ view.second / count
    loads = np.concatenate([view.first[None, :], view.loadings])  # of theta and factors, (q, n)
    of_asked = asked @ loads.T / count[:, None]
    noise = asked @ view.noise / count
    together = PRIOR_SD**2 * of_asked @ loads.mean(axis=1) + noise / len(view.first)
    spread = PRIOR_SD**2 * (of_asked**2).sum(axis=1) + noise / count
    by_mean = np.where(spread > 0.0, together / np.where(spread > 0.0, spread, 1.0), 0.0)
    return np.asarray(view.second.mean() + by_mean * (mean - height))
