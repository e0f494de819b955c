"""Levels of models by regression of their answers on what the items are, without a prior.

This module owns that estimate; it imports numpy and the views. It leans on the drawn items'
residuals alone, so it is noisy where the bank fits and right where models lie far from all that
calibrated. How far the pooled estimate lies from it tells how far the bank's word may be off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

# Ridges on the slope and on the height, in items of median noise.
SLOPE_RIDGE, HEIGHT_RIDGE = 0.05, 0.02
# Fewer answers show no level, and fewer than these no error of it.
LEAST_ANSWERS, LEAST_FOR_VARIANCE = 4, 8


@dataclass(frozen=True)
class Levels:
    """Levels by regression.

    Attributes:
        common: Mean full score of all models, within 0 to 1.
        variance: Its error's variance by the residuals.
        own: Full score of each model by its own answers alone, shape (m,).
        own_var: Their errors' variances, infinite where fewer than eight answers were, shape (m,).
    """

    common: float
    variance: float
    own: FloatArray
    own_var: FloatArray


def levels_by_regression(
    view: View, responses: FloatArray, otherwise: FloatArray, variance: float
) -> Levels:
    """Levels of all models together, and of each.

    Answers less their items' heights are regressed on 1, the slope and the height, both from their
    means over all items; the constant is how far the level lies from the calibration models'.
    Nothing is assumed about how far out that is. For the common level, answers are means over the
    models asked an item.

    Args:
        view: A linear view.
        responses: Scores, shape (m, n), NaN where not asked.
        otherwise: Levels that are returned where fewer than four items were asked, or all were,
            shape (m,).
        variance: The variance that is returned where fewer than eight were.
    """
    asked = np.isfinite(responses)
    count = asked.sum(axis=0)
    filled = np.where(asked, responses, 0.0)
    together = _level(view, filled.sum(axis=0) / np.maximum(count, 1), count)
    own, own_var = np.array(otherwise, dtype=np.float64), np.full(len(responses), np.inf)
    for row, scores in enumerate(filled):
        found = _level(view, scores, asked[row].astype(np.int_))
        if found is not None:
            own[row] = found[0]
            if int(asked[row].sum()) >= LEAST_FOR_VARIANCE:
                own_var[row] = found[1]
    if together is None:
        return Levels(float(np.mean(otherwise)), variance, own, own_var)
    told = together[1] if int((count > 0).sum()) >= LEAST_FOR_VARIANCE else variance
    return Levels(float(np.clip(together[0], 0.0, 1.0)), told, own, own_var)


def _level(view: View, answers: FloatArray, count: NDArray[np.int_]) -> tuple[float, float] | None:
    """Level and its variance from mean answers of ``count`` models to each item, shape (n,)."""
    items = np.flatnonzero(count)
    if len(items) < LEAST_ANSWERS or len(items) == len(count):
        return None
    weight = count[items] / (view.noise[items] + np.median(view.noise[items]))
    slope, height = view.sums.first / len(count), view.sums.second / len(count)
    design = np.stack([np.ones(len(items)), view.first[items] - slope, view.second[items] - height])
    plain = (design * weight) @ design.T
    unit = float(np.median(weight)) * len(items)
    gram = plain + unit * np.diag([0.0, SLOPE_RIDGE * slope**2, HEIGHT_RIDGE])
    if not np.linalg.cond(gram) < 1e12:
        return None
    inverse = np.linalg.inv(gram)
    apart = answers[items] - view.second[items]
    by = inverse @ (design * weight) @ apart
    left = apart - by @ design
    noise = float(weight @ left**2) / max(len(items) - 3, 1)
    spread = float((inverse @ plain @ inverse)[0, 0])
    return float(height + by[0]), noise * spread
