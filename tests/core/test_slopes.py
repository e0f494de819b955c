"""How much items usually separate models: known answers, and the mistake that halving avoids."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_adaptive.core.slopes import fit_lines, usual_slopes

MODELS, ITEMS = 16, 600
THETA = np.linspace(-1.6, 1.6, MODELS) / 0.98


def drawn(slope, seed=0, height=None, noise=0.15):
    """Scores along lines of some slopes; weaker models' errors are larger and fall downwards."""
    rng = np.random.default_rng(seed)
    height = rng.uniform(0.4, 0.9, ITEMS) if height is None else height
    error = noise * rng.normal(size=(MODELS, ITEMS))
    weak = np.exp(-0.4 * THETA)[:, None]
    fails = -weak * rng.exponential(noise, (MODELS, ITEMS)) + weak * noise
    return height + THETA[:, None] * slope + error + fails


def usual(scores, theta=THETA):
    lines = fit_lines(scores, theta)
    return lines, *usual_slopes(scores, theta, lines.height, lines.noise)


def test_lines_are_least_squares_per_item_of_what_was_asked():
    rng = np.random.default_rng(1)
    scores = rng.uniform(size=(9, 5))
    scores[rng.uniform(size=scores.shape) < 0.3] = np.nan
    theta = rng.normal(size=9)
    lines = fit_lines(scores, theta)
    for item in range(5):
        seen = np.isfinite(scores[:, item])
        slope, height = np.polyfit(theta[seen], scores[seen, item], 1)
        assert lines.slope[item] == pytest.approx(slope)
        assert lines.height[item] == pytest.approx(height)
        assert lines.weight[item] == pytest.approx(((theta[seen] - theta[seen].mean()) ** 2).sum())


def test_slopes_that_are_all_alike_are_found_so_though_low_items_seem_steeper():
    """Weak models fail now and then: where one did, an item looks low and steep at once."""
    lines, expected, variance = usual(drawn(0.05, height=np.full(ITEMS, 0.7)))
    # The mistake: within the same scores, height and slope go together.
    assert np.corrcoef(lines.height, lines.slope)[0, 1] < -0.25
    assert np.std(expected) < 0.2 * np.std(lines.slope)
    assert expected.mean() == pytest.approx(0.05, abs=0.01)
    # Nearly all that slopes differ by is noise.
    assert variance < 0.1 * np.var(lines.slope)


def test_slopes_that_follow_height_are_foreseen():
    rng = np.random.default_rng(2)
    height = rng.uniform(0.3, 0.9, ITEMS)
    truth = 0.25 * (0.95 - height)
    _, expected, variance = usual(drawn(truth, 3, height, noise=0.05))
    assert np.corrcoef(expected, truth)[0, 1] > 0.95
    assert np.polyfit(expected, truth, 1)[0] == pytest.approx(1.0, abs=0.1)
    assert variance < 0.2 * np.var(truth)


def test_what_slopes_truly_differ_by_is_recovered():
    rng = np.random.default_rng(4)
    truth = rng.normal(0.1, 0.04, ITEMS)
    _, _, variance = usual(drawn(truth, 5, noise=0.1))
    assert variance == pytest.approx(0.04**2, rel=0.25)


def test_models_may_come_in_any_order_and_cells_be_missing():
    scores = drawn(0.1, 6)
    scores[np.random.default_rng(7).uniform(size=scores.shape) < 0.1] = np.nan
    rows = np.random.default_rng(8).permutation(MODELS)
    _, expected, variance = usual(scores)
    _, moved, moved_variance = usual(scores[rows], THETA[rows])
    np.testing.assert_allclose(moved, expected, rtol=1e-9)
    assert moved_variance == pytest.approx(variance)


@pytest.mark.parametrize("models", [3, 4, 5, 7])
def test_few_models_give_finite_slopes_near_the_mean(models):
    rng = np.random.default_rng(9)
    theta = np.linspace(-1.2, 1.2, models)
    scores = 0.6 + 0.1 * theta[:, None] + 0.05 * rng.normal(size=(models, 200))
    _, expected, variance = usual(scores, theta)
    assert np.abs(expected - 0.1).max() < 0.1
    assert 0.0 < variance < 0.01


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_models_that_do_not_differ_or_items_without_noise_give_finite_slopes(noise):
    rng = np.random.default_rng(10)
    same = 0.5 + noise * rng.normal(size=(6, 40))
    _, expected, variance = usual(same, np.zeros(6))
    np.testing.assert_array_equal(expected, 0.0)
    assert variance > 0.0
    theta = np.linspace(-1.0, 1.0, 6)
    _, expected, variance = usual(np.repeat(0.5 + 0.1 * theta[:, None], 40, axis=1), theta)
    np.testing.assert_allclose(expected, 0.1, atol=1e-6)
    assert variance > 0.0
