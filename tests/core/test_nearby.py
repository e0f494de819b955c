"""Curves from the calibration models near the ranked ones, in banks of many models."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.inference import AT_ONCE
from lm_eval_adaptive.core.nearby import ENOUGH, LEAST_ANSWERS, NEAR, Nearby
from lm_eval_adaptive.core.robust import RobustPosterior
from tests.core.helpers import matrix_of

N, MODELS = 120, 200


class TwoRegions:
    """Items that tell weak models apart and others that tell strong ones apart.

    A score rises with ability below 0 on the items of the one half and above 0 on those of the
    other: no curve of one slope fits both regions.
    """

    def __init__(self, rng):
        self.low = rng.permutation(np.repeat([True, False], N // 2))
        self.slope = rng.gamma(4.0, 0.04, N)
        self.height = rng.uniform(0.3, 0.7, N)

    def draw(self, theta, rng):
        theta = np.asarray(theta)[:, None]
        part = np.where(self.low, np.minimum(theta, 0.0), np.maximum(theta, 0.0))
        scores = self.height + self.slope * part + 0.1 * rng.standard_normal((len(theta), N))
        return np.clip(scores, 0.0, 1.0)

    def bank(self, rng, models=MODELS):
        # Most calibration models are weak, as in banks of public leaderboards.
        theta = np.concatenate(
            [rng.normal(-1.2, 0.5, models * 3 // 4), rng.normal(1.0, 0.5, models // 4)]
        )
        return calibrate(
            matrix_of(self.draw(theta, rng)),
            task="t", metric="m", score_range=(0.0, 1.0), response_model="robust-2pl",
        )  # fmt: skip


@pytest.fixture(scope="module")
def worlds():
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        world = TwoRegions(rng)
        found.append((world, world.bank(rng), rng))
    return found


def slopes_of_strong(world):
    return np.where(world.low, 0.0, world.slope)


def test_near_models_know_which_items_tell_the_ranked_ones_apart(worlds):
    """And models from anywhere do not: the control takes as many at random."""
    near, everywhere, control = [], [], []
    for world, bank, rng in worlds:
        truth = slopes_of_strong(world)
        nearby = Nearby(bank)
        assert nearby.many
        level = world.draw([0.8, 1.2], rng).mean(axis=1)
        views = nearby.views(level, np.array([20, 20]))
        assert views is not None
        near.append(np.corrcoef(views[1].slope, truth)[0, 1])
        everywhere.append(np.corrcoef(RobustPosterior(bank).views[1].slope, truth)[0, 1])
        nearby._order = rng.permutation(nearby._order)
        nearby._fitted.clear()
        mixed = nearby.views(level, np.array([20, 20]))
        assert mixed is not None
        control.append(np.corrcoef(mixed[1].slope, truth)[0, 1])
    assert min(near) > 0.85
    assert max(everywhere) < 0.6
    assert max(control) < 0.6


def test_scores_of_strong_models_err_less(worlds):
    with_near, without = [], []
    for world, bank, rng in worlds:
        posterior = RobustPosterior(bank)
        for _ in range(8):
            scores = world.draw(rng.normal(1.0, 0.5, 4), rng)
            answers = np.full_like(scores, np.nan)
            asked = rng.permutation(N)[:20]
            answers[:, asked] = scores[:, asked]
            gaps = scores.mean(axis=1) - scores.mean()
            for found, many in ((with_near, True), (without, False)):
                posterior.nearby.many = many
                estimate = posterior.estimate(answers).score
                found.append(float(((estimate - estimate.mean() - gaps) ** 2).mean()))
    assert np.mean(with_near) < 0.85 * np.mean(without), (np.mean(with_near), np.mean(without))


def test_few_models_and_few_answers_take_all(worlds):
    world, bank, rng = worlds[0]
    nearby = Nearby(bank)
    level = np.array([0.5, 0.6])
    assert nearby.views(level, np.array([LEAST_ANSWERS - 1, 20])) is None
    assert nearby.views(level, np.array([0, 0])) is None
    small = world.bank(rng, models=40)
    assert not Nearby(small).many
    assert RobustPosterior(small).warm_up == AT_ONCE
    assert RobustPosterior(bank).warm_up == LEAST_ANSWERS


def test_the_same_levels_give_the_same_models_and_a_run_fits_few_sets(worlds):
    _, bank, _ = worlds[0]
    nearby = Nearby(bank)
    windows = {nearby._window(np.array([level, level + 0.01])) for level in np.linspace(0, 1, 200)}
    assert len(windows) <= MODELS / 10
    for first, last in windows:
        assert last - first >= NEAR
        assert 0 <= first < last <= MODELS
    # All between the ranked ones count, however far these lie apart.
    means = sorted(model.mean_score for model in bank.info.models)
    first, last = nearby._window(np.array([means[10], means[-10]]))
    assert first <= 10
    assert last >= MODELS - 10


def test_near_copies_are_not_many():
    rng = np.random.default_rng(3)
    world = TwoRegions(rng)
    kinds = world.draw(rng.normal(size=12), rng)
    copies = np.clip(np.repeat(kinds, 12, axis=0) + 0.005 * rng.standard_normal((144, N)), 0, 1)
    bank = calibrate(
        matrix_of(copies), task="t", metric="m", score_range=(0.0, 1.0),
        response_model="robust-2pl",
    )  # fmt: skip
    assert len(bank.scores) >= ENOUGH
    assert not Nearby(bank).many
