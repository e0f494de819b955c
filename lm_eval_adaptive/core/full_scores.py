"""From latent values to scores on the full benchmark, and their covariance.

This module owns the sums over items that were not asked; it imports numpy and what a posterior is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent
    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

# Models times items whose curves are worked out at once.
CURVE_CELLS = 65_536
# Share of the items below which those asked are taken off sums over all items.
FEW_ASKED = 0.25


def full_scores(latent: Latent, responses: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Full-benchmark scores of m models, and their covariance.

    The mean over items of what was observed, and of mu + f' w where it was not. The error is that
    of the latent values and, for items not asked, noise and calibration error. What does not hang
    on abilities is summed over all items once, and taken off again for those asked.

    Args:
        latent: The posterior.
        responses: Shape (m, n), NaN where not asked.

    Returns:
        Shapes (m,) and (m, m).
    """
    view, mean = latent.view, latent.mean
    m, n = responses.shape
    answered = np.isfinite(responses)
    theta, f = mean[:, 0], mean[:, 1:]
    unasked = _Unasked.of(view, answered)
    part, sums = unasked.part, view.sums
    loads = unasked.by_one(sums.loadings, part.loadings)
    noise = unasked.by_both(sums.noise_parts, view.noise_parts(part))
    by_latent = np.empty((m, mean.shape[1]))
    by_latent[:, 1:] = loads / n
    if view.logistic:
        expected, slope, errors = _unasked_curve(view, theta, answered)
    else:
        line = np.array([sums.first, sums.second])
        slope, height = unasked.by_one(line, np.stack([part.first, part.second])).T
        expected = height + slope * theta
        first, cross, second = unasked.by_both(sums.item_cov, part.item_cov)
        errors = theta[:, None] * theta * first + (theta[:, None] + theta) * cross + second
    by_latent[:, 0] = slope / n
    score = (np.nansum(responses, axis=1) + expected + (f * loads).sum(axis=1)) / n
    factors = f[:, : len(noise) - 1].T
    errors = errors + (factors[:, :, None] * factors[:, None, :] * noise[1:]).sum(axis=0)
    errors[np.arange(m), np.arange(m)] += np.diag(noise[0])
    return score, latent.cov_of(by_latent) + errors / n**2


@dataclass(frozen=True)
class _Unasked:
    """How values are summed over the items that models were not asked.

    Where few items were asked, they are taken off the sums over all.

    Attributes:
        part: The items that are summed: those that any model was asked, or all.
        mask: 1 where a model counts, shape (m, c): where it was asked, or where it was not.
        taken_off: Whether it was asked.
    """

    part: View
    mask: FloatArray
    taken_off: bool

    @classmethod
    def of(cls, view: View, answered: BoolArray) -> _Unasked:
        items = np.flatnonzero(answered.any(axis=0))
        if len(items) < FEW_ASKED * answered.shape[1]:
            return cls(view.take(items), answered[:, items].astype(np.float64), taken_off=True)
        return cls(view, (~answered).astype(np.float64), taken_off=False)

    def by_one(self, total: FloatArray, values: FloatArray) -> FloatArray:
        """Sums over the items that a model was not asked, shape (m, r).

        Args:
            total: Sums over all items, shape (r,).
            values: Of the part's items, shape (r, c).
        """
        found = self.mask @ values.T
        return np.asarray(total - found if self.taken_off else found)

    def by_both(self, total: FloatArray, values: FloatArray) -> FloatArray:
        """Sums over the items that neither of two models was asked, shape (r, m, m)."""
        found = np.matmul(self.mask * values[:, None, :], self.mask.T)
        if self.taken_off:
            by_one = values @ self.mask.T
            found += total[:, None, None] - by_one[:, :, None] - by_one[:, None, :]
        return np.asarray(found)


def _unasked_curve(
    view: View, theta: FloatArray, answered: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums over the items not asked, under the logistic view.

    Returns:
        Of expected scores and of their slopes, shape (m,), and of the calibration error that two
        models have in common, shape (m, m).
    """
    m, n = answered.shape
    expected, slope, errors = np.zeros(m), np.zeros(m), np.zeros((m, m))
    var_first, cross, var_second = view.item_cov
    size = max(CURVE_CELLS // max(m, 1), 1)
    for start in range(0, n, size):
        items = slice(start, start + size)
        unasked = ~answered[:, items]
        a = np.exp(view.first[items])
        mean = expit(a * theta[:, None] + view.second[items])
        spread = mean * (1.0 - mean)
        spread *= unasked
        expected += (mean * unasked).sum(axis=1)
        slope += spread @ a
        first = spread * a * theta[:, None]
        errors += (first * var_first[items]) @ first.T
        errors += (spread * var_second[items]) @ spread.T
        mixed = (first * cross[items]) @ spread.T
        errors += mixed + mixed.T
    return expected, slope, errors
