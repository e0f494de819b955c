"""How much items usually separate models, learned from other models than those that show it.

This module owns the prior of the linear view's slopes; it imports numpy only. An item that looks
hard because one weak model happened to fail on it also looks as if it told weak from strong: height
and slope share their noise. So what a slope usually is at some height and noise is learned across
halves of the calibration models, the height from one half and the slope from the other. So is how
much slopes truly differ from that: the mean product of two halves' deviations holds no noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]

# Random halvings, and how many where there are so many models that one more tells nothing.
HALVINGS, FEW_HALVINGS = 8, 2
MANY_MODELS = 400
# Weight, in degrees of freedom, of the common noise in an item's own.
NOISE_DF = 6.0
# Of fewer models than this, a half leaves nothing to tell an item's noise from.
NOISE_MODELS = 6
# Least prior variance of a slope, as a share of the usual slopes' mean square.
LEAST_SHARE = 0.02
RIDGE = 1e-3
_LEAST_VARIANCE = 1e-12


@dataclass(frozen=True)
class Lines:
    """Straight lines through each item's scores; all arrays have shape (n,).

    Attributes:
        height: Expected score at theta 0.
        slope: Change of the score by one unit of theta; 0 where the models asked do not differ.
        weight: Sum of squares of theta about its mean over the models asked.
        noise: Variance of the scores about the line, shrunk to the items' common one.
    """

    height: FloatArray
    slope: FloatArray
    weight: FloatArray
    noise: FloatArray


def fit_lines(scores: FloatArray, theta: FloatArray) -> Lines:
    """Least squares per item.

    Args:
        scores: Shape (C, n), NaN where not asked.
        theta: Shape (C,).
    """
    asked = np.isfinite(scores).astype(np.float64)
    y = np.where(asked > 0.0, scores, 0.0)
    count = np.maximum(asked.sum(axis=0), 1.0)
    mean, centre = y.sum(axis=0) / count, asked.T @ theta / count
    apart = asked * (theta[:, None] - centre)
    weight = (apart**2).sum(axis=0)
    slope = (apart * (y - mean)).sum(axis=0) / np.maximum(weight, 1e-9)
    slope = np.where(weight > 1e-9, slope, 0.0)
    squares = (asked * (y - mean - apart * slope) ** 2).sum(axis=0)
    df = np.maximum(asked.sum(axis=0) - 2.0, 0.0)
    common = squares.sum() / max(float(df.sum()), 1.0)
    noise = np.maximum((squares + NOISE_DF * common) / (df + NOISE_DF), 1e-9)
    return Lines(mean - slope * centre, slope, weight, noise)


def usual_slopes(
    scores: FloatArray, theta: FloatArray, height: FloatArray, noise: FloatArray
) -> tuple[FloatArray, float]:
    """What each item's slope is expected to be before its own is looked at, and how sure that is.

    A ridge regression of one half's slopes on a quadratic in the other half's heights and on the
    root of its noise, over several halvings and both ways round. Halves take one of every two
    models that are neighbours in theta, so both span the range.

    Args:
        scores: Calibration scores, shape (C, n), NaN where not asked.
        theta: Abilities of the calibration models, shape (C,).
        height: The items' expected scores at theta 0 from all models, shape (n,).
        noise: Their noise variances from all models, shape (n,).

    Returns:
        Expected slopes, shape (n,), and the variance of true slopes about them.
    """
    models = len(scores)
    with_noise = models >= NOISE_MODELS
    whole = _features(height, noise, with_noise=with_noise)
    centre, spread = whole.mean(axis=0), whole.std(axis=0) + 1e-9
    centre[0], spread[0] = 0.0, 1.0
    penalty = RIDGE * np.eye(whole.shape[1])
    penalty[0, 0] = 0.0
    gram, pulled = np.zeros_like(penalty), np.zeros(len(penalty))
    halves: list[tuple[FloatArray, Lines, Lines]] = []
    for first in _halvings(theta):
        pair = fit_lines(scores[first], theta[first]), fit_lines(scores[~first], theta[~first])
        for one, other in (pair, pair[::-1]):
            features = _features(one.height, one.noise, with_noise=with_noise)
            features = (features - centre) / spread
            weight = other.weight / noise
            weight = weight / max(float(weight.sum()), 1e-300)
            gram += features.T @ (features * weight[:, None])
            pulled += features.T @ (weight * other.slope)
            halves.append((features, one, other))
    if not gram[0, 0] > 0.0:  # no two models of a half differ: nothing can be said of any slope
        return np.zeros(len(height)), _LEAST_VARIANCE
    by_feature = np.linalg.solve(gram + gram[0, 0] * penalty, pulled)
    usual = np.asarray((whole - centre) / spread @ by_feature)
    excess = [
        _weighted_mean(
            (one.slope - features @ by_feature) * (other.slope - features @ by_feature),
            np.sqrt(one.weight * other.weight) / noise,
        )
        for features, one, other in halves
    ]
    least = LEAST_SHARE * float((usual**2).mean())
    return usual, max(float(np.mean(excess)), least, _LEAST_VARIANCE)


def _features(height: FloatArray, noise: FloatArray, *, with_noise: bool) -> FloatArray:
    columns = [np.ones(len(height)), height, height**2]
    if with_noise:
        columns.append(np.sqrt(noise))
    return np.stack(columns, axis=1)


def _halvings(theta: FloatArray) -> list[BoolArray]:
    """Halves of the models, shape (C,) each: one of every two neighbours in theta, at random."""
    rng = np.random.default_rng(0)
    order = np.argsort(theta, kind="stable")
    found = []
    for _ in range(HALVINGS if len(theta) <= MANY_MODELS else FEW_HALVINGS):
        first = np.zeros(len(theta), dtype=bool)
        for start in range(0, len(theta), 2):
            pair = order[start : start + 2]
            first[pair[rng.integers(len(pair))]] = True
        found.append(first)
    return found


def _weighted_mean(values: FloatArray, weights: FloatArray) -> float:
    total = float(weights.sum())
    return float(values @ weights) / total if total > 0.0 else 0.0
