"""The least that an error can be.

This module owns two bounds and imports numpy. Where all documents were asked, or all answers are
the same, no spread is left to see, and yet the next document might differ: by the rule of
succession one more is thought of, and errors are never 0. A probability is never told as certain
either: no model of answers is known to hold as far out as that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

# The most that a probability is told as.
MOST_SURE = 1.0 - 1e-9


def alike_variance(count: int, total: int) -> float:
    """Variance of a mean of which all values seen are the same, so that they tell of no spread.

    That of a share by the rule of succession, as if one in ``count + 2`` were another; where all
    documents were asked, one more is thought of, and the error is never 0.

    Args:
        count: Values seen, in [0, 1].
        total: Documents in all.

    >>> round(alike_variance(100, 100) ** 0.5, 5)
    0.00097
    """
    share = 1.0 / (count + 2)
    return share * (1.0 - share) / (count + 2) * (total - count + 1) / (total + 1)


def with_least_variance(cov: FloatArray, total: int) -> FloatArray:
    """A covariance of scores, shape (m, m), no variance of it below that of ``total`` asked alike.

    What is added to a variance is the model's own: covariances stay.
    """
    lack = np.maximum(alike_variance(total, total) - np.diag(cov), 0.0)
    return np.asarray(cov + np.diag(lack))


def least_pair_variance(variance: FloatArray, total: int) -> FloatArray:
    """Variances of differences of two scores, shape (m, m), at least those of two such models."""
    apart = ~np.eye(len(variance), dtype=bool)
    least = 2.0 * alike_variance(total, total)
    return np.asarray(np.where(apart, np.maximum(variance, least), variance))
