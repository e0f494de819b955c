"""From answers to abilities: golden values, independent solvers, properties, coverage."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import expit, log_expit

from lm_eval_adaptive.core.bernoulli import ability_grid
from lm_eval_adaptive.core.calibration import calibrate_items
from lm_eval_adaptive.core.response import information
from tests.core.helpers import (
    coverage_is_plausible,
    draw_scores,
    global_parameters,
    make_items,
    posterior_under,
    quick,
    random_items,
)

# robust-2pl has beliefs of its own: test_joint, test_robust.
MODELS = ("paper-1pl", "bernoulli-2pl")


def posterior_of(items, **changes):
    return posterior_under(items, global_parameters(items, **changes))


def some_responses(rng, models, n, share=0.5):
    """Scores with exact zeros and ones among them, about half the cells empty."""
    scores = np.clip(rng.uniform(-0.3, 1.3, (models, n)), 0.0, 1.0)
    scores[rng.uniform(size=scores.shape) > share] = np.nan
    return scores


# --- the paper's equations, by hand


def test_paper_estimate_and_standard_error_by_hand():
    # Four items of b = 0, k = 1/4, mean score 1/2, prior N(0, 25): the slope of the quasi-posterior
    # sum (y - mu) / k - theta / 25 vanishes at theta = 0. There each item adds 1/4 / (1/4) = 1,
    # so SE = 1 / sqrt(4) = 1/2; the prior takes no part in it.
    items = make_items("paper-1pl", np.zeros(4), noise=0.25)
    found = posterior_of(items).estimate(np.array([[0.25, 0.75, 0.4, 0.6]]))
    np.testing.assert_allclose(found.theta, [0.0], atol=1e-9)
    np.testing.assert_allclose(found.theta_se, [0.5])
    np.testing.assert_allclose(found.level_cov, [[0.25]])


def test_paper_estimate_where_the_prior_pulls():
    # One item of b = 0, k = 1, a score of 3/4 + d. With theta = log 3, mu = 3/4 and the prior's
    # slope is -log(3) / 25, so d = log(3) / 25 makes log 3 the estimate. SE^2 = k / (3/16) = 16/3.
    items = make_items("paper-1pl", [0.0], noise=1.0)
    found = posterior_of(items).estimate(np.array([[3 / 4 + log(3) / 25]]))
    np.testing.assert_allclose(found.theta, [log(3)])
    np.testing.assert_allclose(found.theta_se, [np.sqrt(16 / 3)])


def test_paper_without_answers_is_the_prior():
    # Prior N(median b, 25): b = -1, 0, 4 gives mean 0 and standard deviation 5.
    items = make_items("paper-1pl", [4.0, -1.0, 0.0])
    found = posterior_of(items).estimate(np.full((1, 3), np.nan))
    assert (found.theta.tolist(), found.theta_se.tolist()) == ([0.0], [5.0])


def test_paper_score_reads_theta_through_the_banks_link():
    # logit(score) = 1 + 2 theta at theta = 0: score = expit(1). Its variance: slope^2 SE^2 + sd^2
    # with slope = 2 expit(1) expit(-1), SE = 1/2 as above, sd = 0.1.
    items = make_items("paper-1pl", np.zeros(4), noise=0.25)
    link = {"score_intercept": 1.0, "score_slope": 2.0, "score_sd": 0.1}
    found = posterior_of(items, **link).estimate(np.array([[0.25, 0.75, 0.4, 0.6]]))
    np.testing.assert_allclose(found.score, [expit(1.0)])
    spread = (2.0 * expit(1.0) * expit(-1.0) * 0.5) ** 2 + 0.01
    np.testing.assert_allclose(found.score_se, [np.sqrt(spread)])


# --- the same posterior by other means


@pytest.mark.parametrize("seed", range(6))
def test_paper_estimate_is_the_peak_of_a_dense_grid(seed):
    """Brute force over the quasi-posterior, written out anew, with steps of 0.0002."""
    rng = np.random.default_rng(seed)
    k = rng.uniform(0.05, 0.6)
    items = make_items("paper-1pl", rng.normal(0.5, 1.5, 12), noise=k)
    scores = some_responses(rng, 1, 12)
    scores[0, :2] = [(0.0, 1.0), (1.0, 1.0), (0.0, 0.0)][seed % 3]
    found = posterior_of(items).estimate(scores)
    centre = np.median(items.difficulty)
    grid = np.arange(centre - 20.0, centre + 20.0, 2e-4)
    height = -((grid - centre) ** 2) / 50.0
    for b, y in zip(items.difficulty, scores[0], strict=True):
        if np.isfinite(y):
            height += (y * log_expit(grid - b) + (1.0 - y) * log_expit(b - grid)) / k
    peak = grid[np.argmax(height)]
    assert found.theta[0] == pytest.approx(peak, abs=2e-4)
    mu = expit(peak - items.difficulty[np.isfinite(scores[0])])
    assert found.theta_se[0] == pytest.approx(np.sqrt(k / (mu * (1 - mu)).sum()), rel=1e-3)


def moments(height, low=-8.0, high=8.0):
    """Mean and sd of a density known up to a constant, by adaptive quadrature."""
    top = max(height(t) for t in np.linspace(low, high, 401))
    mass, first, second = (
        quad(lambda t: t**p * np.exp(height(t) - top), low, high, limit=400)[0]  # noqa: B023
        for p in range(3)
    )
    return first / mass, np.sqrt(second / mass - (first / mass) ** 2)


@pytest.mark.parametrize("seed", range(5))
def test_bernoulli_mean_and_sd_equal_quadrature(seed):
    rng = np.random.default_rng(seed)
    items = random_items("bernoulli-2pl", 15, rng)
    scores = draw_scores(items, [rng.normal()], rng)
    scores[0, ::4] = np.nan
    found = posterior_of(items).estimate(scores)
    seen = np.isfinite(scores[0])
    a, b, y = items.discrimination[seen], items.difficulty[seen], scores[0, seen]

    def height(t):
        p = 1.0 / (1.0 + np.exp(-a * (t - b)))
        return float(np.log(np.where(y == 1.0, p, 1.0 - p)).sum() - 0.5 * (t / 1.5) ** 2)

    mean, sd = moments(height)
    assert found.theta[0] == pytest.approx(mean, abs=3e-3)
    assert found.theta_se[0] == pytest.approx(sd, abs=3e-3)


# --- properties


@quick
@given(st.sampled_from(MODELS), st.integers(0, 1000))
def test_models_and_items_may_come_in_any_order(model, seed):
    """Permuting rows permutes the estimates; the order of the questions changes nothing."""
    rng = np.random.default_rng(seed)
    items = random_items(model, 12, rng)
    scores = some_responses(rng, 4, 12)
    rows, columns = rng.permutation(4), rng.permutation(12)
    one = posterior_of(items).estimate(scores)
    parameters = global_parameters(items)
    other = posterior_under(items.take(columns), parameters).estimate(scores[rows][:, columns])
    for name in ("theta", "theta_se", "score", "score_se", "level", "level_se"):
        np.testing.assert_allclose(
            getattr(other, name), getattr(one, name)[rows], rtol=1e-7, atol=1e-9, err_msg=name
        )


@quick
@given(st.integers(0, 1000), st.floats(-3.0, 3.0))
def test_shifting_every_b_and_the_prior_shifts_the_papers_theta(seed, c):
    rng = np.random.default_rng(seed)
    items = random_items("paper-1pl", 10, rng)
    scores = some_responses(rng, 3, 10)
    moved = replace(items, difficulty=items.difficulty + c)
    one, other = posterior_of(items).estimate(scores), posterior_of(moved).estimate(scores)
    np.testing.assert_allclose(other.theta, one.theta + c, atol=1e-6)
    np.testing.assert_allclose(other.theta_se, one.theta_se, rtol=1e-6)


@quick
@given(st.sampled_from(MODELS), st.integers(0, 1000))
def test_mirrored_scores_on_mirrored_items_mirror_the_estimate(model, seed):
    rng = np.random.default_rng(seed)
    items = random_items(model, 10, rng)
    scores = some_responses(rng, 2, 10)
    mirrored = replace(items, difficulty=-items.difficulty)
    one, other = posterior_of(items).estimate(scores), posterior_of(mirrored).estimate(1 - scores)
    np.testing.assert_allclose(other.theta, -one.theta, atol=1e-6)
    np.testing.assert_allclose(other.score, 1.0 - one.score, atol=1e-6)
    np.testing.assert_allclose(other.level_se, one.level_se, rtol=1e-6)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("count", [0, 1, 10, 40])
def test_only_zeros_and_only_ones_give_finite_ordered_estimates(model, count):
    items = random_items(model, 40, np.random.default_rng(3))
    scores = np.full((2, 40), np.nan)
    scores[0, :count], scores[1, :count] = 0.0, 1.0
    found = posterior_of(items).estimate(scores)
    for name in ("theta", "theta_se", "score", "score_se", "level", "level_cov"):
        assert np.isfinite(getattr(found, name)).all(), name
    if count:
        assert found.theta[0] < found.theta[1]
        assert found.level[0] < found.level[1]
    assert ((found.score >= 0.0) & (found.score <= 1.0)).all()


def test_a_model_that_answered_everything_has_its_mean_score_and_the_least_error():
    items = random_items("bernoulli-2pl", 30, np.random.default_rng(4))
    scores = draw_scores(items, [0.3, -1.0], np.random.default_rng(5))
    found = posterior_of(items).estimate(scores)
    np.testing.assert_allclose(found.score, scores.mean(axis=1), atol=1e-9)
    # By the rule of succession: 1 in 32 is another, and counts for 1 of 31.
    np.testing.assert_allclose(found.score_se, (1 / 32 * 31 / 32 / 32 / 31) ** 0.5, rtol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_a_better_answer_never_lowers_the_estimate_of_well_behaved_models(model):
    """Scores near their expectation: raising one raises theta and the full score."""
    items = random_items(model, 20, np.random.default_rng(6))
    posterior = posterior_of(items)
    scores = expit(0.2 - items.difficulty)[None, :]
    before = posterior.estimate(scores)
    for item in range(0, 20, 5):
        better = scores.copy()
        better[0, item] += 0.05
        after = posterior.estimate(better)
        assert after.theta[0] > before.theta[0]
        assert after.score[0] > before.score[0]


@pytest.mark.parametrize("model", MODELS)
def test_expected_precision_grows_with_the_number_of_answers(model):
    rng = np.random.default_rng(7)
    items = random_items(model, 80, rng)
    scores = draw_scores(items, rng.normal(size=50), rng)
    posterior = posterior_of(items)
    spread = []
    for count in (10, 20, 40):
        asked = scores.copy()
        asked[:, count:] = np.nan
        spread.append(posterior.estimate(asked).level_se.mean())
    assert spread[0] > spread[1] > spread[2]


def test_worth_is_information_averaged_over_the_posterior():
    items = random_items("bernoulli-2pl", 5, np.random.default_rng(8))
    posterior = posterior_of(items)
    weights = np.zeros((1, len(posterior.grid)))
    weights[0, [130, 160]] = 0.5
    ends = information(posterior.grid[[130, 160]], items)
    beliefs = replace(posterior.estimate(np.full((1, 5), np.nan)), weights=weights)
    np.testing.assert_allclose(posterior.worth(beliefs).worth(0), ends.mean(axis=0))


def test_the_papers_worth_is_information_at_its_mode_whatever_was_chosen():
    items = random_items("paper-1pl", 5, np.random.default_rng(8))
    posterior = posterior_of(items)
    beliefs = replace(posterior.estimate(np.full((1, 5), np.nan)), theta=np.array([0.7]))
    worth = posterior.worth(beliefs)
    worth.ask(3, [0])
    np.testing.assert_allclose(worth.worth(0), information(np.array([0.7]), items)[0])


# --- models beyond all that calibrated


def test_the_grid_reaches_to_where_the_bank_can_tell_models_apart():
    def reach(discrimination):
        return ability_grid(
            make_items("bernoulli-2pl", np.linspace(-2, 2, 50), discrimination), 1.0
        )

    for discrimination, half in ((2.0, 8.0), (0.8, 12.0), (0.05, 24.0)):
        grid = reach(discrimination)
        np.testing.assert_allclose([grid[0], grid[-1]], [1.0 - half, 1.0 + half])
        np.testing.assert_allclose(np.diff(grid), 0.05)


@pytest.mark.parametrize("flip", [False, True])
def test_models_far_beyond_the_calibration_models_do_not_pile_up_at_the_grids_end(flip):
    """Calibrated by models of 25 to 75 %, asked of models of 99.3 and 99.7 %, and mirrored."""
    rng = np.random.default_rng(9)
    true = make_items("bernoulli-2pl", rng.normal(0.0, 0.5, 400), 1.0)
    fit = calibrate_items(draw_scores(true, np.linspace(-1.2, 1.2, 12), rng), "bernoulli-2pl")
    share = np.array([0.95, 0.993, 0.997])
    asked = np.full((3, 400), np.nan)
    for row, each in enumerate(share):
        asked[row, :300] = rng.permutation(np.arange(300) < round(each * 300))
    if flip:
        asked = 1.0 - asked
    found = posterior_under(fit.items, fit.parameters).estimate(asked)
    expected = 1.0 - share if flip else share
    assert np.abs(found.theta[1:]).min() > 4.5  # beyond the end of a grid of +-4
    np.testing.assert_allclose(found.score, expected, atol=0.01)
    step = np.diff(found.theta) if not flip else -np.diff(found.theta)
    assert (step > 0.2).all()


# --- known answers: coverage, each with a negative control

# Four coverage checks share one chance in a hundred of refusing a right method.
SHARE = 0.01 / 4


@pytest.mark.parametrize("model", MODELS)
def test_theta_intervals_cover_under_the_models_own_law(model):
    rng = np.random.default_rng(11)
    items = random_items(model, 60, rng)
    # paper-1pl's interval is a frequentist's, and of no use where all answers are at one end; the
    # others' belongs to their prior, N(0, 1.5^2).
    theta = rng.normal(0.0, 1.5, 500)
    if model == "paper-1pl":
        theta = theta[np.abs(theta) < 4.0]
    scores = draw_scores(items, theta, rng)
    found = posterior_of(items).estimate(scores)
    off = np.abs(found.theta - theta) / found.theta_se
    assert coverage_is_plausible(int((off < 1.96).sum()), len(theta), share=SHARE)
    assert not coverage_is_plausible(int((off < 1.96 / 2).sum()), len(theta), share=SHARE)


@pytest.mark.parametrize("count", [25, 75])
def test_full_score_intervals_cover_after_calibration_on_simulated_models(count):
    """Calibrate on 200 models, ask 200 others some of 100 items; the truth is their mean score.

    At 25 items the error is mostly that of theta, at 75 mostly chance in the items not asked.
    """
    rng = np.random.default_rng(12)
    true_items = random_items("bernoulli-2pl", 100, rng)
    fit = calibrate_items(draw_scores(true_items, rng.normal(0.0, 1.0, 200), rng), "bernoulli-2pl")
    scores = draw_scores(true_items, rng.normal(0.0, 1.0, 200), rng)
    asked = scores.copy()
    asked[:, count:] = np.nan
    found = posterior_under(fit.items, fit.parameters).estimate(asked)
    # The posterior's own error; that of the intervals is wider, for models unlike all known ones.
    off = np.abs(found.score - scores.mean(axis=1)) / found.level_se
    assert (found.score_se > found.level_se).all()
    hits, halved = int((off < 1.96).sum()), int((off < 1.96 / 2).sum())
    assert coverage_is_plausible(hits, 200, share=SHARE)
    assert not coverage_is_plausible(halved, 200, share=SHARE)
    assert halved < 0.95 * 200
