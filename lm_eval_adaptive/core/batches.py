"""What answers say of several models' latent values, summed over items asked of the same models.

This module owns these sums, the precision and the gradient of a joint posterior; it imports numpy
and the views. What models have in common on an item has few dimensions, so an item's covariance is
inverted by Woodbury's identity, for many items at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]
    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.intp]

# Degrees of freedom of an answer's error: one that surprises pulls less than its distance.
STUDENT_DF = 8.0
# Pairs of models that items which are summed together may hold for nothing, and of items and pairs
# of models held at once: what fits into a core's cache. Models are taken in blocks.
WASTED_CELLS, MOST_CELLS, BLOCK = 80_000, 50_000, 32
# Fewer items than this are not worth a batch of their own, however many the models.
LEAST_BATCH = 100


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
class Sums:
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
    def empty(cls, models: int, latent: int, *, logistic: bool) -> Sums:
        """Nothing added yet."""
        loads = latent - 1 if logistic else latent
        slopes = models if logistic else 0
        return cls(
            np.zeros((loads * (loads + 1) // 2, models, models)),
            np.zeros((loads, slopes, slopes)),
            np.zeros((slopes, slopes)),
            np.zeros((models, latent)),
        )

    def precision(self, view: View) -> FloatArray:
        """Precision with the prior's: (q m, q m), in the order of a posterior's root.

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
class Batch:
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
    def of(cls, view: View, responses: FloatArray, models: IntArray, items: IntArray) -> Batch:
        """The answers that some models gave to some items."""
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

    def add(self, sums: Sums, mean: FloatArray, own: FloatArray, *, weigh: bool) -> None:
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

    def _add_pairs(self, sums: Sums, weight: _Weight, slope: FloatArray | None) -> None:
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
