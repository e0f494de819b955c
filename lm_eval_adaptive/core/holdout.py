"""Tests of a bank's own calibration models as if they were new.

This module owns what can be learned of a bank by leaving some of its models out: how far estimates
are off, whether informative items order models better than random ones, and whether slopes are
found again. It imports numpy, the fits, the views, the pooled estimate, the choice of items and
the models' kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.core.calibration import MIN_MODELS, calibrate_items, completed_means
from lm_eval_adaptive.core.pooled import pool
from lm_eval_adaptive.core.prospects import Prospects
from lm_eval_adaptive.core.sampler import WeightedDraw, choose_shared
from lm_eval_adaptive.core.siblings import effective_number, families
from lm_eval_adaptive.core.views import drawn, fit_views
from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.views import View

    FloatArray = NDArray[np.float64]

LENGTHS = (10, 20, 40, 80)
GROUP = 4
# With very many calibration models, folds and groups are bounded: the rest adds nothing.
MAX_FOLDS = 6
MAX_GROUP = 8
# Of very many models and items so many are looked at.
MOST_MODELS, MOST_ITEMS = 500, 10_000
# Fewer than this leave no third to extrapolate from.
LEAST_FOR_THIRDS = 9
# Orders are compared over tests of at most so many items, with so many draws of random ones.
GAIN_LENGTHS, GAIN_DRAWS = 40, 20
# A group of held-out models that lie further apart, sum of squares of theta, counts no more.
MOST_APART = 8.0


@dataclass(frozen=True)
class Group:
    """Calibration models that are held out together.

    Attributes:
        rows: Their rows in the bank's scores.
        far: Whether they are unlike those that are kept: the best or the worst third.
    """

    rows: NDArray[np.intp]
    far: bool


def looked_at(
    scores: FloatArray, levels: FloatArray | None = None
) -> tuple[FloatArray, FloatArray | None]:
    """The part of a large score matrix that tests are made on; a small one is left as it is.

    Models are taken evenly from their order, items at random.

    Args:
        scores: Calibration scores, shape (C, n), NaN where not asked.
        levels: See :func:`hold_out`.
    """
    models, n = scores.shape
    if models <= MOST_MODELS and n <= MOST_ITEMS:
        return scores, levels
    rows = np.arange(models)
    if models > MOST_MODELS:
        rows = np.linspace(0, models - 1, MOST_MODELS).astype(np.intp)
    columns = np.arange(n)
    if n > MOST_ITEMS:
        rng = np.random.default_rng(0)
        columns = np.sort(rng.choice(n, MOST_ITEMS, replace=False))
    part = scores[np.ix_(rows, columns)]
    # A model that was asked few items may have none among these, and an item no model.
    told: NDArray[np.bool_] = np.asarray(np.isfinite(part).any(axis=1))
    part = part[told]
    part = part[:, np.isfinite(part).any(axis=0)]
    return part, None if levels is None else levels[rows[told]]


def groups(
    scores: FloatArray, rng: np.random.Generator, levels: FloatArray | None = None
) -> list[Group]:
    """Who is held out: random groups, siblings together, and the best and the worst third.

    Random groups show how a bank does for models of its own kind, thirds how it does beyond their
    range.

    Args:
        scores: Calibration scores, shape (C, n), NaN where not asked.
        rng: Shuffles the models.
        levels: Mean scores of models whose items were chosen for them, shape (C,), NaN for others.
    """
    models = len(scores)
    folds = int(np.clip(round(models / GROUP), 2, MAX_FOLDS))
    kinds = families(scores)
    found = [
        Group(np.concatenate([kinds[kind] for kind in part]), far=False)
        for part in np.array_split(rng.permutation(len(kinds)), min(folds, len(kinds)))
    ]
    if models >= LEAST_FOR_THIRDS:
        means, _ = completed_means(scores, levels)
        order = np.argsort(means, kind="stable")
        third = models // 3
        found += [Group(np.asarray(rows), far=True) for rows in (order[:third], order[-third:])]
    return [group for group in found if models - len(group.rows) >= MIN_MODELS]


@dataclass(frozen=True)
class HeldOut:
    """Simulated tests of held-out calibration models; arrays have one entry per test.

    Attributes:
        length: Items asked.
        items: Items there were.
        estimate: Estimated full score.
        truth: Full score.
        variance: Posterior variance of the estimate, not widened.
        plain_apart: Difference of the views' mean and the estimate from plain means.
        own_apart: Difference of the estimate and that by regression of the model's own answers.
        level_var: Variance of the group's mean score by regression.
        mean: Mean full score of the models that calibrated.
        kinds: How many models of different kinds calibrated.
        misfit: Mean squared standardised residual of the answers.
        far: 1 where the model belonged to a group unlike those that calibrated, else 0.
        order_gain: How much better tests order models of random groups than as many random shared
            items do, a difference of rank correlations (Kendall); 0 where no two were tested
            together.
        slopes_again: What share of the slopes' differences between items the models of random
            groups show again, under each view; 1 where it is not known.
        far_again: The same of the best and the worst third.
        overdispersion: Mean F statistic of the test of agreement in random groups, over what is
            usual.
    """

    length: FloatArray
    items: FloatArray
    estimate: FloatArray
    truth: FloatArray
    variance: FloatArray
    plain_apart: FloatArray
    own_apart: FloatArray
    level_var: FloatArray
    mean: FloatArray
    kinds: FloatArray
    misfit: FloatArray
    far: FloatArray
    order_gain: float
    slopes_again: tuple[float, float]
    far_again: tuple[float, float]
    overdispersion: float


# Groups' F statistics of which one counts as much as the usual value of all banks.
USUAL_GROUPS = 4.0
LEAST_OVERDISPERSION, MOST_OVERDISPERSION = 0.4, 4.0


def hold_out(
    scores: FloatArray,
    seed: int = 0,
    levels: FloatArray | None = None,
    shares: Sequence[float] | None = None,
) -> HeldOut:
    """Calibrate without a few models, test these as if they were new, and do so with all.

    A model that misses cells is tested on the items it has a score of. Of very many models and
    items a part is looked at; see :func:`looked_at`.

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
    scores, levels = looked_at(scores, levels)
    rng, draws = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    rows: list[tuple[float, ...]] = []
    gains: list[float] = []
    ratios: list[float] = []
    again = np.zeros((2, 2, 2))  # by kind of group, view, and part of the ratio
    for place, group in enumerate(groups(scores, rng, levels)):
        kept = np.setdiff1d(np.arange(len(scores)), group.rows)
        seen = np.isfinite(scores[kept]).any(axis=0)
        calibration = scores[kept][:, seen]
        known = None if levels is None else levels[kept]
        try:
            fit = calibrate_items(calibration, "robust-2pl", known)
        except DataError:  # those kept do not differ; the held-out ones did
            continue
        views = fit_views(calibration, fit.theta, fit.items, known)
        kinds = effective_number(calibration)
        whole = group.rows if levels is None else group.rows[np.isnan(levels[group.rows])]
        for tested in tested_together(scores[:, seen], rng.permutation(whole)[:MAX_GROUP]):
            has = np.flatnonzero(np.isfinite(scores[tested][:, seen]).all(axis=0))
            part = drawn((views[0].take(has), views[1].take(has)), shares)
            truth = scores[tested][:, seen][:, has]
            order = draws.permutation(len(has)) if shares is not None else None
            found, told = _one_group(part, fit.mean_score, truth, order, seed + place)
            rows += [(*each, kinds, float(group.far)) for each in found]
            if len(tested) > 1 and shares is None:
                again[int(group.far)] += _slopes_again(part, fit.mean_score, truth)
                if not group.far:
                    gains.append(_order_gain(found, truth, draws))
                    ratios += told
    columns = np.array(rows, dtype=np.float64).reshape(-1, 12).T
    share = [
        [float(part / whole) if whole > 0.0 else 1.0 for part, whole in by_view]
        for by_view in again
    ]
    usual = (sum(ratios) + USUAL_GROUPS) / (len(ratios) + USUAL_GROUPS)
    names = (
        "length",
        "items",
        "estimate",
        "truth",
        "variance",
        "plain_apart",
        "own_apart",
        "level_var",
        "mean",
        "misfit",
        "kinds",
        "far",
    )
    return HeldOut(
        **dict(zip(names, columns, strict=True)),
        order_gain=float(np.mean(gains)) if gains else 0.0,
        slopes_again=(share[0][0], share[0][1]),
        far_again=(share[1][0], share[1][1]),
        overdispersion=float(np.clip(usual, LEAST_OVERDISPERSION, MOST_OVERDISPERSION)),
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
    seed: int,
) -> tuple[list[tuple[float, ...]], list[float]]:
    """Records of one group's test, by drawn items or in a given order of all items.

    Returns:
        A record per model and length, and the ratios of the test of agreement.
    """
    m, n = truth.shape
    responses = np.full((m, n), np.nan)
    found = pool(views, responses)
    asked = 0
    rows: list[tuple[float, ...]] = []
    ratios: list[float] = []
    for length in (length for length in LENGTHS if length < n):
        if order is None:
            # Chosen in blocks: the worth of items hardly depends on the answers.
            wanted = dict.fromkeys(range(m), length - asked)
            worth, free = Prospects(found.latents), np.isnan(responses)
            taken = choose_shared(wanted, worth, free, None, WeightedDraw(seed))[0]
            chosen = [each.item for each in taken]
        else:
            chosen = [int(item) for item in order[asked:length]]
        responses[:, chosen] = truth[:, chosen]
        asked = length
        found = pool(views, responses)
        if found.agreement is not None and length > LENGTHS[0]:
            ratios.append(found.agreement.ratio)
        columns = (
            found.score,
            truth.mean(axis=1),
            np.diag(found.cov),
            found.plain_apart,
            found.own_apart,
            np.full(m, found.level_var),
            np.full(m, calibrated.mean()),
            found.misfit,
        )
        rows += [(length, n, *each) for each in zip(*columns, strict=True)]
    return rows, ratios
