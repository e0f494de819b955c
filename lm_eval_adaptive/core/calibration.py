"""From a matrix of scores to item parameters.

This module owns the fits of the three response models; it imports numpy, scipy and the response
formulas. It works on scores in [0, 1] (models x items, NaN where a model was not asked) and knows
neither files nor the harness. Abilities of calibration models are functions of their mean scores,
because the full-benchmark score is what the ranking is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from lm_eval_adaptive.core.response import ItemParameters
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.response import ResponseModelName

    FloatArray = NDArray[np.float64]

MIN_MODELS = 3

# Mean scores are kept this far from 0 and 1 before a logit: items', and models' under the 2PL
# models, whose means are over many items and near the ends only when they are meant.
EPSILON = 0.01
MODEL_EPSILON = 0.001

# robust-2pl, bernoulli-2pl: spread of log discriminations and of intercepts between items.
LOG_DISCRIMINATION_SD = 0.2
INTERCEPT_SD = 3.0
# robust-2pl: weight, in degrees of freedom, of the common noise in each item's own.
NOISE_PRIOR_DF = 8.0
MAX_SWEEPS = 80
# When the usual discrimination is renewed. It is then left as it is: on bimodal scores, chasing it
# further would draw easy and hard items' slopes apart without end.
USUAL_SWEEPS = (5, 7, 9, 11, 13, 15, 17, 19)
TOLERANCE = 1e-5
# Cells of a score matrix that are worked on at once.
BLOCK_CELLS = 32_768


@dataclass(frozen=True)
class Calibration:
    """What calibration found.

    Attributes:
        items: Parameters of all n items, also of those left out.
        theta: Abilities of the C calibration models, shape (C,), logits.
        mean_score: Their mean scores over the items, shape (C,).
        kept: Shape (n,), False for items that are not to be asked.
        reason: Shape (n,), why an item was left out; "" for kept items.
        item_rest_correlation: Shape (n,), Pearson, NaN for constant items.
        parameters: Global parameters of the response model by name.
    """

    items: ItemParameters
    theta: FloatArray
    mean_score: FloatArray
    kept: NDArray[np.bool_]
    reason: tuple[str, ...]
    item_rest_correlation: FloatArray
    parameters: dict[str, float]


def completed_means(
    scores: FloatArray, levels: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Mean score of each model and item as if every cell had been observed.

    An additive fit, model effect + item effect, by alternating least squares; on a full matrix it
    gives the plain means. It keeps a model from looking good because it was asked easy items.

    Args:
        scores: Shape (C, n), in [0, 1], NaN where not asked; every row and column holds a score.
        levels: Shape (C,), mean scores of models that were estimated elsewhere, NaN for the
            others; models whose items were chosen for them need it.

    Returns:
        Model means, shape (C,), and item means, shape (n,), in [0, 1].
    """
    seen = np.isfinite(scores)
    filled = np.where(seen, scores, 0.0)
    items = filled.sum(axis=0) / seen.sum(axis=0)
    if seen.all():
        return filled.mean(axis=1), items
    models = np.zeros(len(scores))
    for _ in range(500):
        before = models
        models = np.where(seen, filled - items[None, :], 0.0).sum(axis=1) / seen.sum(axis=1)
        if levels is not None:
            models = np.where(np.isfinite(levels), levels - items.mean(), models)
        models = models - models.mean()
        items = np.where(seen, filled - models[:, None], 0.0).sum(axis=0) / seen.sum(axis=0)
        if np.abs(models - before).max() < 1e-10:
            break
    # Effects add up, scores end at 0 and 1: a model seen on few items may overshoot.
    means = np.clip(models + items.mean(), 0.0, 1.0)
    if levels is not None:
        means = np.where(np.isfinite(levels), levels, means)
    return means, np.clip(items, 0.0, 1.0)


def correlations(scores: FloatArray, ability: FloatArray, *, rest: bool) -> FloatArray:
    """Pearson correlation of each item's scores with model ability.

    Args:
        scores: Shape (C, n), NaN where not asked.
        ability: Shape (C,); with ``rest`` it is a mean score, from which the item's own
            contribution is taken out first.
        rest: Whether to take the item out of the ability (item-rest correlation).

    Returns:
        Shape (n,); NaN where an item or the ability does not vary.
    """
    seen = np.isfinite(scores)
    count = seen.sum(axis=0)
    y = np.where(seen, scores, 0.0)
    n = scores.shape[1]
    level = (
        (n * ability[:, None] - y) / max(n - 1, 1) if rest else np.repeat(ability[:, None], n, 1)
    )
    level = np.where(seen, level, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dy = np.where(seen, y - y.sum(axis=0) / count, 0.0)
        dx = np.where(seen, level - level.sum(axis=0) / count, 0.0)
        spread = (dy**2).sum(axis=0) * (dx**2).sum(axis=0)
        found = (dy * dx).sum(axis=0) / np.sqrt(spread)
    return np.where((spread > 1e-24) & (count > 2), found, np.nan)


def _check(scores: FloatArray) -> None:
    if scores.ndim != 2:
        raise DataError(f"expected scores of shape (models, items), got shape {scores.shape}")
    if len(scores) < MIN_MODELS:
        raise DataError(
            f"calibration needs at least {MIN_MODELS} models, got {len(scores)}; add runs of other "
            "models with --samples or --scores"
        )
    outside = np.isfinite(scores) & ((scores < 0.0) | (scores > 1.0))
    if outside.any():
        model, item = (int(k) for k in np.argwhere(outside)[0])
        raise DataError(
            f"score {scores[model, item]} of model {model} on item {item} is outside [0, 1]; map "
            "raw scores with ScoreScale first"
        )
    seen = np.isfinite(scores)
    if not seen.any(axis=1).all():
        row = int(np.argmin(seen.any(axis=1)))
        raise DataError(f"model {row} has no score at all; leave it out")
    if not seen.any(axis=0).all():
        column = int(np.argmin(seen.any(axis=0)))
        raise DataError(f"item {column} has no score at all; leave it out")


def calibrate_items(
    scores: FloatArray, model: ResponseModelName, levels: FloatArray | None = None
) -> Calibration:
    """Fit one response model to a score matrix.

    Args:
        scores: Shape (C, n), in [0, 1], NaN where not asked.
        model: The response model.
        levels: Mean scores of models that were estimated elsewhere; see :func:`completed_means`.

    Returns:
        Parameters and diagnostics of every item.

    Raises:
        DataError: Fewer than 3 models, a score outside [0, 1], an empty row or column, or models
            that all score the same.
    """
    scores = np.asarray(scores, dtype=np.float64)
    _check(scores)
    model_means, item_means = completed_means(scores, levels)
    if np.ptp(model_means) < 1e-12:
        raise DataError(
            f"all {len(scores)} calibration models have the same mean score "
            f"{model_means[0]:.4f}; nothing tells which items separate models"
        )
    fit = _FITS[model]
    end = fit.end
    if np.ptp(np.clip(model_means, end, 1.0 - end)) < 1e-12:
        raise DataError(
            f"all {len(scores)} calibration models have mean scores of {model_means.min():.4f} to "
            f"{model_means.max():.4f}, within {end} of the end of the range; calibrate with "
            "models that differ more, or give a narrower range with --range LO,HI"
        )
    low, high = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    constant = high - low < 1e-12
    rest = correlations(scores, model_means, rest=True)
    reasons = np.where(constant, "constant", "")
    items, theta, parameters = fit.fit(scores, model_means, item_means)
    if fit.rises:
        with_ability = correlations(scores, theta, rest=False)
        reasons = np.where(~constant & (with_ability < 0.0), "negative correlation", reasons)
    if (reasons != "").all():
        raise DataError(
            f"all {len(reasons)} items are constant or correlate negatively with ability; "
            "calibrate with models that differ more"
        )
    return Calibration(
        items=items,
        theta=theta,
        mean_score=model_means,
        kept=reasons == "",
        reason=tuple(str(reason) for reason in reasons),
        item_rest_correlation=rest,
        parameters=parameters,
    )


def _clipped_logit(share: FloatArray) -> FloatArray:
    return np.asarray(logit(np.clip(share, EPSILON, 1.0 - EPSILON)))


def _fit_paper(
    scores: FloatArray, model_means: FloatArray, item_means: FloatArray
) -> tuple[ItemParameters, FloatArray, dict[str, float]]:
    """Difficulty from normalised item means, theta from model means, k by moments; see the paper.

    b_i = -logit(p_i), p_i min-max normalised over items to [eps, 1 - eps]; theta_j = logit(mean
    score of j); k = sum (y - mu)^2 / sum mu (1 - mu). Source: arXiv 2601.13885, section
    "Parameter Estimation".
    """
    spread = float(np.ptp(item_means))
    share = (
        (item_means - item_means.min()) / spread if spread > 0 else np.full_like(item_means, 0.5)
    )
    difficulty = -np.asarray(logit(EPSILON + (1.0 - 2.0 * EPSILON) * share))
    theta = _clipped_logit(model_means)
    mu = expit(theta[:, None] - difficulty[None, :])
    seen = np.isfinite(scores)
    residual2 = np.where(seen, (scores - mu) ** 2, 0.0).sum()
    k = float(residual2 / np.where(seen, mu * (1.0 - mu), 0.0).sum())
    n = len(difficulty)
    # Variance of a logit of a mean of C scores, by the delta method.
    counts = seen.sum(axis=0)
    slope = np.clip(share * (1.0 - share), EPSILON, None)
    cov = np.zeros((n, 2, 2))
    cov[:, 0, 0] = k / (counts * slope)
    items = ItemParameters(
        "paper-1pl", difficulty, np.full(n, 1.0 / np.sqrt(k)), np.full(n, k), cov
    )
    # How a theta of this model reads as a full-benchmark score: logit(score) = alpha + beta theta,
    # with theta the estimate a model gets when all its answers are used.
    estimated = np.array([_full_theta(row, difficulty, k) for row in scores])
    beta, alpha = np.polyfit(estimated, _clipped_logit(model_means), 1)
    off = expit(alpha + beta * estimated) - model_means
    parameters = {
        "k": k,
        "prior_mean": float(np.median(difficulty)),
        "prior_sd": 5.0,
        "score_intercept": float(alpha),
        "score_slope": float(beta),
        "score_sd": float(np.sqrt((off**2).sum() / max(len(off) - 2, 1))),
    }
    return items, theta, parameters


def _full_theta(row: FloatArray, difficulty: FloatArray, k: float) -> float:
    """The theta at which the paper's quasi-score of all of a model's answers is zero."""
    from scipy.optimize import brentq

    seen = np.isfinite(row)
    centre = float(np.median(difficulty))

    def slope(theta: float) -> float:
        each = row[seen] - expit(theta - difficulty[seen])
        return float(each.sum() / k - (theta - centre) / 25.0)

    return float(brentq(slope, centre - 60.0, centre + 60.0))


def _fit_2pl(
    scores: FloatArray, model_means: FloatArray, item_means: FloatArray, *, bernoulli: bool
) -> tuple[ItemParameters, FloatArray, dict[str, float]]:
    """Penalised Gauss-Newton per item for mu = expit(a theta + d), all items at once.

    d ~ N(0, 3^2); log a is shrunk with sd 0.2 to what is usual in the bank: to their mean under
    ``bernoulli-2pl``, under ``robust-2pl`` to a quadratic in the item's height d, since very easy
    and very hard items separate less. ``robust-2pl`` alternates with the noise
    s_i^2 = (sum r^2 + nu s_bar^2) / (C_i + nu - 2); ``bernoulli-2pl`` weighs by 1 / (mu (1 - mu)).
    """
    abilities = np.asarray(logit(np.clip(model_means, MODEL_EPSILON, 1.0 - MODEL_EPSILON)))
    centre, spread = float(abilities.mean()), float(abilities.std())
    theta = (abilities - centre) / spread
    cells = _Cells.of(scores, theta)
    counts = cells.counts

    log_a = np.full(scores.shape[1], np.log(spread))
    d = np.asarray(_clipped_logit(item_means))
    usual = np.full(scores.shape[1], np.log(spread))
    noise2 = np.ones(scores.shape[1])
    penalty = np.array([1.0 / LOG_DISCRIMINATION_SD**2, 1.0 / INTERCEPT_SD**2])
    for sweep in range(MAX_SWEEPS):
        sums = cells.sums(log_a, d, bernoulli=bernoulli)
        if not bernoulli:
            common = float(sums.squares.sum() / max(counts.sum() - 2.0 * len(counts), 1.0))
            noise2 = (sums.squares + NOISE_PRIOR_DF * common) / (counts + NOISE_PRIOR_DF - 2.0)
            noise2 = np.maximum(noise2, 1e-6)
        hessian = sums.hessian / noise2
        hessian[0] += penalty[0]
        hessian[2] += penalty[1]
        gradient_a = sums.gradient[0] / noise2 - penalty[0] * (log_a - usual)
        gradient_d = sums.gradient[1] / noise2 - penalty[1] * d
        inverse = _inverse(hessian)
        # Far from the optimum a full step may leap.
        step_a = np.clip(inverse[0] * gradient_a + inverse[1] * gradient_d, -0.5, 0.5)
        step_d = np.clip(inverse[1] * gradient_a + inverse[2] * gradient_d, -1.0, 1.0)
        log_a = log_a + step_a
        d = d + step_d
        moved = float(max(np.abs(step_a).max(), np.abs(step_d).max()))
        if bernoulli:
            usual = np.full(len(log_a), log_a.mean())
        elif sweep in USUAL_SWEEPS:
            usual = _usual_log_discrimination(log_a, d, usual, hessian)
        if moved < TOLERANCE and (bernoulli or sweep > USUAL_SWEEPS[-1]):
            break
    a = np.exp(log_a)
    covariance = np.empty((len(a), 2, 2))
    covariance[:, 0, 0], covariance[:, 1, 1] = inverse[0], inverse[2]
    covariance[:, 0, 1] = covariance[:, 1, 0] = inverse[1]
    # From (log a, d) to (b, a) with b = -d / a, by the delta method.
    jacobian = np.zeros_like(covariance)
    jacobian[:, 0, 0] = d / a
    jacobian[:, 0, 1] = -1.0 / a
    jacobian[:, 1, 0] = a
    covariance = jacobian @ covariance @ np.transpose(jacobian, (0, 2, 1))
    noise = np.ones_like(a) if bernoulli else np.sqrt(noise2)
    model: ResponseModelName = "bernoulli-2pl" if bernoulli else "robust-2pl"
    items = ItemParameters(model, -d / a, a, noise, covariance)
    parameters = {
        "theta_centre": centre,
        "theta_spread": spread,
        "log_discrimination_mean": float(log_a.mean()),
        "prior_mean": 0.0,
        "prior_sd": 1.5,
        "largest_step": moved,
    }
    return items, theta, parameters


@dataclass(frozen=True)
class _ItemSums:
    """Sums over the models that were asked an item, before the item's own noise counts.

    Attributes:
        squares: Of squared residuals, shape (n,).
        hessian: Of products of the derivatives by log a and d: (aa, ad, dd), shape (3, n).
        gradient: Of the derivatives' products with residuals, shape (2, n).
    """

    squares: FloatArray
    hessian: FloatArray
    gradient: FloatArray


@dataclass(frozen=True)
class _Cells:
    """A score matrix in blocks of items that fit into a core's cache.

    Attributes:
        scores: Shape (C, n) in blocks, one half where not asked.
        seen: 1 where asked, else 0, in blocks; None for blocks without missing cells.
        theta: Abilities, shape (C,).
        counts: Models asked, shape (n,).
    """

    scores: list[FloatArray]
    seen: list[FloatArray | None]
    theta: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, scores: FloatArray, theta: FloatArray) -> _Cells:
        size = max(BLOCK_CELLS // len(scores), 1)
        blocks: list[FloatArray] = []
        seen: list[FloatArray | None] = []
        counts = []
        for start in range(0, scores.shape[1], size):
            block = scores[:, start : start + size]
            mask = np.isfinite(block)
            counts.append(mask.sum(axis=0))
            blocks.append(np.where(mask, block, 0.5))
            seen.append(None if mask.all() else mask.astype(np.float64))
        return cls(blocks, seen, theta, np.concatenate(counts).astype(np.float64))

    def sums(self, log_a: FloatArray, d: FloatArray, *, bernoulli: bool) -> _ItemSums:
        """Sums of a sweep at these parameters, shape (n,) each.

        Under ``bernoulli-2pl`` an answer's variance is the slope of its curve, which drops out of
        its weight; under ``robust-2pl`` the noise is the item's own and divides the sums later.
        """
        by_theta = np.stack([self.theta**2, self.theta, np.ones_like(self.theta)])
        n = len(log_a)
        found = _ItemSums(np.zeros(n), np.empty((3, n)), np.empty((2, n)))
        a = np.exp(log_a)
        start = 0
        for scores, seen in zip(self.scores, self.seen, strict=True):
            part = slice(start, start + scores.shape[1])
            start = part.stop
            mu = self.theta[:, None] * a[part]
            mu += d[part]
            expit(mu, out=mu)
            slope = mu * mu
            np.subtract(mu, slope, out=slope)
            residual = np.subtract(scores, mu, out=mu)
            if seen is not None:
                residual *= seen
                slope *= seen
            if bernoulli:
                found.hessian[:, part] = by_theta @ slope
                found.gradient[:, part] = by_theta[1:] @ residual
            else:
                found.squares[part] = np.einsum("ji,ji->i", residual, residual)
                residual *= slope
                found.gradient[:, part] = by_theta[1:] @ residual
                slope *= slope
                found.hessian[:, part] = by_theta @ slope
        found.hessian[0] *= a * a
        found.hessian[1] *= a
        found.gradient[0] *= a
        return found


def _inverse(matrices: FloatArray) -> FloatArray:
    """Inverses of symmetric matrices of two rows, each as (first, mixed, second): shape (3, n)."""
    first, mixed, second = matrices
    return np.asarray(np.stack([second, -mixed, first]) / (first * second - mixed**2))


def _usual_log_discrimination(
    log_a: FloatArray, d: FloatArray, usual: FloatArray, hessian: FloatArray
) -> FloatArray:
    """What log a is usually at an item's height: a quadratic in d, fitted over the items.

    The estimates are drawn to ``usual`` already; the regression takes that out again by each item's
    own weight, w / (w + 1 / sd^2), w being its data's information about log a.
    """
    sd2 = LOG_DISCRIMINATION_SD**2
    own = hessian[0] - 1.0 / sd2 - hessian[1] ** 2 / hessian[2]
    own = np.maximum(own, 1e-6)
    kept = np.maximum(own / (own + 1.0 / sd2), 0.02)
    unshrunk = usual + np.clip((log_a - usual) / kept, -2.0, 2.0)
    height = (d - d.mean()) / (d.std() + 1e-9)
    design = np.stack([np.ones(len(d)), height, height**2 - 1.0], axis=1)
    weight = 1.0 / (1.0 / own + sd2)
    ridge = 1e-3 * weight.sum()
    gram = design.T @ (design * weight[:, None]) + ridge * np.eye(3)
    pulled = design.T @ (unshrunk * weight) + np.array([ridge * log_a.mean(), 0.0, 0.0])
    return np.asarray(design @ np.linalg.solve(gram, pulled))


@dataclass(frozen=True)
class _Fit:
    """How a response model is fitted.

    Attributes:
        end: Models' mean scores are kept this far from 0 and 1.
        rises: Items whose scores fall with ability are not asked.
        fit: From scores, models' means and items' means to item parameters, abilities and global
            parameters.
    """

    end: float
    rises: bool
    fit: Callable[
        [FloatArray, FloatArray, FloatArray], tuple[ItemParameters, FloatArray, dict[str, float]]
    ]


# Where a response model's name becomes its fit.
_FITS: dict[ResponseModelName, _Fit] = {
    "paper-1pl": _Fit(EPSILON, rises=True, fit=_fit_paper),
    "robust-2pl": _Fit(MODEL_EPSILON, rises=False, fit=partial(_fit_2pl, bernoulli=False)),
    "bernoulli-2pl": _Fit(MODEL_EPSILON, rises=False, fit=partial(_fit_2pl, bernoulli=True)),
}
