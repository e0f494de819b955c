"""Curves and factors from calibration scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from lm_eval_adaptive.core.calibration import calibrate_items
from lm_eval_adaptive.core.response import ItemParameters
from lm_eval_adaptive.core.views import MAX_FACTORS, View, fill_missing, fit_views
from tests.core.helpers import FactorBenchmark, quick, standard_abilities


def views_of(scores):
    fit = calibrate_items(scores, "robust-2pl")
    return fit_views(scores, fit.theta, fit.items)


def benchmark(seed=1, models=40, n=150, **settings):
    rng = np.random.default_rng(seed)
    made = FactorBenchmark(rng, n, **settings)
    return made, made.draw(standard_abilities(models), rng)


def smooth(rng, models, n, rank=1):
    """Scores without noise, a straight line in ability plus more straight directions."""
    parts = rng.normal(size=(models, rank))
    parts -= parts.mean(axis=0)
    return 0.5 + 0.05 * parts @ np.abs(rng.normal(1.0, 0.3, (rank, n)))


# --- the curve


@pytest.mark.parametrize("logistic", [False, True])
def test_derivatives_of_curves_equal_differences(logistic):
    rng = np.random.default_rng(0)
    n, theta = 7, np.array([-1.3, 0.0, 2.1])
    first, second = rng.normal(0.0, 0.4, n), rng.normal(0.0, 1.0, n)

    def at(first, second, theta):
        empty = np.zeros((0, n))
        return View(logistic, first, second, np.zeros((3, n)), empty, empty, np.ones(n)).curve(
            theta
        )

    h = 1e-6
    curve = at(first, second, theta)
    line = theta[:, None] * (np.exp(first) if logistic else first) + second
    np.testing.assert_allclose(curve.mean, expit(line) if logistic else line)
    for name, up, down in (
        ("slope", (first, second, theta + h), (first, second, theta - h)),
        ("by_first", (first + h, second, theta), (first - h, second, theta)),
        ("by_second", (first, second + h, theta), (first, second - h, theta)),
    ):
        numeric = (at(*up).mean - at(*down).mean) / (2 * h)
        np.testing.assert_allclose(getattr(curve, name), numeric, atol=1e-8, err_msg=name)


def test_item_covariance_is_the_delta_method():
    rng = np.random.default_rng(1)
    n = 5
    root = rng.normal(size=(n, 2, 2))
    sigma = root @ root.transpose(0, 2, 1)
    cov = np.array([sigma[:, 0, 0], sigma[:, 0, 1], sigma[:, 1, 1]])
    empty = np.zeros((0, n))
    view = View(True, rng.normal(size=n), rng.normal(size=n), cov, empty, empty, np.ones(n))
    curve = view.curve(np.array([-0.5, 1.5]))
    for a, b in ((0, 0), (0, 1), (1, 1)):
        expected = [
            np.array([curve.by_first[a, i], curve.by_second[a, i]])
            @ sigma[i]
            @ np.array([curve.by_first[b, i], curve.by_second[b, i]])
            for i in range(n)
        ]
        np.testing.assert_allclose(curve.item_covariance(cov, a, b), expected)


def test_the_logistic_view_has_the_banks_curves_and_their_errors():
    """Its parameters are (log a, -a b); errors of expected scores are those of (b, a)."""
    _, scores = benchmark(models=9)
    fit = calibrate_items(scores, "robust-2pl")
    view, _ = fit_views(scores, fit.theta, fit.items)
    a, b = fit.items.discrimination, fit.items.difficulty
    theta = np.array([0.7])
    curve = view.curve(theta)
    np.testing.assert_allclose(curve.mean[0], expit(a * (0.7 - b)))
    spread = curve.mean[0] * (1.0 - curve.mean[0])
    by_b, by_a = -a * spread, (0.7 - b) * spread
    cov = fit.items.covariance
    direct = by_b**2 * cov[:, 0, 0] + 2 * by_a * by_b * cov[:, 0, 1] + by_a**2 * cov[:, 1, 1]
    # Where factors take something out of the noise, errors of the curve shrink with it.
    shrunk = view.noise / fit.items.noise**2
    np.testing.assert_allclose(
        curve.item_covariance(view.item_cov, 0, 0), direct * shrunk, rtol=1e-8
    )


# --- straight lines


def test_lines_of_a_matrix_without_noise_are_found_exactly():
    rng = np.random.default_rng(2)
    scores = smooth(rng, 12, 30)
    _, line = views_of(scores)
    means = scores.mean(axis=1)
    t = (means - means.mean()) / means.std()
    np.testing.assert_allclose(line.curve(t).mean, scores, atol=1e-4)
    np.testing.assert_allclose(line.second, scores.mean(axis=0), atol=1e-12)


def test_slopes_of_few_noisy_models_are_drawn_to_what_is_usual():
    """The shrunk slopes lie closer to the truth than each item's own regression."""
    rng = np.random.default_rng(3)
    slope = rng.uniform(0.08, 0.12, 200)
    theta = standard_abilities(6)
    scores = 0.5 + theta[:, None] * slope + rng.normal(0.0, 0.1, (6, 200))
    scores = np.clip(scores, 0.0, 1.0)
    _, line = views_of(scores)
    means = scores.mean(axis=1)
    own = (means - means.mean()) / means.std() @ (scores - scores.mean(axis=0)) / 6
    off_own, off = own - slope, line.first - slope
    assert (off**2).mean() < 0.3 * (off_own**2).mean()


def test_errors_of_slopes_are_as_large_as_claimed_after_shrinking():
    """Mean square of (estimate - truth) / claimed, and the same for unshrunk regressions' errors."""
    rng = np.random.default_rng(3)
    slope = rng.uniform(0.05, 0.15, 600)
    scores = 0.5 + standard_abilities(8)[:, None] * slope + rng.normal(0.0, 0.1, (8, 600))
    _, line = views_of(np.clip(scores, 0.0, 1.0))
    off = (line.first - slope) ** 2
    assert (off / line.item_cov[0]).mean() == pytest.approx(1.1, abs=0.25)
    assert (off / (line.noise / 8)).mean() < 0.7


# --- factors


def test_what_models_share_besides_ability_is_found_and_leaves_the_noise():
    made, scores = benchmark(2, factors=1, loading=0.12, models=60, n=800)
    inner = np.abs(made.height) < 1.0  # away from the ends, where scores are cut
    for view in views_of(scores):
        found, true = view.loadings[0], made.loadings[0]
        assert abs(np.corrcoef(found[inner], true[inner])[0, 1]) > 0.9
        # Its scale too: factor scores have unit mean square, those drawn here 1.05. A tenth is
        # lost where scores are cut to [0, 1].
        ratio = np.sqrt((found[inner] ** 2).mean() / (true[inner] ** 2).mean())
        assert 0.8 < ratio < 1.05
        others = (view.loadings[1:] ** 2).mean(axis=1)
        assert (others < 0.05 * (found**2).mean()).all()
        ratio = np.sqrt(view.noise[inner]) / made.noise[inner]
        assert np.median(ratio) == pytest.approx(1.0, abs=0.1)


def test_where_there_is_nothing_but_ability_loadings_shrink_to_nothing():
    """Also with real factors, as a control. The ten strongest of 40 directions of pure noise are
    stronger than the others by chance, the less so the more items: 600 here."""
    for loading, least, most in ((0.0, 0.0, 0.07), (0.12, 0.5, 9.0)):
        made, scores = benchmark(loading=loading, models=40, n=600)
        for view in views_of(scores):
            explained = np.median((view.loadings**2).sum(axis=0) / made.noise**2)
            assert least <= explained < most


@pytest.mark.parametrize("models", [3, 4, 5, 20])
def test_there_are_at_most_c_less_3_factors_and_never_more_than_ten(models):
    _, scores = benchmark(models=models)
    for view in views_of(scores):
        assert len(view.loadings) <= min(models - 3, MAX_FACTORS)
        assert view.loading_var.shape == view.loadings.shape
        assert view.latent == 1 + len(view.loadings)
        for part in (view.first, view.second, view.item_cov, view.loadings, view.loading_var):
            assert np.isfinite(part).all()
        assert (view.noise > 0.0).all()
        determinant = view.item_cov[0] * view.item_cov[2] - view.item_cov[1] ** 2
        assert (determinant > -1e-12).all()


def test_a_loading_is_surer_the_more_models_calibrated():
    unsure = []
    for models in (12, 80):
        _, scores = benchmark(models=models, loading=0.1)
        unsure.append([float(view.loading_var[0].mean()) for view in views_of(scores)])
    assert (np.array(unsure[0]) > 4.0 * np.array(unsure[1])).all()


def test_very_many_models_give_the_same_factors_by_the_sparse_solver(monkeypatch):
    _, scores = benchmark(models=60)
    dense = views_of(scores)
    monkeypatch.setattr("lm_eval_adaptive.core.views.MANY_MODELS", 30)
    for one, other in zip(dense, views_of(scores), strict=True):
        np.testing.assert_allclose(np.abs(other.loadings), np.abs(one.loadings), atol=1e-8)
        np.testing.assert_allclose(other.noise, one.noise, rtol=1e-8)


@quick
@given(st.integers(0, 1000))
def test_relabelling_models_and_items_permutes_the_views(seed):
    rng = np.random.default_rng(seed)
    scores = FactorBenchmark(rng, 25).draw(rng.normal(size=9), rng)
    items = ItemParameters(
        "robust-2pl",
        rng.normal(size=25),
        rng.uniform(0.5, 1.5, 25),
        rng.uniform(0.1, 0.2, 25),
        np.tile(0.01 * np.eye(2), (25, 1, 1)),
    )
    theta = rng.normal(size=9)
    rows, columns = rng.permutation(9), rng.permutation(25)
    one = fit_views(scores, theta, items)
    other = fit_views(scores[rows][:, columns], theta[rows], items.take(columns))
    for a, b in zip(one, other, strict=True):
        for name in ("first", "second", "noise"):
            np.testing.assert_allclose(getattr(b, name), getattr(a, name)[columns], rtol=1e-7)
        np.testing.assert_allclose(b.item_cov, a.item_cov[:, columns], rtol=1e-7, atol=1e-12)
        # A factor's sign is arbitrary.
        np.testing.assert_allclose(
            b.loadings.T @ b.loadings,
            (a.loadings.T @ a.loadings)[np.ix_(columns, columns)],
            atol=1e-8,
        )


# --- missing cells


def test_missing_cells_of_a_plane_matrix_are_filled_as_they_were():
    rng = np.random.default_rng(5)
    scores = smooth(rng, 20, 80)
    holes = scores.copy()
    holes[rng.uniform(size=scores.shape) < 0.2] = np.nan
    filled = fill_missing(holes)
    seen = np.isfinite(holes)
    np.testing.assert_array_equal(filled[seen], scores[seen])
    off = (filled - scores)[~seen]
    by_mean = (np.nanmean(holes, axis=0) - scores)[~seen]
    assert np.sqrt((off**2).mean()) < 0.35 * np.sqrt((by_mean**2).mean())
    assert fill_missing(scores) is scores


def test_a_fifth_of_cells_missing_moves_views_little():
    _, scores = benchmark(models=30, n=150, loading=0.1)
    holes = scores.copy()
    holes[np.random.default_rng(6).uniform(size=scores.shape) < 0.2] = np.nan
    for whole, part in zip(views_of(scores), views_of(holes), strict=True):
        for theta in (-1.0, 0.0, 1.0):
            one, other = (each.curve(np.array([theta])).mean[0] for each in (whole, part))
            assert np.sqrt(((one - other) ** 2).mean()) < 0.025
        # A cell without a score says nothing: noise does not grow, nor do loadings shrink.
        assert np.median(part.noise / whole.noise) == pytest.approx(1.0, abs=0.12)
        for one, other in zip(whole.loadings[:3], part.loadings, strict=False):
            assert abs(np.corrcoef(one, other)[0, 1]) > 0.9
            assert (other**2).mean() / (one**2).mean() == pytest.approx(1.0, abs=0.25)
        assert np.median(part.loading_var[0] / whole.loading_var[0]) > 1.1
