"""The joint posterior of several models under ``robust-2pl``, and the worth of the next item.

This module owns the run-time side of the views; it imports numpy, scipy and the views. All models
are inferred together, because an item whose difficulty is a little off is off for every model that
was asked it: that error is common to them and drops out of their differences. The posterior is
computed anew from all answers, so their order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import expit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.intp]

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
# Pairs of models that items which are summed together may hold for nothing, and of items and pairs
# of models held at once: what fits into a core's cache. Models are taken in blocks.
WASTED_CELLS, MOST_CELLS, BLOCK = 80_000, 50_000, 32
# Fewer items than this are not worth a batch of their own, however many the models.
LEAST_BATCH = 100
# What is added to a precision's diagonal, as a share of it, where it is numerically singular.
SINGULAR = 1e-10
# Models times items whose curves are worked out at once.
CURVE_CELLS = 65_536
# Share of the items below which those asked are taken off sums over all items.
FEW_ASKED = 0.25


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
        _Batch.of(view, responses, models, items)
        for models, items in asked_alike(np.isfinite(responses))
    ]
    factors = q - 1 - len(view.offset_own)
    own = np.tile(np.minimum(view.prior_variances, FIRST_VARIANCE), (m, 1))
    sums = _Sums.empty(m, q, logistic=view.logistic)
    root = _root(sums.precision(view))
    for step in range(PASSES if batches else 0):
        sums = _Sums.empty(m, q, logistic=view.logistic)
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


def asked_alike(answered: BoolArray) -> list[tuple[IntArray, IntArray]]:
    """Items in batches of those that the same models were asked, or almost the same.

    Args:
        answered: Shape (m, n).

    Returns:
        Models and items of each batch; every item that was answered is in one of them.
    """
    items = np.flatnonzero(answered.any(axis=0))
    packed = np.packbits(answered[:, items].T, axis=1)
    kinds, which = np.unique(packed, axis=0, return_inverse=True)
    which = which.reshape(-1)
    patterns = np.unpackbits(kinds, axis=1, count=len(answered)).astype(bool)
    counts = np.bincount(which, minlength=len(kinds))
    sizes = patterns.sum(axis=1)
    batches: list[list[int]] = []
    union, needed, held = np.zeros(len(answered), dtype=bool), 0, 0
    for kind in np.argsort(-sizes, kind="stable"):
        joined = union | patterns[kind]
        cells, work = int(joined.sum()) ** 2, int(sizes[kind]) ** 2 * int(counts[kind])
        count = held + int(counts[kind])
        if not batches or cells * count - needed - work > WASTED_CELLS:
            batches.append([])
            joined, needed, count = patterns[kind].copy(), 0, int(counts[kind])
        batches[-1].append(int(kind))
        union, needed, held = joined, needed + work, count
    place = np.argsort(which, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    found = []
    for batch in batches:
        mine = np.concatenate([place[starts[kind] : starts[kind + 1]] for kind in batch])
        models = np.flatnonzero(patterns[batch].any(axis=0))
        size = max(MOST_CELLS // max(len(models) * min(len(models), BLOCK), 1), LEAST_BATCH)
        mine = items[np.sort(mine)]
        found += [(models, mine[start : start + size]) for start in range(0, len(mine), size)]
    return found


@dataclass
class _Sums:
    """Precision that answers add to the prior's, and the gradient; filled by batches.

    Where two models may change places, ``common`` and ``square`` are filled below the diagonal
    alone, and perhaps above.

    Attributes:
        common: By pairs of loads that are the same for all models: (p (p + 1) / 2, m, m).
        steep: By the first model's slope and these loads, shape (p, m, m); empty where slopes are
            the same for all models.
        square: By both models' slopes, likewise: (m, m).
        gradient: Shape (m, q).
    """

    common: FloatArray
    steep: FloatArray
    square: FloatArray
    gradient: FloatArray

    @classmethod
    def empty(cls, models: int, latent: int, *, logistic: bool) -> _Sums:
        loads = latent - 1 if logistic else latent
        slopes = models if logistic else 0
        return cls(
            np.zeros((loads * (loads + 1) // 2, models, models)),
            np.zeros((loads, slopes, slopes)),
            np.zeros((slopes, slopes)),
            np.zeros((models, latent)),
        )

    def precision(self, view: View) -> FloatArray:
        """Precision with the prior's: (q m, q m), in the order of :class:`Latent`'s root.

        Its lower triangle is filled.
        """
        m, q = self.gradient.shape
        found = np.zeros((q, m, q, m))
        at = 1 if view.logistic else 0
        for start in range(0, m if m > BLOCK else 0, BLOCK):
            part = slice(start, min(start + BLOCK, m))
            self.common[:, :start, part] = self.common[:, part, :start].transpose(0, 2, 1)
            lower = np.tril(self.common[:, part, part])
            self.common[:, part, part] = lower + np.tril(lower, -1).transpose(0, 2, 1)
        first, second = np.triu_indices(q - at)
        found[second + at, :, first + at] = self.common
        if view.logistic:
            found[0, :, 0] = self.square
            found[1:, :, 0] = self.steep.transpose(0, 2, 1)
        view.add_prior_precision(found)
        return found.reshape(q * m, q * m)


@dataclass(frozen=True)
class _Batch:
    """Items that about the same models were asked.

    Attributes:
        models: Rows of these a models.
        view: Of these c items.
        scores: Shape (c, a), 0 where not asked.
        asked: Shape (c, a), 1 where asked, else 0.
        root: Of the covariance of the items' parameters, lower triangular: (3, c).
        uncertain: Variances of the factors' loadings, shape (k, c).
        loads: Those that are the same for all models: of theta where the curve is a line, of the
            factor scores, shape (p, c).
        pairs: Products of any two of them, shape (p (p + 1) / 2, c).
    """

    models: IntArray
    view: View
    scores: FloatArray
    asked: FloatArray
    root: FloatArray
    uncertain: FloatArray
    loads: FloatArray
    pairs: FloatArray

    @classmethod
    def of(cls, view: View, responses: FloatArray, models: IntArray, items: IntArray) -> _Batch:
        part = view.take(items)
        scores = responses[np.ix_(models, items)].T
        asked = np.isfinite(scores)
        var_first, cross, var_second = part.item_cov
        first = np.sqrt(var_first)
        mixed = np.where(first > 0.0, cross / np.where(first > 0.0, first, 1.0), 0.0)
        second = np.sqrt(np.maximum(var_second - mixed**2, 0.0))
        factors = len(part.loadings) - len(part.offset_own)
        loads = part.loadings
        if not part.logistic:
            loads = np.concatenate([part.first[None, :], loads])
        upper, lower = np.triu_indices(len(loads))
        return cls(
            models,
            part,
            np.where(asked, scores, 0.0),
            asked.astype(np.float64),
            np.stack([first, mixed, second]),
            part.noise * part.loading_var[:factors],
            loads,
            loads[upper] * loads[lower],
        )

    def add(self, sums: _Sums, mean: FloatArray, own: FloatArray, *, weigh: bool) -> None:
        """Add what the answers to these items say of the models' latent values.

        Args:
            sums: Where to.
            mean: Latent values from which the curves' slopes are taken, shape (m, q).
            own: Variances of the factor scores and offsets, shape (m, q - 1).
            weigh: Whether to give answers more noise the more they surprise.
        """
        view, factors = self.view, len(self.uncertain)
        theta, f = mean[self.models, 0], mean[self.models, 1:]
        curve = view.curve(theta)
        expected, slope = curve.mean.T, curve.slope.T
        first, mixed, second = self.root
        # What models have in common on an item, by its independent causes: (c, a, r).
        by_second = curve.by_second.T
        common = np.empty((*self.scores.shape, 2 + factors))
        common[:, :, 0] = curve.by_first.T * first[:, None] + by_second * mixed[:, None]
        common[:, :, 1] = by_second * second[:, None]
        common[:, :, 2:] = f[None, :, :factors] * np.sqrt(self.uncertain.T)[:, None, :]
        noise = view.noise[:, None] + self.uncertain.T @ own[self.models, :factors].T
        if weigh:
            residual = self.scores - expected - (f @ view.loadings).T
            spread = noise + (common**2).sum(axis=2)
            surprise = (STUDENT_DF + residual**2 / spread) / (STUDENT_DF + 1.0)
            noise = noise + view.noise[:, None] * (surprise - 1.0)
        weight = _Weight.of(common, noise, self.asked)
        told = weight.times(self.scores - expected + slope * theta)
        at = 1 if view.logistic else 0
        sums.gradient[self.models, at:] += told.T @ self.loads.T
        if view.logistic:
            sums.gradient[self.models, 0] += (slope * told).sum(axis=0)
        self._add_pairs(sums, weight, slope if view.logistic else None)

    def _add_pairs(self, sums: _Sums, weight: _Weight, slope: FloatArray | None) -> None:
        """Add the loads of every two models, weighted, to the precision."""
        count, a = self.scores.shape
        every = a == sums.common.shape[1]
        # Blocks of rows, and what stands left of and on the diagonal.
        for start in range(0, a, BLOCK):
            rows, left = slice(start, min(start + BLOCK, a)), slice(0, min(start + BLOCK, a))
            size = min(rows.stop, a) - start, left.stop
            between = weight.between(rows, left)
            at: tuple[Any, Any] = rows, left
            if not every:
                at = self.models[rows, None], self.models[None, left]
            found = self.pairs @ between.reshape(count, -1)
            sums.common[:, at[0], at[1]] += found.reshape(-1, *size)
            if slope is None:
                continue
            steep = between * slope[:, rows, None]
            found = self.loads @ steep.reshape(count, -1)
            sums.steep[:, at[0], at[1]] += found.reshape(-1, *size)
            sums.square[at] += np.einsum("cab,cb->ab", steep, slope[:, left])
            if start:
                other = between[:, :, :start] * slope[:, None, :start]
                found = (self.loads @ other.reshape(count, -1)).reshape(-1, size[0], start)
                above: tuple[Any, Any] = slice(0, start), rows
                if not every:
                    above = self.models[:start, None], self.models[None, rows]
                sums.steep[:, above[0], above[1]] += found.transpose(0, 2, 1)


@dataclass(frozen=True)
class _Weight:
    """Inverse covariances of a models' scores on each of c items: diag(own) - first second'.

    Attributes:
        own: Shape (c, a).
        first: Shape (c, a, r).
        second: Shape (c, r, a).
        whole: The inverses themselves where the models are few, shape (c, a, a); else None.
    """

    own: FloatArray
    first: FloatArray
    second: FloatArray
    whole: FloatArray | None

    @classmethod
    def of(cls, common: FloatArray, noise: FloatArray, asked: FloatArray) -> _Weight:
        """That of the covariance diag(noise) + U U'; zero for models that were not asked.

        By Woodbury's identity it is diag(w) - w U (I + U' diag(w) U)^-1 U' w with w = 1 / noise.

        Args:
            common: U, shape (c, a, r).
            noise: Shape (c, a).
            asked: 1 where a model was asked, else 0, shape (c, a).
        """
        own = asked / noise
        half = np.sqrt(own)[:, :, None]
        scaled = common * half
        turned = scaled.transpose(0, 2, 1)
        few = common.shape[1] <= common.shape[2]
        inner = np.matmul(scaled, turned) if few else np.matmul(turned, scaled)
        each = np.arange(inner.shape[1])
        inner[:, each, each] += 1.0
        inverse = np.linalg.inv(inner)
        if few:
            return cls(own, scaled, turned, half * inverse * half.transpose(0, 2, 1))
        loaded = half * scaled
        return cls(own, np.matmul(loaded, inverse), loaded.transpose(0, 2, 1), None)

    def times(self, values: FloatArray) -> FloatArray:
        """The inverses times values, shape (c, a)."""
        if self.whole is not None:
            return np.asarray(np.matmul(self.whole, values[:, :, None])[:, :, 0])
        inner = np.matmul(self.second, values[:, :, None])
        return np.asarray(self.own * values - np.matmul(self.first, inner)[:, :, 0])

    def between(self, rows: slice, columns: slice) -> FloatArray:
        """A part of the inverses; the columns begin with the first and hold the rows."""
        if self.whole is not None:
            return self.whole[:, rows, columns]
        part = self.first[:, rows]
        found = np.matmul(-part, self.second[:, :, columns])
        each = np.arange(part.shape[1])
        found[:, each, rows.start + each] += self.own[:, rows]
        return np.asarray(found)


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


@dataclass
class _Prospect:
    """What asking each item would do, under one view; updated as items are chosen."""

    cov: FloatArray  # latent covariances, (m, q, q)
    slope: FloatArray  # derivative of each item's score by theta, (m, n)
    loadings: FloatArray  # by the factor scores, (q - 1, n); the view's own
    var: FloatArray  # variance of each item's expected score, (m, n)
    with_score: FloatArray  # its covariance with the full score, (m, n)
    noise: FloatArray  # variance of an answer about it, (m, n)

    @classmethod
    def of(cls, latent: Latent) -> _Prospect:
        view, cov = latent.view, latent.own_covs.copy()
        curve = view.curve(latent.mean[:, 0])
        factors = view.loadings.mean(axis=1)
        var, with_score = np.empty_like(curve.slope), np.empty_like(curve.slope)
        for a, own in enumerate(cov):  # the products of all models at once would not fit a cache
            slope = curve.slope[a]
            # cov times the item's derivatives, theta's row first; a long bank makes it large.
            by_theta = own[0, 0] * slope + own[0, 1:] @ view.loadings
            by_factor = own[1:, 1:] @ view.loadings
            by_factor += own[1:, :1] * slope
            var[a] = slope * by_theta + np.einsum("kn,kn->n", view.loadings, by_factor)
            with_score[a] = slope.mean() * by_theta + factors @ by_factor
        own_var = np.diagonal(cov, axis1=1, axis2=2)[:, 1:]
        uncertain = 1.0 + (latent.mean[:, 1:] ** 2 + own_var) @ view.loading_var
        noise = curve.by_first**2 * view.item_cov[0] + view.noise * uncertain
        return cls(cov, curve.slope, view.loadings, var, with_score, noise)

    def gain(self, models: IntArray | slice) -> FloatArray:
        """Fall of the full score's variance if an item were asked, a row per model."""
        return np.asarray(self.with_score[models] ** 2 / (self.var[models] + self.noise[models]))

    def ask(self, item: int, models: IntArray | slice) -> None:
        """Count an item as asked: its answer is unknown, but not how much it will tell."""
        slope = self.slope[models]
        load = np.empty((len(slope), len(self.loadings) + 1))
        load[:, 0] = slope[:, item]
        load[:, 1:] = self.loadings[:, item]
        moved = np.matmul(self.cov[models], load[:, :, None])[:, :, 0]
        total = ((load * moved).sum(axis=1) + self.noise[models, item])[:, None]
        shared = moved[:, :1] * slope + moved[:, 1:] @ self.loadings
        part = shared / total
        self.with_score[models] -= self.with_score[models, item][:, None] * part
        part *= shared
        self.var[models] -= part
        self.cov[models] -= moved[:, :, None] * (moved / total)[:, None, :]


class Prospects:
    """Worth of every item for every model, with items already chosen taken into account.

    The worth of an item for a model is the fall of the variance of its full score, relative to the
    best item's, averaged over the views. The error that an item's height has in common for all
    models is left out: it drops out of differences between models that are asked the same items.

    Args:
        latents: Posteriors under each view.
    """

    def __init__(self, latents: Sequence[Latent]) -> None:
        self._views = [_Prospect.of(latent.without_offsets()) for latent in latents]
        gains = [view.gain(slice(None)) for view in self._views]
        self._scale = [float(gain.max()) or 1e-300 for gain in gains]
        self._worth: FloatArray = np.mean(
            [gain / top for gain, top in zip(gains, self._scale, strict=True)], axis=0
        )
        self._asked: list[tuple[int, IntArray | slice]] = []

    def worth(self, model: int) -> FloatArray:
        """Worth of each item for a model, shape (n,)."""
        # What is asked last in a round changes nothing any more, so it is not worked out at once.
        while self._asked:
            item, models = self._asked.pop(0)
            gains = []
            for view, top in zip(self._views, self._scale, strict=True):
                view.ask(item, models)
                gains.append(view.gain(models) / top)
            self._worth[models] = np.mean(gains, axis=0)
        return np.asarray(self._worth[model].copy())

    def ask(self, item: int, models: Sequence[int]) -> None:
        """Count an item as asked of some models."""
        every = len(models) == len(self._worth)
        self._asked.append((item, slice(None) if every else np.asarray(models, dtype=np.intp)))
