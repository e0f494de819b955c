"""The joint posterior against dense Gaussian conditioning, and the worth of items."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from lm_eval_adaptive.core.batches import STUDENT_DF, asked_alike
from lm_eval_adaptive.core.full_scores import full_scores
from lm_eval_adaptive.core.joint import (
    FIRST_VARIANCE,
    PASSES,
    THETA_BOUND,
    THETA_STEP,
    latent_posterior,
    misfit,
)
from lm_eval_adaptive.core.prospects import Prospects
from lm_eval_adaptive.core.views import FACTOR_SD, OFFSET_COMMON, THETA_SD, View
from tests.core.helpers import quick

NONE = np.nan


@pytest.fixture
def normal_errors(monkeypatch):
    """Answers' errors are normal in place of Student t, so that all is jointly Gaussian."""
    monkeypatch.setattr("lm_eval_adaptive.core.batches.STUDENT_DF", 1e12)


def some_view(rng, n=14, k=2, *, logistic=False, uncertain=True, common=True):
    """A view with made-up numbers; with or without calibration error in loadings and curve."""
    first = rng.normal(-0.2, 0.2, n) if logistic else rng.uniform(0.05, 0.2, n)
    second = rng.normal(0.0, 1.0, n) if logistic else rng.uniform(0.3, 0.7, n)
    var_second = rng.uniform(0.001, 0.01, n)
    var_first = rng.uniform(0.001, 0.01, n) * uncertain
    cov = np.array([var_first, 0.3 * np.sqrt(var_first * var_second), var_second]) * common
    return View(
        logistic,
        first,
        second,
        cov,
        rng.normal(0.0, 0.08, (k, n)),
        rng.uniform(0.02, 0.1, (k, n)) * uncertain,
        rng.uniform(0.01, 0.04, n),
    )


def some_answers(rng, m, n, share=0.5):
    scores = rng.uniform(0.1, 0.9, (m, n))
    scores[rng.uniform(size=(m, n)) > share] = NONE
    return scores


def dense(view, responses):
    """The same posterior, written out anew with one matrix over all models and items.

    Latent values x (models x (theta, f...)), answers y = mu + J (x - x0) + error, where error holds
    each answer's noise, what the loadings leave unsure, and the curve's calibration error, which
    all models asked an item have in common. One pass conditions a joint Gaussian; the error's
    covariance and J belong to the point found before.
    """
    m, n = responses.shape
    q = 1 + len(view.loadings)
    x = np.zeros((m, q))
    prior = np.diag(np.tile([THETA_SD**2] + [FACTOR_SD**2] * (q - 1), m))
    var = np.minimum(np.diag(prior).reshape(m, q), FIRST_VARIANCE)
    cells = [(a, i) for a in range(m) for i in range(n) if np.isfinite(responses[a, i])]
    y = np.array([responses[cell] for cell in cells])

    def mean_and_gradient(a, i):
        t = x[a, 0]
        if not view.logistic:
            return view.second[i] + view.first[i] * t, view.first[i], np.array([t, 1.0])
        e = np.exp(view.first[i])
        mu = expit(e * t + view.second[i])
        return mu, mu * (1 - mu) * e, mu * (1 - mu) * np.array([e * t, 1.0])

    for step in range(PASSES):
        jacobian = np.zeros((len(cells), m * q))
        expected = np.zeros(len(cells))
        error = np.zeros((len(cells), len(cells)))
        for r, (a, i) in enumerate(cells):
            mu, slope, gradient = mean_and_gradient(a, i)
            jacobian[r, a * q] = slope
            jacobian[r, a * q + 1 : (a + 1) * q] = view.loadings[:, i]
            expected[r] = mu + x[a, 1:] @ view.loadings[:, i]
            for s, (b, j) in enumerate(cells):
                if i != j:
                    continue
                v1, v12, v2 = view.item_cov[:, i]
                error[r, s] = gradient @ [[v1, v12], [v12, v2]] @ mean_and_gradient(b, i)[2]
                error[r, s] += view.noise[i] * view.loading_var[:, i] @ (x[a, 1:] * x[b, 1:])
                if a == b:
                    error[r, s] += view.noise[i] * (1 + view.loading_var[:, i] @ var[a, 1:])
        for r, (_, i) in enumerate(cells if step else []):  # Student t_8, reweighted
            surprise = (y[r] - expected[r]) ** 2 / error[r, r]
            error[r, r] += view.noise[i] * ((8.0 + surprise) / 9.0 - 1.0)
        total = jacobian @ prior @ jacobian.T + error
        gain = np.linalg.solve(total, jacobian @ prior).T
        # y - (expected at x0 - J x0): x has prior mean 0.
        x_new = gain @ (y - expected + jacobian @ x.reshape(-1))
        cov = prior - gain @ jacobian @ prior
        before, x = x[:, 0], x_new.reshape(m, q)
        if view.logistic:
            x[:, 0] = before + np.clip(x[:, 0] - before, -THETA_STEP, THETA_STEP)
            x[:, 0] = np.clip(x[:, 0], -THETA_BOUND, THETA_BOUND)
        var = np.diag(cov).reshape(m, q)
    return x, cov


@pytest.mark.parametrize("logistic", [False, True])
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_latent_values_equal_conditioning_of_the_whole_covariance(logistic, k, seed):
    rng = np.random.default_rng(seed)
    view = some_view(rng, k=k, logistic=logistic)
    view = replace(view, item_cov=2.0 * view.item_cov)
    responses = some_answers(rng, 4, 14)
    responses[3] = NONE  # not asked anything yet
    mean, cov = dense(view, responses)
    found = latent_posterior(view, responses)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.cov, cov, atol=1e-8)
    # The shared item error is what makes models depend on each other.
    q = k + 1
    assert np.abs(cov[:q, q : 2 * q]).max() > 1e-4
    np.testing.assert_allclose(found.own_covs[3], prior_cov(view, 1), atol=1e-10)


def prior_cov(view, models):
    """Prior covariance of the latent values of so many models, a model's values together."""
    q, offsets = view.latent, len(view.offset_own)
    found = np.kron(np.eye(models), np.diag(view.prior_variances))
    for place, common in enumerate(OFFSET_COMMON[:offsets]):
        rows = np.arange(models) * q + q - offsets + place
        found[np.ix_(rows, rows)] += common * (1.0 - np.eye(models))
    return found


def item_by_item(view, responses):
    """The posterior from the inverse of every item's covariance, over all models, written out."""
    m, n = responses.shape
    q, offsets = view.latent, len(view.offset_own)
    cov, mean = prior_cov(view, m), np.zeros((m, q))
    prior = np.linalg.inv(cov)
    own = np.minimum(np.diag(cov), FIRST_VARIANCE).reshape(m, q)
    for step in range(PASSES):
        curve = view.curve(mean[:, 0])
        hessian, gradient = prior.copy(), np.zeros(m * q)
        for i in range(n):
            who = np.flatnonzero(np.isfinite(responses[:, i]))
            grad = np.stack([curve.by_first[who, i], curve.by_second[who, i]])
            var_first, cross, var_second = view.item_cov[:, i]
            spread = grad.T @ np.array([[var_first, cross], [cross, var_second]]) @ grad
            f, uncertain = mean[who, 1:], view.noise[i] * view.loading_var[:, i]
            spread += (f * uncertain) @ f.T
            spread += np.diag(own[who, 1:] @ uncertain + view.noise[i])
            left = responses[who, i] - curve.mean[who, i]
            if step:
                off = left - f @ view.loadings[:, i]
                surprise = (STUDENT_DF + off**2 / np.diag(spread)) / (STUDENT_DF + 1.0)
                spread += np.diag(view.noise[i] * (surprise - 1.0))
            loads = np.zeros((len(who), m * q))
            for row, model in enumerate(who):
                loads[row, model * q : (model + 1) * q] = (
                    curve.slope[model, i],
                    *view.loadings[:, i],
                )
            weight = np.linalg.inv(spread)
            hessian += loads.T @ weight @ loads
            gradient += loads.T @ weight @ (left + curve.slope[who, i] * mean[who, 0])
        cov = np.linalg.inv(hessian)
        before, mean = mean[:, 0], (cov @ gradient).reshape(m, q)
        own = np.diag(cov).reshape(m, q)
        if view.logistic:
            theta = before + np.clip(mean[:, 0] - before, -THETA_STEP, THETA_STEP)
            mean[:, 0] = np.clip(theta, -THETA_BOUND, THETA_BOUND)
    assert offsets in (0, 2)
    return mean, cov


@pytest.mark.parametrize("logistic", [True, False])
@pytest.mark.parametrize("pattern", ["nested", "scattered", "few"])
def test_sums_over_items_asked_alike_equal_every_item_by_itself(logistic, pattern, monkeypatch):
    monkeypatch.setattr("lm_eval_adaptive.core.batches.WASTED_CELLS", 60)
    monkeypatch.setattr("lm_eval_adaptive.core.batches.BLOCK", 4)
    rng = np.random.default_rng(5)
    view = some_view(rng, n=30, k=2, logistic=logistic).with_offsets()
    m = 3 if pattern == "few" else 11
    responses = some_answers(rng, m, 30, 1.0 if pattern == "nested" else 0.5)
    if pattern == "nested":  # one model after another is settled
        responses[np.arange(30)[None, :] > 5 + 2 * np.arange(m)[:, None]] = NONE
    mean, cov = item_by_item(view, responses)
    found = latent_posterior(view, responses)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.cov, cov, atol=1e-9)
    q = view.latent
    for model in range(m):
        own = slice(model * q, (model + 1) * q)
        np.testing.assert_allclose(found.own_covs[model], cov[own, own], atol=1e-9)
    # Without offsets: the covariance given that they are 0.
    kept = np.flatnonzero(np.arange(m * q) % q < q - 2)
    given = np.linalg.inv(np.linalg.inv(cov)[np.ix_(kept, kept)])
    np.testing.assert_allclose(found.without_offsets().cov, given, atol=1e-9)
    share = rng.normal(size=(m, q))
    by_all = np.zeros((m, m * q))
    for model in range(m):
        by_all[model, model * q : (model + 1) * q] = share[model]
    np.testing.assert_allclose(found.cov_of(share), by_all @ cov @ by_all.T, atol=1e-9)


def test_items_asked_alike_are_every_answered_item_once():
    rng = np.random.default_rng(0)
    answered = rng.uniform(size=(40, 60)) < 0.3
    answered[:, 7] = False
    answered[20:, :30] = False
    batches = asked_alike(answered)
    items = np.concatenate([each for _, each in batches])
    assert sorted(items) == [item for item in range(60) if item != 7]
    for models, mine in batches:
        others = np.setdiff1d(np.arange(40), models)
        assert not answered[np.ix_(others, mine)].any()


@pytest.mark.usefixtures("normal_errors")
@pytest.mark.parametrize("seed", range(5))
def test_full_scores_equal_conditioning_of_all_answers(seed):
    """Straight lines of known slope and loadings: everything is jointly Gaussian, so that the full
    score is a mean of answers, some of them known.

    y_ai = h_i + e_i + x_a' l_i + noise, e_i ~ N(0, var of the height) common to the models. All
    models were asked the same items, as in a run.
    """
    rng = np.random.default_rng(seed)
    m, n, k = 3, 12, 2
    view = some_view(rng, n, k, uncertain=False)
    responses = rng.uniform(0.2, 0.8, (m, n))
    responses[:, rng.permutation(n)[:7]] = NONE
    loads = np.concatenate([view.first[None], view.loadings])
    cov = np.kron(np.eye(m), loads.T @ prior_cov(view, 1) @ loads)
    cov += np.kron(np.ones((m, m)), np.diag(view.item_cov[2]))
    cov += np.kron(np.eye(m), np.diag(view.noise))
    mean = np.tile(view.second, m)
    y = responses.reshape(-1)
    seen = np.isfinite(y)
    gain = np.linalg.solve(cov[np.ix_(seen, seen)], cov[np.ix_(seen, ~seen)]).T
    full = y.copy()
    full[~seen] = mean[~seen] + gain @ (y[seen] - mean[seen])
    rest = cov[np.ix_(~seen, ~seen)] - gain @ cov[np.ix_(seen, ~seen)]
    mean_of = np.kron(np.eye(m), np.full((1, n), 1.0 / n))
    score, score_cov = full_scores(latent_posterior(view, responses), responses)
    np.testing.assert_allclose(score, mean_of @ full, atol=1e-8)
    np.testing.assert_allclose(
        score_cov, mean_of[:, ~seen] @ rest @ mean_of[:, ~seen].T, atol=1e-8, rtol=1e-6
    )


@quick
@given(st.booleans(), st.integers(0, 10_000))
def test_models_and_items_may_come_in_any_order(logistic, seed):
    rng = np.random.default_rng(seed)
    view = some_view(rng, logistic=logistic)
    responses = some_answers(rng, 4, 14)
    rows, columns = rng.permutation(4), rng.permutation(14)
    one = latent_posterior(view, responses)
    moved = latent_posterior(view, responses[rows])
    q = one.mean.shape[1]
    np.testing.assert_allclose(moved.mean, one.mean[rows], atol=1e-12)
    flat = (rows[:, None] * q + np.arange(q)).reshape(-1)
    np.testing.assert_allclose(moved.cov, one.cov[np.ix_(flat, flat)], atol=1e-12)
    score, cov = full_scores(one, responses)
    moved_score, moved_cov = full_scores(moved, responses[rows])
    np.testing.assert_allclose(moved_score, score[rows], atol=1e-12)
    np.testing.assert_allclose(moved_cov, cov[np.ix_(rows, rows)], atol=1e-12)
    np.testing.assert_allclose(
        misfit(moved, responses[rows]), misfit(one, responses)[rows], rtol=1e-9
    )
    shuffled = responses[:, columns]
    other = latent_posterior(view.take(columns), shuffled)
    np.testing.assert_allclose(other.mean, one.mean, atol=1e-11)
    np.testing.assert_allclose(full_scores(other, shuffled)[0], score, atol=1e-11)


@pytest.mark.parametrize("logistic", [False, True])
def test_a_full_evaluation_is_the_mean_without_error(logistic):
    rng = np.random.default_rng(3)
    view = some_view(rng, logistic=logistic)
    responses = rng.uniform(size=(3, 14))
    score, cov = full_scores(latent_posterior(view, responses), responses)
    np.testing.assert_allclose(score, responses.mean(axis=1), atol=1e-15)
    np.testing.assert_array_equal(cov, 0.0)


@pytest.mark.parametrize("logistic", [False, True])
def test_models_that_share_no_item_are_as_if_alone_and_others_are_not(logistic):
    rng = np.random.default_rng(4)
    view = some_view(rng, logistic=logistic)
    responses = rng.uniform(size=(2, 14))
    responses[0, 7:] = responses[1, :7] = NONE
    together = latent_posterior(view, responses)
    q = together.mean.shape[1]
    for row in range(2):
        alone = latent_posterior(view, responses[[row]])
        np.testing.assert_allclose(together.mean[row], alone.mean[0], atol=1e-12)
        np.testing.assert_allclose(together.own_covs[row], alone.own_covs[0], atol=1e-12)
    np.testing.assert_allclose(together.cov[:q, q:], 0.0, atol=1e-12)
    responses[1, :7] = responses[0, :7]
    shared = latent_posterior(view, responses)
    assert np.abs(shared.mean[0] - latent_posterior(view, responses[[0]]).mean[0]).max() > 1e-4


@pytest.mark.usefixtures("normal_errors")
def test_what_is_common_to_an_item_drops_out_of_differences():
    """Uncertain heights make scores unsure, but not the difference of models asked the same."""
    rng = np.random.default_rng(5)
    view = some_view(rng, 40, uncertain=False)
    wobbly = replace(view, item_cov=view.item_cov * 20.0)
    responses = rng.uniform(0.2, 0.8, (2, 40))
    responses[:, 15:] = NONE
    variances = []
    for each in (view, wobbly):
        _, cov = full_scores(latent_posterior(each, responses), responses)
        variances.append((cov[0, 0], cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]))
    assert variances[1][0] > 1.5 * variances[0][0]
    assert variances[1][1] == pytest.approx(variances[0][1], rel=1e-9)


@pytest.mark.parametrize("logistic", [False, True])
def test_an_answer_that_surprises_pulls_less_than_its_distance(logistic, monkeypatch):
    """Ability after one answer far above the others, against that under normal errors."""
    rng = np.random.default_rng(11)
    view = some_view(rng, 30, 0, logistic=logistic)
    usual = np.clip(view.curve(np.zeros(1)).mean, 0.0, 1.0)
    odd = usual.copy()
    odd[0, np.argmin(usual[0])] = 1.0
    moved = {}
    for df in (8.0, 1e12):
        monkeypatch.setattr("lm_eval_adaptive.core.batches.STUDENT_DF", df)
        found = [latent_posterior(view, scores).mean[0, 0] for scores in (usual, odd)]
        moved[df] = found[1] - found[0]
    assert 0.0 < moved[8.0] < 0.6 * moved[1e12]


def test_abilities_without_end_are_held():
    rng = np.random.default_rng(6)
    view = some_view(rng, 60, 0, logistic=True)
    responses = np.vstack([np.zeros(60), np.ones(60)])
    found = latent_posterior(view, responses)
    assert np.isfinite(found.mean).all()
    assert np.abs(found.mean[:, 0]).max() <= THETA_BOUND
    assert found.mean[0, 0] < -1.5 < 1.5 < found.mean[1, 0]
    assert (np.diag(found.cov) > 0.0).all()


def test_misfit_by_hand_and_cut():
    # Heights 1/2, no slope, noise 0.01: residuals of 0.1, 0.2 and 0.4 are 1, 2 and 4 sd's, and
    # 16 is cut to 6: (1 + 4 + 6) / 3.
    zero = np.zeros(3)
    view = View(
        False,
        zero,
        zero + 0.5,
        np.zeros((3, 3)),
        np.zeros((0, 3)),
        np.zeros((0, 3)),
        zero + 0.01,
    )
    responses = np.array([[0.6, 0.7, 0.9], [NONE, NONE, NONE]])
    np.testing.assert_allclose(misfit(latent_posterior(view, responses), responses), [11 / 3, 1.0])


# --- the worth of items


def latent_variance(view, responses):
    """Variance of what the latent values say about the mean of all items, for one model."""
    found = latent_posterior(view, responses)
    share = np.concatenate([[view.first.mean()], view.loadings.mean(axis=1)])
    return float(share @ found.own_covs[0] @ share)


@pytest.mark.usefixtures("normal_errors")
@pytest.mark.parametrize("asked", [0, 4])
def test_worth_is_the_fall_of_variance_that_asking_brings(asked):
    rng = np.random.default_rng(7)
    view = some_view(rng, uncertain=False, common=False)
    responses = np.full((1, 14), NONE)
    responses[0, :asked] = 0.5
    before = latent_variance(view, responses)
    falls = np.zeros(14)
    for item in range(asked, 14):
        with_it = responses.copy()
        with_it[0, item] = rng.uniform()  # its answer does not matter
        falls[item] = before - latent_variance(view, with_it)
    worth = Prospects([latent_posterior(view, responses)]).worth(0)
    # Worth is relative to the best item, asked ones included.
    scale = falls[asked:].max() / worth[asked:].max()
    np.testing.assert_allclose(worth[asked:] * scale, falls[asked:], rtol=1e-7)
    assert np.ptp(falls[asked:]) > 0.1 * falls[asked:].max()


@pytest.mark.usefixtures("normal_errors")
def test_counting_items_as_asked_equals_asking_them():
    rng = np.random.default_rng(8)
    view = some_view(rng, 20, uncertain=False, common=False)
    responses = np.full((2, 20), NONE)
    responses[:, :3] = 0.5
    prospects = Prospects([latent_posterior(view, responses)])
    for step, item in enumerate([5, 11, 7]):
        prospects.ask(item, [0])
        responses[0, item] = rng.uniform()
        fresh = Prospects([latent_posterior(view, responses)])
        free = np.isnan(responses[0])
        one, other = prospects.worth(0)[free], fresh.worth(0)[free]
        np.testing.assert_allclose(one / one.max(), other / other.max(), rtol=1e-9)
        assert one.max() < 1.0, step
    # The other model was asked nothing new.
    first = Prospects([latent_posterior(view, np.where(np.arange(20) < 3, 0.5, NONE)[None])])
    np.testing.assert_allclose(prospects.worth(1), first.worth(0), rtol=1e-9)


def test_an_item_whose_slope_is_unsure_or_noisy_is_worth_less():
    rng = np.random.default_rng(9)
    view = some_view(rng, 6, 1, logistic=True, uncertain=False, common=False)
    twin = replace(
        view,
        first=np.zeros(6),
        second=np.zeros(6),
        loadings=np.full((1, 6), 0.05),
        noise=np.array([0.02, 0.02, 0.02, 0.04, 0.02, 0.02]),
        loading_var=np.array([[0.0, 0.0, 0.0, 0.0, 0.5, 0.0]]),
        item_cov=np.array([[0, 0, 0.2, 0, 0, 0], np.zeros(6), [0, 0.2, 0, 0, 0, 0]]),
    )
    responses = np.full((2, 6), NONE)
    responses[0, 5] = 0.9
    prospects = Prospects([latent_posterior(twin, responses)])
    worth = prospects.worth(0)
    assert worth[1] == pytest.approx(worth[0])  # an error of height is common: it drops out
    assert worth[2] < worth[0]
    assert worth[3] < worth[0]
    # Unsure loadings are noise, also for a model whose factor scores are not known at all.
    assert worth[4] < worth[0]
    assert prospects.worth(1)[4] < prospects.worth(1)[0]
