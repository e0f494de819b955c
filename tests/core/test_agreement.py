"""Whether ranked models bear the bank out: known answers, the alarm's false rate and its power."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from lm_eval_adaptive.core.agreement import LEAST_SHARE, agreement
from lm_eval_adaptive.core.holdout import LEAST_OVERDISPERSION
from lm_eval_adaptive.core.levels import levels_by_regression
from lm_eval_adaptive.core.pooled import pool
from lm_eval_adaptive.core.sampler import WeightedDraw
from lm_eval_adaptive.core.views import View
from tests.core.helpers import quick

N = 300
# What a bank whose models are as it says learns from its own held-out models.
CALM = LEAST_OVERDISPERSION


def line_view(rng, n=N):
    """Straight lines whose slopes and heights are known, without factors."""
    return View(
        logistic=False,
        first=rng.gamma(4.0, 0.02, n),
        second=rng.uniform(0.3, 0.7, n),
        item_cov=np.full((3, n), 1e-6),
        loadings=np.zeros((0, n)),
        loading_var=np.zeros((0, n)),
        noise=rng.uniform(0.005, 0.02, n),
    )


def answers(view, theta, rng, slope=None):
    """Scores of all items of models of these abilities; the slopes may be others than the view's."""
    slope = view.first if slope is None else slope
    noise = np.sqrt(view.noise) * rng.standard_normal((len(theta), len(slope)))
    return view.second + np.asarray(theta)[:, None] * slope + noise


def drawn_items(view, count, seed):
    """Items as a run draws them: by worth, here the slope's information, and plainly at random."""
    draw, free = WeightedDraw(seed), np.ones(len(view.first), dtype=bool)
    worth = view.first**2 / (view.first**2 + view.noise)
    for _ in range(count):
        free[draw(worth, free).item] = False
    return np.flatnonzero(~free)


def asked(scores, items):
    found = np.full(scores.shape, np.nan)
    found[:, items] = scores[:, items]
    return found


def run_alarms(rng, slope_of, lengths=(10, 15, 20, 30, 40, 60, 80)):
    """Whether the alarm rings at any look of one run of four models."""
    view = line_view(rng)
    scores = answers(view, 1.5 * rng.normal(size=4), rng, slope_of(view, rng))
    order = drawn_items(view, max(lengths), int(rng.integers(10_000)))
    order = rng.permutation(order)
    return any(agreement(view, asked(scores, order[:n]), CALM).alarm for n in lengths)


def test_at_most_one_run_in_twenty_rings_falsely_over_all_its_looks():
    """400 runs of models as the bank says, seven looks each."""
    rng = np.random.default_rng(0)
    rings = sum(run_alarms(rng, lambda view, _: view.first) for _ in range(400))
    assert rings <= binom.ppf(0.95, 400, 0.05)


@pytest.mark.parametrize(
    "other",
    [
        lambda view, rng: rng.permutation(view.first),
        lambda view, _: np.full(N, view.first.mean()),
    ],
    ids=["permuted", "all equal"],
)
def test_the_alarm_rings_where_the_slopes_are_others_than_the_banks(other):
    """The negative control of the test before: the same runs with other slopes."""
    rng = np.random.default_rng(1)
    rings = sum(run_alarms(rng, other) for _ in range(60))
    assert rings > 25 > binom.ppf(0.999999, 60, 0.05)


def test_the_share_tells_how_much_of_the_slopes_is_true():
    """Slopes half of whose differences are the bank's: between those that are and that are not."""
    rng = np.random.default_rng(2)
    shares = {}
    for kept in (0.0, 0.5, 1.0):
        found = []
        for _ in range(20):
            view = line_view(rng)
            true = view.first.mean() + kept * (view.first - view.first.mean())
            scores = answers(view, [-3.0, -1.0, 1.0, 3.0], rng, true)
            found.append(agreement(view, scores).share)
        shares[kept] = float(np.mean(found))
    assert shares[0.0] == pytest.approx(LEAST_SHARE, abs=0.05)
    assert shares[0.5] == pytest.approx(0.5, abs=0.1)
    assert shares[1.0] > 0.9


def test_a_ring_draws_the_estimate_to_the_plain_means():
    """Where slopes are permuted the pooled order is nearer to that by plain means, and the
    negative control, slopes as the bank says, keeps to the bank's."""
    rng = np.random.default_rng(3)
    view = line_view(rng)
    theta = [-3.0, -1.0, 1.0, 3.0]
    items = drawn_items(view, 60, 4)
    for true, alarm in ((rng.permutation(view.first), True), (view.first, False)):
        responses = asked(answers(view, theta, rng, true), items)
        found = pool((view, view), responses, CALM)
        assert found.agreement.alarm is alarm
        slopes = found.latents[1].view.first
        spread = slopes.std() / view.first.std()
        assert spread < 0.5 if alarm else spread == pytest.approx(1.0)


@quick
@given(st.integers(0, 10_000))
def test_models_and_items_may_come_in_any_order(seed):
    rng = np.random.default_rng(seed)
    view = line_view(rng, 40)
    responses = asked(answers(view, rng.normal(size=3), rng), np.arange(15))
    rows, columns = rng.permutation(3), rng.permutation(40)
    one = agreement(view, responses)
    other = agreement(view.take(columns), responses[rows][:, columns])
    assert other.p_value == pytest.approx(one.p_value, rel=1e-6)
    assert other.share == pytest.approx(one.share, abs=1e-9)


@pytest.mark.parametrize("case", ["one model", "few items", "equal slopes"])
def test_nothing_is_told_where_nothing_can_be(case):
    rng = np.random.default_rng(5)
    view = line_view(rng, 40)
    scores = answers(view, rng.normal(size=3), rng)
    responses = asked(scores, np.arange(15))
    if case == "one model":
        responses = responses[:1]
    elif case == "few items":
        responses[:, 9:] = np.nan
    else:
        view = View(**{**vars(view), "first": np.full(40, 0.1)})
    assert agreement(view, responses) is None


def test_the_level_of_far_models_is_found_by_regression_where_no_prior_reaches():
    """Models ten standard deviations below all that calibrated: their level within .02."""
    rng = np.random.default_rng(6)
    view = line_view(rng)
    scores = answers(view, [-10.0, -10.0, -10.0, -10.0], rng)
    items = drawn_items(view, 40, 7)
    otherwise = np.full(4, 0.5)
    found = levels_by_regression(view, np.clip(asked(scores, items), -2, 2), otherwise, 1.0)
    truth = max(float(scores.mean()), 0.0)
    assert found.common == pytest.approx(truth, abs=0.02)
    nothing = levels_by_regression(view, np.full((4, N), np.nan), otherwise, 1.0)
    assert (nothing.common, nothing.variance, list(nothing.own)) == (0.5, 1.0, [0.5] * 4)
