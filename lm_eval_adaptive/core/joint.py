"""The joint posterior of several models under ``robust-2pl``.

This module owns the latent values of models under a view, and how their answers fit; it imports
numpy, scipy and the sums over answers. All models
are inferred together, because an item whose difficulty is a little off is off for every model that
was asked it: that error is common to them and drops out of their differences. The posterior is
computed anew from all answers, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from lm_eval_adaptive.core.batches import Batch, Sums, asked_alike

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.intp]

# Passes of Gauss-Newton; the linear view needs them only for its factors' uncertain loadings and
# for the weights of surprising answers.
PASSES = 7
# Logistic abilities are held within these, standardised, far out where all curves are flat; and
# move by so much a pass, since a curve bends over a unit or so.
THETA_BOUND, THETA_STEP = 15.0, 1.5
# Before anything is known, loadings' uncertainty is counted as for factor scores of this variance.
FIRST_VARIANCE = 4.0
# What is added to a precision's diagonal, as a share of it, where it is numerically singular.
SINGULAR = 1e-10


@dataclass(frozen=True)
class Latent:
    """Posterior of m models' latent values under one view.

    Attributes:
        view: The view.
        mean: Theta and factor scores, shape (m, q).
        root: Lower triangular R with R' R the covariance, shape (q m, q m): all models' thetas,
            then all models' scores on the first factor, and so on.
    """

    view: View
    mean: FloatArray
    root: FloatArray

    def at(self, items: IntArray) -> Latent:
        """The posterior with a view of some of the items."""
        return Latent(self.view.take(items), self.mean, self.root)

    @cached_property
    def cov(self) -> FloatArray:
        """Covariance of the latent values, shape (m q, m q), a model's values together."""
        m, q = self.mean.shape
        by_value = (self.root.T @ self.root).reshape(q, m, q, m)
        return np.asarray(by_value.transpose(1, 0, 3, 2).reshape(m * q, m * q))

    def without_offsets(self) -> Latent:
        """The posterior given that there are no offsets; itself where there are none.

        What offsets leave open is mostly common to the ranked models, so it is nothing that items
        should be chosen for. Offsets stand last, so the others' root given them is a part of it.
        """
        offsets = len(self.view.offset_own)
        if not offsets:
            return self
        m, q = self.mean.shape
        kept = m * (q - offsets)
        return Latent(
            self.view.without_offsets(),
            self.mean[:, : q - offsets],
            self.root[:kept, :kept],
        )

    @cached_property
    def own_covs(self) -> FloatArray:
        """Covariance of each model's latent values, shape (m, q, q)."""
        m, q = self.mean.shape
        by_model = np.ascontiguousarray(self.root.reshape(-1, q, m).transpose(2, 1, 0))
        return np.asarray(np.matmul(by_model, by_model.transpose(0, 2, 1)))

    def cov_of(self, by_latent: FloatArray) -> FloatArray:
        """Covariance of m values, each a sum of one model's latent values, shape (m, m).

        Args:
            by_latent: What each model's latent values count, shape (m, q).
        """
        m, q = self.mean.shape
        loaded = (self.root.reshape(-1, q, m) * by_latent.T).sum(axis=1)
        return np.asarray(loaded.T @ loaded)


def latent_posterior(view: View, responses: FloatArray) -> Latent:
    """Gauss-Newton for all models' latent values at once.

    Scores of the models asked item i have mean mu_i(theta) + f' w_i and covariance
    s_i^2 (I + sum_k f_ak f_bk c_ik) + grad_a' Sigma_i grad_b: noise, uncertain loadings, and the
    calibration error of the item's curve, which is common to the models. Priors are the view's.
    Noise is Student t with STUDENT_DF degrees of freedom: an answer whose residual is r and
    variance V has its s_i^2 times (df + r^2 / V) / (df + 1), the reweighting of Lange, Little and
    Taylor 1989, J. Am. Statist. Assoc. 84:881-896.

    What models have in common on an item has few dimensions, so its covariance is inverted by
    Woodbury's identity; items that were asked of the same models are summed over these alone.

    Args:
        view: n items.
        responses: Scores, shape (m, n), NaN where not asked.

    Returns:
        The posterior; the prior where nothing was asked.
    """
    m, q = len(responses), view.latent
    mean: FloatArray = np.zeros((m, q))
    batches = [
        Batch.of(view, responses, models, items)
        for models, items in asked_alike(np.isfinite(responses))
    ]
    factors = q - 1 - len(view.offset_own)
    own = np.tile(np.minimum(view.prior_variances, FIRST_VARIANCE), (m, 1))
    sums = Sums.empty(m, q, logistic=view.logistic)
    root = _root(sums.precision(view))
    for step in range(PASSES if batches else 0):
        sums = Sums.empty(m, q, logistic=view.logistic)
        for batch in batches:
            # The first pass has no residuals yet.
            batch.add(sums, mean, own[:, 1:], weigh=step > 0)
        root = _root(sums.precision(view))
        before = mean[:, 0]
        mean = (root.T @ (root @ sums.gradient.T.reshape(-1))).reshape(q, m).T.copy()
        if factors:
            own = np.einsum("ij,ij->j", root, root).reshape(q, m).T
        if view.logistic:
            theta = before + np.clip(mean[:, 0] - before, -THETA_STEP, THETA_STEP)
            mean[:, 0] = np.clip(theta, -THETA_BOUND, THETA_BOUND)
    return Latent(view, mean, root)


def _root(precision: FloatArray) -> FloatArray:
    """Lower triangular R with R' R the inverse of a precision.

    Args:
        precision: Positive definite, shape (p, p); its lower triangle is read.
    """
    # LAPACK counts by columns: its upper triangle is our lower one.
    upper, problem = dpotrf(precision.T, lower=0, clean=1, overwrite_a=0)
    if problem:  # numerically singular
        ridge = SINGULAR * np.diag(np.diag(precision))
        upper = dpotrf((precision + ridge).T, lower=0, clean=1)[0]
    return np.asarray(dtrtri(upper, lower=0, overwrite_c=1)[0]).T


def misfit(latent: Latent, responses: FloatArray) -> FloatArray:
    """Mean squared standardised residual of each model's answers, shape (m,), near 1 where it fits.

    Single values are cut at 6, so that one odd answer does not condemn a model; 1 where nothing was
    asked.
    """
    answered = np.isfinite(responses)
    items = np.flatnonzero(answered.any(axis=0))
    asked, part = answered[:, items], latent.view.take(items)
    curve, f = part.curve(latent.mean[:, 0]), latent.mean[:, 1:]
    residual = np.where(asked, responses[:, items], 0.0) - curve.mean - f @ part.loadings
    spread = part.noise * (1.0 + f**2 @ part.loading_var)
    spread = spread + curve.item_covariance(part.item_cov, slice(None), slice(None))
    each = np.where(asked, np.minimum(residual**2 / spread, 6.0), 0.0)
    count = asked.sum(axis=1)
    return np.where(count > 0, each.sum(axis=1) / np.maximum(count, 1), 1.0)
