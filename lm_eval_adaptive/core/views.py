"""Views: how scores depend on ability, and on what models share besides ability.

This module owns the calibration side of ``robust-2pl``'s inference; it imports numpy, scipy, the
item parameters and the usual slopes. A view is a curve of expected scores in theta plus a few
*factors*: directions in which calibration models differ beyond their ability (style, length,
language). Their loadings are shrunk by how much of them is noise. Two views are fitted, one with a
logistic curve (the bank's own columns) and one with a straight line: they err differently, so their
mean errs less than either, and their disagreement tells how far to trust it.

The formulas are this project's own; the shrinkage of the factors is empirical Bayes for a
probabilistic principal component model (Tipping and Bishop 1999, J. R. Statist. Soc. B 61:611-622).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import expit

from lm_eval_adaptive.core.siblings import effective_number
from lm_eval_adaptive.core.slopes import NOISE_DF, usual_slopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.response import ItemParameters

    FloatArray = NDArray[np.float64]

# Most factors; with C calibration models at most C - 3. Between 8 and 15 made no difference.
MAX_FACTORS = 10
# Standard deviations of what is not known of a model yet unseen. Its ability is next to free: a
# prior or an end of the scale would decide the score of a model far from those that calibrated.
# Factors are directions found among these models, so their scores stay about as large.
THETA_SD, FACTOR_SD = 4.0, 1.0
# Variances of the offsets, in units of the mean slope: a model's own, and what all ranked models
# have in common, since what a bank is wrong about it is wrong about for all of them alike. The
# first is a constant, the second goes with items' heights.
OFFSET_OWN, OFFSET_COMMON = (1.0, 0.1), (8.0, 2.0)
# A model's own constant where the ranked models do not show the bank's slopes again.
LEANING_OWN = 4.0
# Weight, in degrees of freedom, of the common noise in each item's own.
LOGISTIC_NOISE_DF = 8.0
# Passes that fill cells without a score from the factors found; few where a pass is slow.
FILL_ROUNDS, FEW_FILL_ROUNDS = 8, 3
# Logistic slopes that are drawn to their mean stay above this share of it, and log discriminations
# below 3: a steeper curve would be a step.
LEAST_SLOPE, MOST_LOG_DISCRIMINATION, STEEP = 0.1, 3.0, 0.9
# Where a dense eigendecomposition of models x models becomes slow.
MANY_MODELS = 400


@dataclass(frozen=True)
class Curve:
    """Expected scores at some abilities, with their derivatives; all arrays (m, n).

    Attributes:
        mean: Expected score.
        slope: Derivative by theta.
        by_first: Derivative by an item's first parameter (log a, or the line's slope).
        by_second: Derivative by its second (d, or the line's height).
    """

    mean: FloatArray
    slope: FloatArray
    by_first: FloatArray
    by_second: FloatArray

    def item_covariance(self, cov: FloatArray, a: int | slice, b: int | slice) -> FloatArray:
        """Covariance of two models' expected scores by the items' calibration error, shape (n,).

        With slices, of so many pairs of models, a row each.
        """
        return np.asarray(
            self.by_first[a] * self.by_first[b] * cov[0]
            + (self.by_first[a] * self.by_second[b] + self.by_second[a] * self.by_first[b]) * cov[1]
            + self.by_second[a] * self.by_second[b] * cov[2]
        )


@dataclass(frozen=True)
class ItemSums:
    """Sums over all items of a view.

    Attributes:
        first: Of the lines' slopes.
        second: Of their heights.
        item_cov: Of the calibration variances and covariance, shape (3,).
        loadings: Shape (k,).
        noise_parts: Of the noise, and of its product with each loading's variance, shape (k + 1,);
            offsets have none.
    """

    first: float
    second: float
    item_cov: FloatArray
    loadings: FloatArray
    noise_parts: FloatArray


@dataclass(frozen=True)
class View:
    """A curve and factors for n items.

    Attributes:
        logistic: mean = expit(e^first theta + second); else mean = first theta + second.
        first: Shape (n,).
        second: Shape (n,).
        item_cov: Calibration variances and covariance of the two: (var first, cov, var second),
            shape (3, n).
        loadings: Shape (k, n): change of the score by one unit of a factor score.
        loading_var: Their posterior variances, shape (k, n), in units of ``noise``.
        noise: Variance of a score about curve and factors, shape (n,).
        offset_own: Variances of a model's own offsets, those of the last loadings; see
            :meth:`with_offsets`.
    """

    logistic: bool
    first: FloatArray
    second: FloatArray
    item_cov: FloatArray
    loadings: FloatArray
    loading_var: FloatArray
    noise: FloatArray
    offset_own: tuple[float, ...] = ()

    @property
    def latent(self) -> int:
        """Number of latent values of a model: theta, its factor scores, and offsets if any."""
        return len(self.loadings) + 1

    @cached_property
    def sums(self) -> ItemSums:
        """Sums over the items, which a round has no need to make anew."""
        return ItemSums(
            float(self.first.sum()),
            float(self.second.sum()),
            self.item_cov.sum(axis=1),
            self.loadings.sum(axis=1),
            self.noise_parts(self).sum(axis=1),
        )

    def noise_parts(self, part: View) -> FloatArray:
        """Noise of a part's items and its products with their loadings' variances: (k + 1, c)."""
        factors = len(self.loadings) - len(self.offset_own)
        return np.concatenate([part.noise[None, :], part.noise * part.loading_var[:factors]])

    @cached_property
    def _widened(self) -> dict[float, View]:
        return {}

    def widened(self, own: float) -> View:
        """See :meth:`with_offsets`; kept, since every round asks for it."""
        if own not in self._widened:
            self._widened[own] = self.with_offsets(own)
        return self._widened[own]

    def with_offsets(self, own: float = OFFSET_OWN[0]) -> View:
        """The view with two more loadings, a constant and the items' heights.

        Curves of models in the range of those that calibrated tie how high a model scores to how
        much more it scores where slopes are steep, and to how much less it scores on hard items.
        For a model far outside they do not hold so far, and offsets let the one be off without the
        other.

        Args:
            own: Variance of a model's own constant, in units of the squared mean slope.
        """
        height = expit(self.second) if self.logistic else self.second
        height = (height - height.mean()) / (height.std() + 1e-9)
        rows = self.slope.mean() * np.stack([np.ones(len(height)), height])
        if self.logistic:  # with equal slopes ability is that constant, and two of them run away
            rows[0] *= min(2.0 * float(self.slope.std() / max(self.slope.mean(), 1e-9)), 1.0)
        return replace(
            self,
            loadings=np.concatenate([self.loadings, rows]),
            loading_var=np.concatenate([self.loading_var, np.zeros_like(rows)]),
            offset_own=(own, *OFFSET_OWN[1:]),
        )

    def without_offsets(self) -> View:
        """The view as it was before :meth:`with_offsets`."""
        bare = len(self.loadings) - len(self.offset_own)
        return replace(
            self,
            loadings=self.loadings[:bare],
            loading_var=self.loading_var[:bare],
            offset_own=(),
        )

    @property
    def prior_variances(self) -> FloatArray:
        """Prior variances of one model's latent values by itself, shape (q,)."""
        found = self._own_variances()
        offsets = len(self.offset_own)
        found[self.latent - offsets :] += OFFSET_COMMON[:offsets]
        return found

    def _own_variances(self) -> FloatArray:
        found = np.full(self.latent, FACTOR_SD**2)
        found[0] = THETA_SD**2
        found[self.latent - len(self.offset_own) :] = self.offset_own
        return found

    def add_prior_precision(self, precision: FloatArray) -> None:
        """Add the prior's: models' values have covariance v I + c 11', of each latent value.

        Its inverse is I / v - c / (v (v + m c)) 11'; the values of one model are independent.

        Args:
            precision: By latent values and models, shape (q, m, q, m).
        """
        q, models = precision.shape[:2]
        common = [0.0] * (q - len(self.offset_own)) + list(OFFSET_COMMON[: len(self.offset_own)])
        each = np.arange(models)
        for value, (own, shared) in enumerate(zip(self._own_variances(), common, strict=True)):
            precision[value, each, value, each] += 1.0 / own
            if shared:
                precision[value, :, value] -= shared / (own * (own + models * shared))

    def take(self, items: NDArray[np.intp]) -> View:
        """The view of some of the items."""
        return View(
            self.logistic,
            self.first[items],
            self.second[items],
            self.item_cov[:, items],
            self.loadings[:, items],
            self.loading_var[:, items],
            self.noise[items],
            self.offset_own,
        )

    @property
    def slope(self) -> FloatArray:
        """Change of each item's expected score by theta at theta 0, shape (n,)."""
        if not self.logistic:
            return self.first
        mean = expit(self.second)
        return np.asarray(np.exp(self.first) * mean * (1.0 - mean))

    def with_slopes_drawn(self, share: float) -> View:
        """The view with its slopes at theta 0 drawn to their mean.

        Args:
            share: What is kept of an item's difference from the mean slope, 0 to 1.
        """
        slope = self.slope
        usual = slope.mean()
        drawn = usual + share * (slope - usual)
        if not self.logistic:
            return replace(self, first=drawn)
        mean = expit(self.second)
        drawn = np.log(np.maximum(drawn, LEAST_SLOPE * usual) / (mean * (1.0 - mean)))
        # An item near an end of the scale would become a step; none is steeper than most were.
        steepest = np.maximum(self.first, np.quantile(self.first, STEEP))
        drawn = np.minimum(drawn, np.minimum(steepest, MOST_LOG_DISCRIMINATION))
        # A curve that is made steeper is no less certain for it: the slope's own error stays.
        flatter = np.minimum(np.exp(self.first - drawn), 1.0)
        item_cov = self.item_cov * np.stack([flatter**2, flatter, np.ones_like(flatter)])
        return replace(self, first=drawn, item_cov=item_cov)

    def curve(self, theta: FloatArray) -> Curve:
        """The curve at abilities of shape (m,)."""
        t = theta[:, None]
        if not self.logistic:
            ones = np.ones((len(theta), len(self.first)))
            return Curve(self.second + self.first * t, self.first * ones, t * ones, ones)
        a = np.exp(self.first)
        mean = expit(a * t + self.second)
        spread = mean * (1.0 - mean)
        return Curve(mean, spread * a, spread * a * t, spread)


def fit_views(
    scores: FloatArray,
    theta: FloatArray,
    items: ItemParameters,
    levels: FloatArray | None = None,
) -> tuple[View, View]:
    """Both views of a calibrated bank.

    Args:
        scores: Calibration scores, shape (C, n), NaN where not asked.
        theta: Abilities of the calibration models under ``items``, shape (C,), standardised.
        items: The bank's ``robust-2pl`` parameters.
        levels: Mean scores, shape (C,), of models whose items were chosen for them, NaN for others.

    Returns:
        The logistic view and the linear one.
    """
    # Siblings tell less of an item's curve than as many models of different kinds.
    repeated = len(scores) / effective_number(scores)
    views = _logistic_view(scores, theta, items), _linear_view(scores, levels)
    first, second = (replace(view, item_cov=repeated * view.item_cov) for view in views)
    return first, second


def drawn(views: tuple[View, View], shares: Sequence[float] | None) -> tuple[View, View]:
    """The views with their slopes drawn to the mean by a share each; None leaves them."""
    if shares is None:
        return views
    return views[0].with_slopes_drawn(shares[0]), views[1].with_slopes_drawn(shares[1])


def _logistic_view(scores: FloatArray, theta: FloatArray, items: ItemParameters) -> View:
    """The bank's curves, with factors of what they leave."""
    a, b = items.discrimination, items.difficulty
    cov = items.covariance
    # From (b, a) to (log a, d) with d = -a b; the inverse of what calibration did.
    var_log_a = cov[:, 1, 1] / a**2
    cross = -cov[:, 0, 1] - b * cov[:, 1, 1] / a
    var_d = a**2 * cov[:, 0, 0] + b**2 * cov[:, 1, 1] + 2.0 * a * b * cov[:, 0, 1]
    residual = scores - expit(a * (theta[:, None] - b))
    noise = items.noise**2
    found = _factors(residual, noise, LOGISTIC_NOISE_DF)
    item_cov = np.array([var_log_a, cross, var_d]) * (found.noise / noise)
    return View(True, np.log(a), -a * b, item_cov, found.loadings, found.loading_var, found.noise)


def _linear_view(scores: FloatArray, levels: FloatArray | None) -> View:
    """Straight lines in a model's standardised mean score, with factors of what they leave."""
    filled = fill_missing(scores, levels)
    models, n = filled.shape
    means = _with_levels(filled.mean(axis=1), levels)
    t = (means - means.mean()) / (means.std() + 1e-9)
    height = filled.mean(axis=0)
    centred = filled - height
    own_slope = t @ centred / models
    residual = np.where(np.isfinite(scores), centred - t[:, None] * own_slope, np.nan)
    seen = np.isfinite(scores).sum(axis=0)
    squares = np.nansum(residual**2, axis=0)
    common = squares.sum() / max(float((seen - 2).sum()), 1.0)
    noise = (squares + NOISE_DF * common) / (np.maximum(seen - 2, 0) + NOISE_DF)
    noise = np.maximum(noise, 1e-9)
    usual, prior_var = usual_slopes(scores, t, height, noise)
    found = _factors(residual, noise, NOISE_DF)
    # Factors that happen to run along ability move an item's own slope as its noise does, so what
    # they explain still counts as noise here. An item that few models were asked knows less.
    counts = np.maximum(seen, 1)
    ratio = noise / prior_var
    slope = (counts * own_slope + ratio * usual) / (counts + ratio)
    item_cov = np.array([found.noise / (counts + ratio), np.zeros(n), found.noise / counts])
    return View(False, slope, height, item_cov, found.loadings, found.loading_var, found.noise)


def _with_levels(means: FloatArray, levels: FloatArray | None) -> FloatArray:
    return means if levels is None else np.where(np.isfinite(levels), levels, means)


def fill_missing(
    scores: FloatArray, levels: FloatArray | None = None, rounds: int = 20
) -> FloatArray:
    """Missing cells by regression of each item on ability, repeated; others are left alone.

    Args:
        scores: Shape (C, n), NaN where missing.
        levels: Mean scores known from elsewhere, shape (C,), NaN for the others.
        rounds: Passes.
    """
    missing = ~np.isfinite(scores)
    if not missing.any():
        return scores
    start = np.nanmean(scores, axis=0)
    filled = np.where(missing, start, scores)
    for _ in range(rounds):
        means = _with_levels(filled.mean(axis=1), levels)
        t = (means - means.mean()) / (means.std() + 1e-9)
        height = filled.mean(axis=0)
        slope = t @ (filled - height) / (len(scores) + 2.0)
        filled = np.where(missing, np.clip(height + t[:, None] * slope, 0.0, 1.0), scores)
    return filled


@dataclass(frozen=True)
class _Factors:
    loadings: FloatArray
    loading_var: FloatArray
    noise: FloatArray


def _factors(residual: FloatArray, noise: FloatArray, prior_df: float) -> _Factors:
    """Shrunk factors of residuals.

    Factor scores are the leading eigenvectors of the models' standardised residual products, with
    unit mean square. Loadings of factor k have prior variance v_k, the excess of their mean square
    over what noise alone would give; what a factor explains is taken out of the noise.

    Args:
        residual: Shape (C, n), NaN where not asked.
        noise: Variance of the residuals, shape (n,).
        prior_df: Weight of the common noise in each item's own, degrees of freedom.

    Returns:
        Loadings and their variances, shape (k, n), and the noise left, shape (n,).
    """
    models, n = residual.shape
    mask = np.isfinite(residual)
    seen = np.maximum(mask.sum(axis=0), 1).astype(np.float64)
    e = np.where(mask, residual, 0.0)
    e = np.where(mask, e - e.sum(axis=0) / seen, 0.0)
    count = max(min(MAX_FACTORS, models - 3), 0)
    none = _Factors(np.zeros((0, n)), np.zeros((0, n)), noise)
    found = none
    filled = e
    rounds = FILL_ROUNDS if models <= MANY_MODELS else FEW_FILL_ROUNDS
    for _ in range(1 if mask.all() else rounds):
        scores, prior_var = _factor_scores(filled / np.sqrt(noise), count, float(mask.mean()))
        if not len(prior_var):
            return none
        ratio = np.broadcast_to(1.0 / prior_var[:, None], (len(prior_var), n))
        for _ in range(3):
            loadings = scores.T @ filled / (models + ratio)
            squares = np.where(mask, (e - scores @ loadings) ** 2, 0.0).sum(axis=0)
            df = np.maximum(seen - 2.0 - (seen / (seen + ratio)).sum(axis=0), 1.0)
            common = squares.sum() / df.sum()
            left = np.maximum((squares + prior_df * common) / (df + prior_df), 1e-9)
            ratio = left / (prior_var[:, None] * noise)
        found = _Factors(loadings, 1.0 / (seen + ratio), left)
        # What the factors say of cells without a score; else these would count as no deviation.
        filled = np.where(mask, e, scores @ loadings)
    return found


def _factor_scores(z: FloatArray, count: int, share: float) -> tuple[FloatArray, FloatArray]:
    """Scores of the useful factors, shape (C, k), and prior variances of their loadings, (k,).

    Args:
        z: Residuals in units of their noise, shape (C, n).
        count: Most factors.
        share: Share of the cells that hold a score; filled ones are without noise.
    """
    models, n = z.shape
    if not count:
        return np.zeros((models, 0)), np.zeros(0)
    products = z @ z.T / n
    vectors, total = _leading(products, count)
    scores = vectors * np.sqrt(models)
    spare = max(models - 2 - count, 1)
    rest = max((float(np.trace(products)) - total) / spare / share, 1e-9)
    prior_var = np.maximum(((scores.T @ z / models) ** 2).mean(axis=1) - rest / models, 0.0)
    useful = prior_var > 1e-5
    return scores[:, useful], prior_var[useful]


def _leading(products: FloatArray, count: int) -> tuple[FloatArray, float]:
    """The leading eigenvectors of a symmetric matrix, and the sum of their eigenvalues."""
    models = len(products)
    if models > MANY_MODELS:
        values, vectors = eigsh(products, k=count, v0=np.ones(models))
    else:
        values, vectors = np.linalg.eigh(products)
        values, vectors = values[-count:], vectors[:, -count:]
    order = np.argsort(-values, kind="stable")
    return np.asarray(vectors[:, order]), float(values.sum())
