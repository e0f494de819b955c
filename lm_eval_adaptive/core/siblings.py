"""How many models a bank's calibration models count for.

This module owns the effective number of models, and which of them are siblings; it imports numpy
only. Fine-tunes, checkpoints and temperatures of one model err on the same items: what they add to
a bank is less than what as many models of different kinds would, and held out alone each of them is
told by the others. They are known by the correlation of what ability leaves of their scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# Residual correlations up to FREE are common among models of different kinds; from SAME on two
# models count as one. Models correlated above RELATED are held out together.
FREE, SAME, RELATED = 0.4, 0.9, 0.7
# Of very many models, so many are compared: their share of kinds is that of all.
MOST_COMPARED = 400


def residual_correlations(scores: FloatArray) -> FloatArray:
    """Correlation of every two models' residuals about items' means and slopes, shape (C, C).

    Args:
        scores: Shape (C, n), NaN where not asked; such cells count as no residual.
    """
    seen = np.isfinite(scores)
    height = np.nanmean(scores, axis=0)
    apart = np.where(seen, scores - height, 0.0)
    theta = apart.sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    theta = theta - theta.mean()
    slope = theta @ apart / max(float(theta @ theta), 1e-12)
    left = np.where(seen, apart - theta[:, None] * slope, 0.0)
    # An item on which all models vary much would speak for all others.
    left = left / np.sqrt((left**2).mean(axis=0) + 1e-6)
    left = left - left.mean(axis=1, keepdims=True)
    length = np.sqrt((left**2).sum(axis=1))
    found = left @ left.T / np.maximum(length[:, None] * length[None, :], 1e-12)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def effective_number(scores: FloatArray) -> float:
    """How many models of different kinds these count for, between 1 and C.

    C^2 over the sum of their likenesses, a likeness being 0 up to a residual correlation of
    :data:`FREE`, 1 from :data:`SAME` on, and the square of its share of the way between.

    Args:
        scores: Shape (C, n), NaN where not asked.
    """
    count = len(scores)
    if count < 2:
        return float(count)
    compared = scores
    if count > MOST_COMPARED:
        compared = scores[np.linspace(0, count - 1, MOST_COMPARED).astype(int)]
    way = np.clip((residual_correlations(compared) - FREE) / (SAME - FREE), 0.0, 1.0)
    share = len(compared) / float((way**2).sum())
    return count * share


def families(scores: FloatArray) -> list[NDArray[np.intp]]:
    """Groups of models that are related, directly or over others; most hold one.

    Args:
        scores: Shape (C, n), NaN where not asked.
    """
    related = residual_correlations(scores) > RELATED
    left = set(range(len(scores)))
    found = []
    while left:
        group, fresh = set(), {min(left)}
        while fresh:
            group |= fresh
            fresh = {
                int(other) for model in fresh for other in np.flatnonzero(related[model])
            } - group
        left -= group
        found.append(np.array(sorted(group), dtype=np.intp))
    return found
