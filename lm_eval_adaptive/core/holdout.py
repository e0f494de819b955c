"""Tests of a bank's own calibration models as if they were new.

This module owns what can be learned of a bank by leaving some of its models out: how far estimates
are off, whether informative items order models better than random ones, and whether slopes are
found again. It imports numpy, the fits, the views, the pooled estimate and the choice of
items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.calibration import calibrate_items
from lm_eval_adaptive.core.joint import Prospects
from lm_eval_adaptive.core.pooled import pool
from lm_eval_adaptive.core.sampler import choose_shared
from lm_eval_adaptive.core.views import drawn, fit_views
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

LENGTHS = (10, 20, 40, 80)
REPEATS = 2
GROUP = 4
# With very many calibration models, folds and groups are bounded: the rest adds nothing.
MAX_FOLDS = 6
MAX_GROUP = 8
# Orders are compared over tests of at most so many items, with so many draws of random ones.
GAIN_LENGTHS, GAIN_DRAWS = 40, 20
# A group of held-out models that lie further apart, sum of squares of theta, counts no more.
MOST_APART = 8.0


@dataclass(frozen=True)
class HeldOut:
    """Simulated tests of held-out calibration models; arrays have one entry per test.

    Attributes:
        length: Items asked.
        items: Items there were.
        estimate: Estimated full score.
        truth: Full score.
        variance: Posterior variance of the estimate, not widened.
        views_apart: Difference of the two views.
        plain_apart: Difference of their mean and the estimate from plain means.
        mean: Mean full score of the models that calibrated.
        models: How many calibrated.
        misfit: Mean squared standardised residual of the answers.
        order_gain: How much better tests order held-out models than as many random shared items
            do, a difference of rank correlations (Kendall); 0 where no two were tested together.
        slopes_again: What share of the slopes' differences between items the held-out models show
            again, under each view; 1 where it is not known.
    """

    length: FloatArray
    items: FloatArray
    estimate: FloatArray
    truth: FloatArray
    variance: FloatArray
    views_apart: FloatArray
    plain_apart: FloatArray
    mean: FloatArray
    models: FloatArray
    misfit: FloatArray
    order_gain: float
    slopes_again: tuple[float, float]


def hold_out(
    scores: FloatArray,
    seed: int = 0,
    levels: FloatArray | None = None,
    shares: Sequence[float] | None = None,
) -> HeldOut:
    """Calibrate without a few models, test these as if they were new, and do so with all.

    A model that misses cells is tested on the items it has a score of.

    Args:
        scores: Calibration scores, shape (C, n), in [0, 1], NaN where not asked.
        seed: Seed of the groups.
        levels: Mean scores of models whose items were chosen for them, shape (C,), NaN for others.
            Such models calibrate and are not tested.
        shares: With them, models are asked random shared items, and slopes are drawn to their mean;
            see :func:`~lm_eval_adaptive.core.views.drawn`.

    Returns:
        A record per held-out model and test length.
    """
    rng, draws = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    models = len(scores)
    rows: list[tuple[float, ...]] = []
    gains: list[float] = []
    again = np.zeros((2, 2))
    for _ in range(REPEATS):
        folds = int(np.clip(round(models / GROUP), 2, MAX_FOLDS))
        for group in np.array_split(rng.permutation(models), folds):
            kept = np.setdiff1d(np.arange(models), group)
            seen = np.isfinite(scores[kept]).any(axis=0)
            calibration = scores[kept][:, seen]
            known = None if levels is None else levels[kept]
            try:
                fit = calibrate_items(calibration, "robust-2pl", known)
            except DataError:  # those kept do not differ; the held-out ones did
                continue
            views = fit_views(calibration, fit.theta, fit.items, known)
            whole = group if levels is None else group[np.isnan(levels[group])]
            for tested in tested_together(scores[:, seen], whole[:MAX_GROUP]):
                has = np.flatnonzero(np.isfinite(scores[tested][:, seen]).all(axis=0))
                part = drawn((views[0].take(has), views[1].take(has)), shares)
                truth = scores[tested][:, seen][:, has]
                order = draws.permutation(len(has)) if shares is not None else None
                found = _one_group(part, fit.mean_score, truth, order)
                rows += found
                if len(tested) > 1 and shares is None:
                    gains.append(_order_gain(found, truth, draws))
                    again += _slopes_again(part, fit.mean_score, truth)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 10).T
    ratio = [float(part / whole) if whole > 0.0 else 1.0 for part, whole in again]
    (
        length,
        items,
        estimate,
        known_score,
        variance,
        views_apart,
        plain_apart,
        means,
        kept_models,
        fits,
    ) = columns
    return HeldOut(
        length=length,
        items=items,
        estimate=estimate,
        truth=known_score,
        variance=variance,
        views_apart=views_apart,
        plain_apart=plain_apart,
        mean=means,
        models=kept_models,
        misfit=fits,
        order_gain=float(np.mean(gains)) if gains else 0.0,
        slopes_again=(ratio[0], ratio[1]),
    )


def _order_gain(
    rows: list[tuple[float, ...]], truth: FloatArray, rng: np.random.Generator
) -> float:
    """How much better a group's tests order it than random shared items, over test lengths."""
    full = truth.mean(axis=1)
    found = []
    for length in sorted({int(row[0]) for row in rows if row[0] <= GAIN_LENGTHS}):
        estimate = np.array([row[2] for row in rows if int(row[0]) == length])
        draws = [
            _concordance(truth[:, rng.permutation(truth.shape[1])[:length]].mean(axis=1), full)
            for _ in range(GAIN_DRAWS)
        ]
        found.append(_concordance(estimate, full) - float(np.mean(draws)))
    return float(np.mean(found)) if found else 0.0


def _concordance(estimate: FloatArray, truth: FloatArray) -> float:
    a, b = np.triu_indices(len(truth), 1)
    return float(np.mean(np.sign(estimate[a] - estimate[b]) * np.sign(truth[a] - truth[b])))


def _slopes_again(
    views: tuple[View, View], calibrated: FloatArray, truth: FloatArray
) -> FloatArray:
    """Regression of held-out models' own slopes on the views', in units of their mean.

    Weighted over items by 1 / (noise + mean noise), over groups by how far their models lie apart.

    Returns:
        Sum of products and of squares under each view, shape (2, 2).
    """
    theta = truth.mean(axis=1) / max(float(calibrated.std()), 1e-9)
    theta = theta - theta.mean()
    apart = float(theta @ theta)
    own = theta @ (truth - truth.mean(axis=0)) / max(float(calibrated.std()), 1e-9)
    found = np.zeros((2, 2))
    for row, view in enumerate(views):
        weight = 1.0 / (view.noise + view.noise.mean())
        weight = weight / weight.sum()
        slope = view.slope / view.slope.mean()
        slope = slope - weight @ slope
        found[row] = weight @ (slope * own), apart * (weight @ slope**2)
    return found * min(1.0, MOST_APART / max(apart, 1e-9))


def tested_together(scores: FloatArray, group: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Held-out models as they can be tested: all at once, or by themselves if cells are missing."""
    if len(group) and np.isfinite(scores[group]).all():
        return [group]
    return [group[[place]] for place in range(len(group))]


def _one_group(
    views: tuple[View, View],
    calibrated: FloatArray,
    truth: FloatArray,
    order: NDArray[np.intp] | None,
) -> list[tuple[float, ...]]:
    """Records of one group's test, by informative items or in a given order of all items."""
    m, n = truth.shape
    responses = np.full((m, n), np.nan)
    found = pool(views, responses)
    asked = 0
    rows: list[tuple[float, ...]] = []
    for length in (length for length in LENGTHS if length < n):
        if order is None:
            # Chosen in blocks: the worth of items hardly depends on the answers.
            wanted = dict.fromkeys(range(m), length - asked)
            chosen = choose_shared(wanted, Prospects(found.latents), np.isnan(responses), None)[0]
        else:
            chosen = [int(item) for item in order[asked:length]]
        responses[:, chosen] = truth[:, chosen]
        asked = length
        found = pool(views, responses)
        columns = (
            found.score,
            truth.mean(axis=1),
            np.diag(found.cov),
            found.views_apart,
            found.plain_apart,
            np.full(m, calibrated.mean()),
            np.full(m, len(calibrated)),
            found.misfit,
        )
        rows += [(length, n, *each) for each in zip(*columns, strict=True)]
    return rows
