"""Pooled estimates: from the views and from plain means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.full_scores import full_scores
from lm_eval_adaptive.core.joint import latent_posterior
from lm_eval_adaptive.core.levels import levels_by_regression
from lm_eval_adaptive.core.pooled import LEVEL_WEIGHT, PLAIN_SD, from_plain_means, pool
from lm_eval_adaptive.core.views import View
from tests.core.helpers import quick


def linear_view(rng, n=30, factors=2):
    return View(
        logistic=False,
        first=rng.uniform(0.02, 0.2, n),
        second=rng.uniform(0.3, 0.7, n),
        item_cov=np.zeros((3, n)),
        loadings=rng.normal(0.0, 0.03, (factors, n)),
        loading_var=np.zeros((factors, n)),
        noise=rng.uniform(0.001, 0.02, n),
    )


def some_answers(rng, models=3, n=30, share=0.4):
    scores = rng.uniform(size=(models, n))
    scores[rng.uniform(size=scores.shape) > share] = np.nan
    return scores


def test_the_plain_mean_predicts_as_linear_algebra_on_the_whole_covariance_does():
    """Best linear prediction of the full mean from one number, by the items' full covariance."""
    rng = np.random.default_rng(0)
    view, responses = linear_view(rng), some_answers(rng, models=4)
    loads = np.vstack([view.first, view.loadings])
    covariance = PLAIN_SD**2 * loads.T @ loads
    found = from_plain_means(view, responses)
    for row, answers in enumerate(responses):
        asked = np.isfinite(answers) / np.isfinite(answers).sum()
        every = np.full(30, 1.0 / 30)
        # An answer's noise is its own, so the model's uneven noise enters by the mean of those asked.
        noise = np.mean(view.noise[np.isfinite(answers)]) * np.eye(30)
        whole = covariance + noise
        slope = (every @ whole @ asked) / (asked @ whole @ asked)
        expected = view.second.mean() + slope * (np.nanmean(answers) - view.second @ asked)
        assert found[row] == pytest.approx(expected)


@quick
@given(st.integers(0, 10_000))
def test_plain_means_weigh_all_answers_alike(seed):
    """The same shift of any one answer moves the estimate alike: no item is trusted more."""
    rng = np.random.default_rng(seed)
    view, responses = linear_view(rng), some_answers(rng, models=1, share=0.5)
    asked = np.flatnonzero(np.isfinite(responses[0]))
    if len(asked) < 2:
        return
    moved = []
    for item in asked:
        other = responses.copy()
        other[0, item] += 0.1
        moved.append(from_plain_means(view, other)[0] - from_plain_means(view, responses)[0])
    np.testing.assert_allclose(moved, moved[0])
    assert moved[0] > 0.0
    # The views do not: the negative control.
    shifts = []
    for item in asked:
        other = responses.copy()
        other[0, item] += 0.1
        one, two = (full_scores(latent_posterior(view, y), y)[0][0] for y in (other, responses))
        shifts.append(one - two)
    assert np.ptp(shifts) > 0.1 * abs(np.mean(shifts))


def test_plain_means_end_in_the_full_score_and_start_at_the_average():
    rng = np.random.default_rng(1)
    view = linear_view(rng)
    whole = rng.uniform(size=(2, 30))
    np.testing.assert_allclose(from_plain_means(view, whole), whole.mean(axis=1), atol=1e-14)
    nothing = from_plain_means(view, np.full((2, 30), np.nan))
    np.testing.assert_allclose(nothing, view.second.mean())


def test_an_item_whose_noise_misleads_moves_the_pooled_estimate_half_as_far():
    """An item said to be nearly free of noise, on which one model errs: half the harm is averaged
    away, and the distance to the plain estimate tells that something is off."""
    rng = np.random.default_rng(2)
    view = linear_view(rng, factors=0)
    view.noise[0] = 1e-6
    theta = 0.5
    answers = (view.second + view.first * theta)[None, :].copy()
    answers[0, 0] -= 0.1
    responses = np.full((1, 30), np.nan)
    responses[:, :10] = answers[:, :10]
    found = pool((view, view), responses)
    true = answers.mean()
    by_view = full_scores(found.latents[0], responses)[0][0]
    plain = from_plain_means(view, responses)[0]
    assert abs(by_view - true) > 1.5 * abs(plain - true)  # offsets keep a part of the harm off
    pooled = (by_view + plain) / 2
    # a third of the items was asked
    level = levels_by_regression(view, responses, np.array([pooled]), 1.0).common
    assert found.score[0] == pytest.approx(pooled - LEVEL_WEIGHT * (pooled - level) * 2 / 3)
    assert found.plain_apart[0] == pytest.approx(by_view - plain)
    assert found.views_apart[0] == 0.0
