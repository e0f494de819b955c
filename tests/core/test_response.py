"""The formulas of mean, variance, information and log-likelihood."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import t as student

from lm_eval_adaptive.core.response import (
    STUDENT_DF,
    ItemParameters,
    expected_score,
    information,
    log_likelihood,
    variance,
)
from tests.core.helpers import ALL_MODELS, make_items, quick, random_items

THETA = st.floats(-6.0, 6.0)
AT_LOG3 = np.array(
    [log(3.0)]
)  # odds 3 to 1 on an item of difficulty 0: mu = 3/4, mu (1 - mu) = 3/16


def test_paper_mean_variance_and_information_by_hand():
    # mu = 3/4. sigma^2 = k mu (1 - mu) = 1/4 x 3/16 = 3/64. I = mu (1 - mu) / k = 3/16 x 4 = 3/4.
    items = make_items("paper-1pl", [0.0], noise=0.25)
    assert items.discrimination.tolist() == [2.0]  # a = 1 / sqrt(k)
    np.testing.assert_allclose(expected_score(AT_LOG3, items), [[3 / 4]])
    np.testing.assert_allclose(variance(AT_LOG3, items), [[3 / 64]])
    np.testing.assert_allclose(information(AT_LOG3, items), [[3 / 4]])


def test_paper_information_is_largest_where_theta_is_b_and_equals_1_over_4k():
    # At theta = b, mu = 1/2: I = 1/4 / k = 1/4 / 0.2 = 1.25.
    items = make_items("paper-1pl", [1.5], noise=0.2)
    np.testing.assert_allclose(information(np.array([1.5]), items), [[1.25]])


def test_paper_quasi_likelihood_by_hand():
    # [y log mu + (1 - y) log(1 - mu)] / k with y = 1/2, mu = 3/4, k = 1/4: 2 log(3/4) + 2 log(1/4).
    items = make_items("paper-1pl", [0.0], noise=0.25)
    found = log_likelihood(AT_LOG3, items, np.array([0.5]))
    np.testing.assert_allclose(found, [2 * log(3 / 4) + 2 * log(1 / 4)])


def test_bernoulli_by_hand():
    # a = 2, theta - b = log(3) / 2: mu = 3/4 again. I = a^2 mu (1 - mu) = 4 x 3/16 = 3/4.
    items = make_items("bernoulli-2pl", [log(3.0) / 2], discrimination=2.0)
    theta = AT_LOG3
    np.testing.assert_allclose(expected_score(theta, items), [[3 / 4]])
    np.testing.assert_allclose(variance(theta, items), [[3 / 16]])
    np.testing.assert_allclose(information(theta, items), [[3 / 4]])
    np.testing.assert_allclose(log_likelihood(theta, items, np.array([1.0])), [log(3 / 4)])
    np.testing.assert_allclose(log_likelihood(theta, items, np.array([0.0])), [log(1 / 4)])


def test_robust_by_hand_with_calibration_error():
    # mu = 3/4, slope mu (1 - mu) = 3/16, a = 1, theta - b = log 3, s = 1/10.
    # d mu/d b = -3/16, d mu/d a = log 3 x 3/16; var b = 1/25, var a = 1/100, cov = 1/50.
    grad_b, grad_a = -3 / 16, log(3.0) * 3 / 16
    calibration = grad_b**2 / 25 + grad_a**2 / 100 + 2 * grad_b * grad_a / 50
    cov = np.array([[[1 / 25, 1 / 50], [1 / 50, 1 / 100]]])
    items = ItemParameters("robust-2pl", *np.array([[0.0], [1.0], [0.1]]), cov)
    np.testing.assert_allclose(variance(AT_LOG3, items), [[0.01 + calibration]])
    np.testing.assert_allclose(
        information(AT_LOG3, items), [[(3 / 16) ** 2 / (0.01 + calibration)]]
    )


def test_robust_likelihood_is_scipys_student_t():
    items = random_items("robust-2pl", 4, np.random.default_rng(0))
    # With calibration error the scale changes along theta, and its logarithm counts.
    cov = np.array([[0.2, 0.01], [0.01, 0.05]])[None] * np.arange(1.0, 5.0)[:, None, None]
    items = replace(items, covariance=cov)
    theta, scores = np.array([-1.0, 0.3, 2.0]), np.array([0.0, 0.2, 0.9, 1.0])
    expected = student.logpdf(
        scores, STUDENT_DF, expected_score(theta, items), np.sqrt(variance(theta, items))
    ).sum(axis=1)
    found = log_likelihood(theta, items, scores)
    np.testing.assert_allclose(found - found[0], expected - expected[0])


@quick
@given(
    st.sampled_from(ALL_MODELS),
    THETA,
    st.floats(-5.0, 5.0),
    st.floats(0.1, 4.0),
    st.floats(0.02, 0.9),
)
def test_information_is_never_negative_and_at_most_its_value_at_b(model, theta, b, a, noise):
    items = make_items(model, [b], a, noise)
    there = information(np.array([theta]), items)[0, 0]
    peak = information(np.array([b]), items)[0, 0]
    assert 0.0 <= there <= peak
    assert expected_score(np.array([b]), items)[0, 0] == 0.5


@quick
@given(st.sampled_from(ALL_MODELS), st.floats(0.1, 3.0))
def test_information_scales_with_the_square_of_a(model, a):
    # At theta = b the slope of mu is a / 4 whatever a; paper-1pl's a is 1 / sqrt(k).
    one, other = (
        make_items(model, [0.7], each, 1.0 / each**2 if model == "paper-1pl" else 0.2)
        for each in (1.0, a)
    )
    at = np.array([0.7])
    np.testing.assert_allclose(information(at, other), a**2 * information(at, one))


@quick
@given(
    st.sampled_from(["paper-1pl", "bernoulli-2pl"]), THETA, st.floats(-2.0, 2.0), st.floats(0, 1)
)
def test_slope_and_curvature_of_the_likelihood_are_the_score_and_the_information(
    model, theta, b, y
):
    # Quasi-likelihood: d/d theta = a (y - mu) / noise, d2/d theta2 = -I, whatever y is.
    items = make_items(model, [b], 1.3, 0.25)
    h = 1e-3
    low, mid, high = log_likelihood(np.array([theta - h, theta, theta + h]), items, np.array([y]))
    a = 1.0 if model == "paper-1pl" else 1.3
    mu = expected_score(np.array([theta]), items)[0, 0]
    assert (high - low) / (2 * h) == pytest.approx(a * (y - mu) / items.noise[0], abs=1e-4)
    info = information(np.array([theta]), items)[0, 0]
    assert (high - 2 * mid + low) / h**2 == pytest.approx(-info, abs=1e-4)


@pytest.mark.parametrize("theta", [-1.5, 0.0, 0.8])
def test_robust_information_is_the_precision_of_a_least_squares_mean(theta):
    """(d mu / d theta)^2 / V: 1 / information is the variance of theta read off one score."""
    items = make_items("robust-2pl", [0.2], 1.4, 0.01)
    slope = 1.4 * expit(1.4 * (theta - 0.2)) * expit(-1.4 * (theta - 0.2))
    density = lambda e: exp(-0.5 * (e / 0.01) ** 2) / (0.01 * np.sqrt(2 * np.pi))  # noqa: E731
    second_moment = quad(lambda e: (e / slope) ** 2 * density(e), -0.08, 0.08)[0]
    found = information(np.array([theta]), items)[0, 0]
    assert 1.0 / found == pytest.approx(second_moment, rel=1e-6)


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_of_0_and_1_have_finite_likelihood_far_from_the_item(model, score):
    items = make_items(model, [0.0], 2.0, 0.1)
    found = log_likelihood(np.array([-40.0, 0.0, 40.0]), items, np.array([score]))
    assert np.isfinite(found).all()
    better, worse = (2, 0) if score == 1.0 else (0, 2)
    assert found[better] > found[worse]


def test_take_keeps_each_items_numbers_together():
    items = random_items("robust-2pl", 5, np.random.default_rng(1))
    cov = np.arange(20.0).reshape(5, 2, 2)
    items = ItemParameters(items.model, items.difficulty, items.discrimination, items.noise, cov)
    theta = np.array([-1.0, 1.0])
    some = np.array([3, 0])
    np.testing.assert_array_equal(
        variance(theta, items.take(some)), variance(theta, items)[:, some]
    )
    assert len(items.take(np.array([True, False, True, False, False]))) == 2
