"""The formulas of mean, variance and information."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit

from lm_eval_adaptive.core.response import (
    ItemParameters,
    expected_score,
    information,
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


def test_bernoulli_by_hand():
    # a = 2, theta - b = log(3) / 2: mu = 3/4 again. I = a^2 mu (1 - mu) = 4 x 3/16 = 3/4.
    items = make_items("bernoulli-2pl", [log(3.0) / 2], discrimination=2.0)
    theta = AT_LOG3
    np.testing.assert_allclose(expected_score(theta, items), [[3 / 4]])
    np.testing.assert_allclose(variance(theta, items), [[3 / 16]])
    np.testing.assert_allclose(information(theta, items), [[3 / 4]])


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
@given(st.sampled_from(ALL_MODELS), THETA, st.floats(-2.0, 2.0))
def test_information_is_the_squared_slope_of_the_mean_over_the_variance(model, theta, b):
    items = make_items(model, [b], 1.3, 0.25)
    h = 1e-4
    low, high = expected_score(np.array([theta - h, theta + h]), items)[:, 0]
    slope = (high - low) / (2 * h)
    at = np.array([theta])
    expected = slope**2 / variance(at, items)[0, 0]
    assert information(at, items)[0, 0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("theta", [-1.5, 0.0, 0.8])
def test_robust_information_is_the_precision_of_a_least_squares_mean(theta):
    """(d mu / d theta)^2 / V: 1 / information is the variance of theta read off one score."""
    items = make_items("robust-2pl", [0.2], 1.4, 0.01)
    slope = 1.4 * expit(1.4 * (theta - 0.2)) * expit(-1.4 * (theta - 0.2))
    density = lambda e: exp(-0.5 * (e / 0.01) ** 2) / (0.01 * np.sqrt(2 * np.pi))  # noqa: E731
    second_moment = quad(lambda e: (e / slope) ** 2 * density(e), -0.08, 0.08)[0]
    found = information(np.array([theta]), items)[0, 0]
    assert 1.0 / found == pytest.approx(second_moment, rel=1e-6)


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
