"""Models unlike the bank's, from known worlds: beyond its range, and with other slopes than its."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from lm_eval_adaptive.core import pooled, views, widening
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import better_by
from lm_eval_adaptive.core.rules import ProcedureConfig
from tests.core.helpers import matrix_of, standard_abilities

N = 150


class Lines:
    """Items whose scores are straight lines in ability, with noise and uneven slopes."""

    def __init__(self, rng):
        self.slope = rng.gamma(1.5, 0.03, N)
        self.height = rng.uniform(0.35, 0.65, N)
        self.noise = rng.uniform(0.05, 0.12, N)

    def draw(self, theta, rng, slope=None):
        slope = self.slope if slope is None else slope
        scores = self.height + np.asarray(theta)[:, None] * slope
        return np.clip(scores + self.noise * rng.standard_normal(scores.shape), 0.0, 1.0)

    def bank(self, rng):
        scores = self.draw(standard_abilities(16), rng)
        return calibrate(
            matrix_of(scores),
            task="t",
            metric="m",
            score_range=(0.0, 1.0),
            response_model="robust-2pl",
        )


def estimated(bank, scores, items, **rules):
    config = ProcedureConfig(items_per_model=items, round_size=None, **rules)
    procedure = Procedure.for_bank(bank, np.ones(len(scores)), config)
    state, _ = procedure.run(lambda row, asked: scores[row, list(asked)].tolist())
    return procedure.estimate(state)


def calls(found, scores, level=0.975):
    """Pairs that are called at a two-sided 95 %, and how many of them wrongly."""
    better, truth = better_by(found), scores.mean(axis=1)
    called = wrong = 0
    for a, b in combinations(range(len(scores)), 2):
        p = better[a, b]
        if max(p, 1.0 - p) > level:
            called += 1
            wrong += (p > 0.5) != (truth[a] > truth[b])
    return called, wrong


@pytest.mark.parametrize("middle", [0.0, 4.0, -4.0])
def test_intervals_hold_within_the_banks_range_and_four_deviations_beyond(middle, monkeypatch):
    """5 banks, 8 new models each, 20 items, from the bank's own lines. The negative control draws
    far models to the bank's mean by a prior, as if distance did not count, in errors neither."""
    rng = np.random.default_rng(int(20 + middle))
    inside = pulled = 0
    for _ in range(5):
        world = Lines(rng)
        scores = world.draw(middle + rng.normal(scale=0.7, size=8), rng)
        bank = world.bank(rng)
        found = estimated(bank, scores, 20)
        inside += holds(found, scores)
        if middle:
            assert (found.outside * np.sign(middle) >= 0.0).all()
            with monkeypatch.context() as patch:
                patch.setattr(views, "THETA_SD", 0.7)
                patch.setattr(views, "OFFSET_COMMON", (1e-6, 1e-6))
                patch.setattr(pooled, "LEVEL_WEIGHT", 0.0)
                patch.setattr(pooled, "PLAIN_SD", 0.2)
                patch.setattr(pooled, "OFFSET_OWN", (1e-6, 1e-6))
                patch.setattr(widening, "OWN", 0.0)
                pulled += holds(estimated(bank, scores, 20), scores)
    least = binom.ppf(0.005, 40, 0.95)
    assert inside >= least
    assert pulled < least or not middle


def holds(found, scores):
    off = np.abs(found.score - scores.mean(axis=1))
    return int((off <= found.score_half_interval).sum())


@pytest.mark.parametrize("other", ["permuted", "all equal"])
def test_few_calls_are_wrong_where_the_slopes_are_not_the_banks(other):
    """6 banks, 5 models each, 40 items: the alarm rings and called pairs hold. In the negative
    control, where slopes are the bank's, it does not ring."""
    rng = np.random.default_rng(40)
    called = wrong = rings = falsely = 0
    for _ in range(6):
        world = Lines(rng)
        slope = rng.permutation(world.slope)
        if other == "all equal":
            slope = np.full(N, world.slope.mean())
        theta = rng.normal(scale=1.5, size=5)
        bank = world.bank(rng)
        scores = world.draw(theta, rng, slope)
        found = estimated(bank, scores, 40)
        more, off = calls(found, scores)
        called, wrong, rings = called + more, wrong + off, rings + found.agreement.alarm
        falsely += estimated(bank, world.draw(theta, rng), 40).agreement.alarm
    assert called > 30
    assert wrong <= binom.ppf(0.995, called, 0.025)
    assert rings >= 4
    assert falsely <= 1


@pytest.mark.slow
def test_drawn_items_guard_where_the_items_of_most_worth_err():
    """10 banks, 8 models each, 30 items. On a fifth of the items, those of most worth to the bank, each
    model stands higher or lower by something of its own that no calibration model had.

    That is more than the bank's errors allow for, so that intervals hold less often than they say;
    but the drawn items, of which some are of little worth, keep two thirds of them, and called pairs
    hold. The negative control takes the items of most worth: the same world, the same inference.
    """
    rng = np.random.default_rng(5)
    inside = {"draw": 0, "fisher": 0}
    called = wrong = 0
    for _ in range(10):
        world = Lines(rng)
        bank = world.bank(rng)
        scores = world.draw(rng.normal(scale=0.7, size=8), rng)
        worth = world.slope**2 / world.noise**2
        scores[:, np.argsort(-worth)[: N // 5]] += 0.25 * rng.standard_normal((8, 1))
        scores = np.clip(scores, 0.0, 1.0)
        for sampler in inside:
            found = estimated(bank, scores, 30, sampler=sampler)
            inside[sampler] += holds(found, scores)
            if sampler == "draw":
                more, off = calls(found, scores)
                called, wrong = called + more, wrong + off
    assert inside["fisher"] < 2 / 3 * 80 < inside["draw"]
    assert called > 30
    assert wrong <= binom.ppf(0.995, called, 0.025)
