"""Full scores of models from all estimates of them: by each view, by plain means, by regression.

This module owns how several estimates become one; it imports numpy, the views, the joint posterior,
levels by regression and the test of the bank. A posterior trusts what calibration learned of each
item, its slope and its noise; where that misleads, a few answers get nearly all of the weight. So
half of an estimate's weight goes to one that uses the same answers all alike, and the distance of
the two tells how far to trust them. Where the ranked models do not bear the bank's slopes out,
these are drawn to their mean as far as the answers say: in the limit all items count alike, as
without a bank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.agreement import agreement
from lm_eval_adaptive.core.full_scores import full_scores
from lm_eval_adaptive.core.joint import latent_posterior, misfit
from lm_eval_adaptive.core.levels import levels_by_regression
from lm_eval_adaptive.core.threads import side_by_side
from lm_eval_adaptive.core.views import LEANING_OWN, OFFSET_OWN, drawn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.agreement import Agreement
    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

# Weight of the estimate from plain means; standard deviation of a new model's latent values in it.
PLAIN_WEIGHT, PLAIN_SD = 0.5, 2.0
# Weight, in the mean of the ranked models' scores, of the estimate by regression.
LEVEL_WEIGHT = 0.5
# From so many ranked models on, the views' posteriors are found side by side.
MANY_RANKED = 12
# Most of a score's posterior variance, in squared errors by regression of the model's own answers.
MOST_VARIANCE = 2.0


@dataclass(frozen=True)
class Pooled:
    """Estimates of m models' full scores.

    Attributes:
        latents: The posterior under each view.
        score: Pooled estimate, shape (m,).
        cov: Posterior covariance of the scores, mean over the views, shape (m, m); not widened.
        views_apart: Score under the first view less that under the second, shape (m,).
        plain_apart: Mean score of the views less that from plain means, shape (m,).
        level_var: Variance of the error of the mean score by regression.
        own_apart: Pooled score of each model, less that by regression of its own answers, shape
            (m,).
        misfit: Mean squared standardised residual of a model's answers, shape (m,).
        agreement: Whether the models bear the bank out; None where it cannot be told.
    """

    latents: tuple[Latent, ...]
    score: FloatArray
    cov: FloatArray
    views_apart: FloatArray
    plain_apart: FloatArray
    level_var: float
    own_apart: FloatArray
    misfit: FloatArray
    agreement: Agreement | None


def pool(views: tuple[View, View], responses: FloatArray, overdispersion: float = 1.0) -> Pooled:
    """One estimate of every model from its answers.

    Args:
        views: The logistic view and the linear one, n items.
        responses: Scores, shape (m, n), NaN where not asked.
        overdispersion: See :func:`~lm_eval_adaptive.core.agreement.agreement`.
    """
    told = agreement(views[1], responses, overdispersion)
    own = OFFSET_OWN[0]
    if told is not None and told.alarm:
        views, own = drawn(views, (told.share, told.share)), LEANING_OWN
    wide = [view.widened(own) for view in views]
    together = side_by_side if responses.shape[0] >= MANY_RANKED else map
    latents = tuple(together(partial(latent_posterior, responses=responses), wide))
    found = [full_scores(latent, responses) for latent in latents]
    by_views = np.mean([score for score, _ in found], axis=0)
    plain = from_plain_means(views[1], responses)
    score = (1.0 - PLAIN_WEIGHT) * by_views + PLAIN_WEIGHT * plain
    cov = np.mean([cov for _, cov in found], axis=0)
    levels = levels_by_regression(views[1], responses, score, float(np.diag(cov).mean()))
    apart = float(score.mean()) - levels.common
    open_share = 1.0 - np.isfinite(responses).mean(axis=1)
    moved = score - LEVEL_WEIGHT * apart * open_share
    own_apart = np.where(levels.own == score, 0.0, moved - levels.own)
    return Pooled(
        latents=latents,
        score=moved,
        cov=_bounded(cov, MOST_VARIANCE * (levels.own_var + own_apart**2)),
        views_apart=found[0][0] - found[1][0],
        plain_apart=by_views - plain,
        level_var=levels.variance,
        own_apart=own_apart,
        misfit=np.mean([misfit(latent, responses) for latent in latents], axis=0),
        agreement=told,
    )


def _bounded(cov: FloatArray, most: FloatArray) -> FloatArray:
    """A covariance with variances of ``most`` at most, correlations kept, shape (m, m).

    Where ability and offset cannot be told apart, a bent curve's linear error grows without bound
    along the two, and the answers themselves know better.
    """
    own = np.maximum(np.diag(cov), 1e-300)
    factor = np.sqrt(np.minimum(most / own, 1.0))
    return np.asarray(cov * factor[:, None] * factor[None, :])


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
    answered = np.isfinite(responses)
    items = np.flatnonzero(answered.any(axis=0))
    asked, part, n = answered[:, items], view.take(items), responses.shape[1]
    count = np.maximum(asked.sum(axis=1), 1)
    mean = np.where(asked, responses[:, items], 0.0).sum(axis=1) / count
    height = asked @ part.second / count
    loads = np.concatenate([part.first[None, :], part.loadings])  # of theta and factors, (q, c)
    of_asked = asked @ loads.T / count[:, None]
    noise = asked @ part.noise / count
    of_all = np.array([view.sums.first, *view.sums.loadings]) / n
    together = PLAIN_SD**2 * of_asked @ of_all + noise / n
    spread = PLAIN_SD**2 * (of_asked**2).sum(axis=1) + noise / count
    by_mean = np.where(spread > 0.0, together / np.where(spread > 0.0, spread, 1.0), 0.0)
    return np.asarray(view.sums.second / n + by_mean * (mean - height))
