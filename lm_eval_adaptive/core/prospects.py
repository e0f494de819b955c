"""The worth of the next item under ``robust-2pl``: how much surer of full scores it would make.

This module owns what asking an item would do, before it is asked; it imports numpy and what a
posterior is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.joint import Latent

    FloatArray = NDArray[np.float64]
    IntArray = NDArray[np.intp]


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
