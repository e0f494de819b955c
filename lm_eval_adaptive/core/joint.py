"""The joint posterior of several models under ``robust-2pl``, and the worth of the next item.

This module owns the run-time side of the views; it imports numpy, scipy and the views. All models
are inferred together, because an item whose difficulty is a little off is off for every model that
was asked it: that error is common to them and drops out of their differences. The posterior is
computed anew from all answers, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import Curve, View

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

# Passes of Gauss-Newton; the linear view needs them only for its factors' uncertain loadings and
# for the weights of surprising answers.
PASSES = 7
# Degrees of freedom of an answer's error: one that surprises pulls less than its distance.
STUDENT_DF = 8.0
# Logistic abilities are held within these, standardised, far out where all curves are flat; and
# move by so much a pass, since a curve bends over a unit or so.
THETA_BOUND, THETA_STEP = 15.0, 1.5
# Before anything is known, loadings' uncertainty is counted as for factor scores of this variance.
FIRST_VARIANCE = 4.0
# Added variance that takes a model out of an item it was not asked.
_NOT_ASKED = 1e6


@dataclass(frozen=True)
class Latent:
    """Posterior of m models' latent values under one view.

    Attributes:
        view: The view.
        mean: Theta and factor scores, shape (m, q).
        cov: Their covariance, shape (m q, m q), a model's values together.
        curve: The curve at the abilities found, over all n items.
    """

    view: View
    mean: FloatArray
    cov: FloatArray
    curve: Curve

    def without_offsets(self) -> Latent:
        """The posterior given that there are no offsets; itself where there are none.

        What offsets leave open is mostly common to the ranked models, so it is nothing that items
        should be chosen for.
        """
        offsets, q = len(self.view.offset_own), self.mean.shape[1]
        if not offsets:
            return self
        kept = (np.arange(len(self.cov)) % q) < q - offsets
        given = np.linalg.inv(np.linalg.inv(self.cov)[np.ix_(kept, kept)])
        return Latent(
            self.view.without_offsets(),
            self.mean[:, : q - offsets],
            np.asarray(given, dtype=np.float64),
            self.curve,
        )

    def own_cov(self, model: int) -> FloatArray:
        """Covariance of one model's latent values, shape (q, q)."""
        q = self.mean.shape[1]
        return self.cov[model * q : (model + 1) * q, model * q : (model + 1) * q]


def latent_posterior(view: View, responses: FloatArray) -> Latent:
    """Gauss-Newton for all models' latent values at once.

    Scores of the models asked item i have mean mu_i(theta) + f' w_i and covariance
    s_i^2 (I + sum_k f_ak f_bk c_ik) + grad_a' Sigma_i grad_b: noise, uncertain loadings, and the
    calibration error of the item's curve, which is common to the models. Priors are the view's.
    Noise is Student t with STUDENT_DF degrees of freedom: an answer whose residual is r and
    variance V has its s_i^2 times (df + r^2 / V) / (df + 1), the reweighting of Lange, Little and
    Taylor 1989, J. Am. Statist. Assoc. 84:881-896.

    Args:
        view: n items.
        responses: Scores, shape (m, n), NaN where not asked.

    Returns:
        The posterior; the prior where nothing was asked.
    """
    m, q = len(responses), view.latent
    cov = view.prior_cov(m)
    prior = np.asarray(np.linalg.inv(cov), dtype=np.float64)
    mean: FloatArray = np.zeros((m, q))
    assumed = np.diag(np.minimum(np.diag(cov), FIRST_VARIANCE))
    answered = np.isfinite(responses)
    items = np.flatnonzero(answered.any(axis=0))
    asked = answered[:, items]
    scores = np.where(asked, responses[:, items], 0.0)
    part = view.take(items)
    for step in range(PASSES if len(items) else 0):
        curve = part.curve(mean[:, 0])
        spread = _score_covariance(part, curve, mean, assumed if step == 0 else cov, asked)
        if step > 0:  # the first pass has no residuals yet
            residual = np.where(asked, scores - curve.mean - mean[:, 1:] @ part.loadings, 0.0)
            _weigh_surprise(spread, residual, part.noise)
        weight = np.asarray(np.linalg.inv(spread), dtype=np.float64)
        both = asked.T[:, :, None] & asked.T[:, None, :]
        weight = np.asarray(np.where(both, weight, 0.0)).transpose(1, 2, 0)  # m, m, items
        loads = np.concatenate(
            [curve.slope[:, None, :], np.broadcast_to(part.loadings, (m, *part.loadings.shape))],
            axis=1,
        )  # m, q, items
        target = np.where(asked, scores - curve.mean + curve.slope * mean[:, :1], 0.0)
        weighted = loads[:, None] * weight[:, :, None, :]  # m, m, q, items
        hessian = np.matmul(weighted, loads.transpose(0, 2, 1)[None])  # m, m, q, q
        hessian = hessian.transpose(0, 2, 1, 3).reshape(m * q, m * q) + prior
        gradient = np.matmul(weighted, target[None, :, :, None])[..., 0].sum(axis=1).reshape(-1)
        cov = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
        before, mean = mean[:, 0], (cov @ gradient).reshape(m, q)
        if view.logistic:
            theta = before + np.clip(mean[:, 0] - before, -THETA_STEP, THETA_STEP)
            mean[:, 0] = np.clip(theta, -THETA_BOUND, THETA_BOUND)
    return Latent(view, mean, cov, view.curve(mean[:, 0]))


def _score_covariance(
    view: View, curve: Curve, mean: FloatArray, cov: FloatArray, asked: BoolArray
) -> FloatArray:
    """Covariance of the models' scores on each item, given their latent values: (items, m, m)."""
    m, q = mean.shape
    var_first, cross, var_second = view.item_cov
    common = np.einsum("al,bl->lab", curve.by_first, curve.by_first * var_first)
    common += np.einsum("al,bl->lab", curve.by_first, curve.by_second * cross)
    common += np.einsum("al,bl->lab", curve.by_second, curve.by_first * cross)
    common += np.einsum("al,bl->lab", curve.by_second, curve.by_second * var_second)
    each = np.arange(m)
    if q > 1:
        uncertain = view.noise * view.loading_var  # q - 1, items
        f = mean[:, 1:]
        common += (
            ((f[:, None] * f[None, :]).reshape(m * m, q - 1) @ uncertain)
            .reshape(m, m, -1)
            .transpose(2, 0, 1)
        )
        own = np.diag(cov).reshape(m, q)[:, 1:]
        common[:, each, each] += (own @ uncertain).T
    common[:, each, each] += view.noise[:, None]
    both = asked.T[:, :, None] & asked.T[:, None, :]
    found: FloatArray = np.where(both, common, 0.0)
    found[:, each, each] += np.where(asked.T, 0.0, _NOT_ASKED)
    return found


def _weigh_surprise(spread: FloatArray, residual: FloatArray, noise: FloatArray) -> None:
    """Give answers more noise the more they surprise, in place; see :func:`latent_posterior`.

    Args:
        spread: Covariance of the models' scores on each item, shape (items, m, m).
        residual: Scores less what is expected, shape (m, items).
        noise: Variance of a score about the curve, shape (items,).
    """
    each = np.arange(spread.shape[1])
    surprise = (STUDENT_DF + residual.T**2 / spread[:, each, each]) / (STUDENT_DF + 1.0)
    spread[:, each, each] += noise[:, None] * (surprise - 1.0)


def full_scores(latent: Latent, responses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Full-benchmark scores of m models, and their covariance.

    The mean over items of what was observed, and of mu + f' w where it was not. The error is that
    of the latent values and, for items not asked, noise and calibration error.

    Args:
        latent: The posterior.
        responses: Shape (m, n), NaN where not asked.

    Returns:
        Shapes (m,) and (m, m).
    """
    view, curve, mean = latent.view, latent.curve, latent.mean
    m, n = responses.shape
    q = mean.shape[1]
    unasked = ~np.isfinite(responses)
    f = mean[:, 1:]
    score = np.where(unasked, curve.mean + f @ view.loadings, responses).sum(axis=1) / n
    by_latent = np.zeros((m, m, q))
    each = np.arange(m)
    by_latent[each, each, 0] = (curve.slope * unasked).sum(axis=1) / n
    by_latent[each, each, 1:] = unasked @ view.loadings.T / n
    flat = by_latent.reshape(m, m * q)
    cov = flat @ latent.cov @ flat.T
    cov = cov + _unasked_errors(view, curve, f, unasked) / n**2
    return score, cov


def _unasked_errors(view: View, curve: Curve, f: FloatArray, unasked: BoolArray) -> FloatArray:
    """Noise and calibration error of items not asked, summed over those two models share: (m, m).

    Each part is a product over items, so the sums are matrix products of what is not asked.
    """
    first = curve.by_first * unasked
    second = curve.by_second * unasked
    var_first, cross, var_second = view.item_cov
    found = (first * var_first) @ first.T + (second * var_second) @ second.T
    mixed = (first * cross) @ second.T
    found = found + mixed + mixed.T
    for k in range(f.shape[1]):
        loaded = f[:, k : k + 1] * unasked
        found = found + (loaded * (view.noise * view.loading_var[k])) @ loaded.T
    return np.asarray(found + np.diag(unasked @ view.noise))


def misfit(latent: Latent, responses: FloatArray) -> FloatArray:
    """Mean squared standardised residual of each model's answers, shape (m,), near 1 where it fits.

    Single values are cut at 6, so that one odd answer does not condemn a model; 1 where nothing was
    asked.
    """
    found = np.ones(len(responses))
    for a, scores in enumerate(responses):
        asked = np.flatnonzero(np.isfinite(scores))
        if not len(asked):
            continue
        part = latent.view.take(asked)
        curve = part.curve(latent.mean[a : a + 1, 0])
        f = latent.mean[a, 1:]
        residual = scores[asked] - curve.mean[0] - f @ part.loadings
        spread = part.noise * (1.0 + f**2 @ part.loading_var)
        spread = spread + curve.item_covariance(part.item_cov, 0, 0)
        found[a] = float(np.minimum(residual**2 / spread, 6.0).mean())
    return found


@dataclass
class _Prospect:
    """What asking one model each item would do, under one view; updated as items are chosen."""

    cov: FloatArray  # latent covariance, (q, q)
    slope: FloatArray  # derivative of each item's score by theta, (n,)
    loadings: FloatArray  # by the factor scores, (q - 1, n); the view's own
    var: FloatArray  # variance of each item's expected score, (n,)
    with_score: FloatArray  # its covariance with the full score, (n,)
    noise: FloatArray  # variance of an answer about it, (n,)

    @property
    def gain(self) -> FloatArray:
        """Fall of the full score's variance if the item were asked, shape (n,)."""
        return np.asarray(self.with_score**2 / (self.var + self.noise))

    def ask(self, item: int) -> None:
        """Count an item as asked: its answer is unknown, but not how much it will tell."""
        load = np.concatenate([self.slope[item : item + 1], self.loadings[:, item]])
        moved = self.cov @ load
        total = float(load @ moved) + float(self.noise[item])
        shared = moved[0] * self.slope + moved[1:] @ self.loadings
        self.var = self.var - shared**2 / total
        self.with_score = self.with_score - self.with_score[item] * shared / total
        self.cov = self.cov - np.outer(moved, moved) / total


class Prospects:
    """Worth of every item for every model, with items already chosen taken into account.

    The worth of an item for a model is the fall of the variance of its full score, relative to the
    best item's, averaged over the views. The error that an item's height has in common for all
    models is left out: it drops out of differences between models that are asked the same items.

    Args:
        latents: Posteriors under each view.
    """

    def __init__(self, latents: Sequence[Latent]) -> None:
        self._views: list[list[_Prospect]] = []
        for latent in (each.without_offsets() for each in latents):
            view, curve = latent.view, latent.curve
            factors = view.loadings.mean(axis=1)
            rows = []
            for a in range(len(latent.mean)):
                cov, slope = latent.own_cov(a).copy(), curve.slope[a]
                # cov times the item's derivatives, theta's row first; a long bank makes it large.
                by_theta = cov[0, 0] * slope + cov[0, 1:] @ view.loadings
                by_factor = cov[1:, 1:] @ view.loadings
                by_factor += cov[1:, :1] * slope
                var = slope * by_theta + np.einsum("kn,kn->n", view.loadings, by_factor)
                with_score = slope.mean() * by_theta + factors @ by_factor
                uncertain = 1.0 + (latent.mean[a, 1:] ** 2 + np.diag(cov)[1:]) @ view.loading_var
                noise = curve.by_first[a] ** 2 * view.item_cov[0] + view.noise * uncertain
                rows.append(_Prospect(cov, slope, view.loadings, var, with_score, noise))
            self._views.append(rows)
        self._scale = [
            max(float(each.gain.max()) for each in rows) or 1e-300 for rows in self._views
        ]

    def worth(self, model: int) -> FloatArray:
        """Worth of each item for a model, shape (n,)."""
        each = [rows[model].gain / top for rows, top in zip(self._views, self._scale, strict=True)]
        return np.asarray(np.mean(each, axis=0))

    def ask(self, item: int, models: Sequence[int]) -> None:
        """Count an item as asked of some models."""
        for rows in self._views:
            for model in models:
                rows[model].ask(item)
