"""Means of simulated tests: exact intervals, paired differences, errors by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from lm_eval_adaptive.core.exam import Figures, Row
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.simulate import simulate
from lm_eval_adaptive.core.summary import binomial_interval, summarise
from tests.core.test_simulate import benchmark

PLAIN = Figures(tau=0.5, decided=0.25, correct=3, decided_pairs=4, score_abs_error=4.0, covered=1.0)
ROW = Row(
    matrix="a", metric="x", method="default", items_per_model=10, partition=0, tau=0.5,
    decided=0.5, correct=4, decided_pairs=4, score_abs_error=2.0, covered=1.0, items=10.0,
    cost=40.0, regime="top", shared=PLAIN,
)  # fmt: skip


@pytest.mark.parametrize(("right", "count"), [(0, 7), (3, 7), (7, 7), (95, 100)])
def test_the_interval_ends_where_the_counts_become_too_rare(right, count):
    """Clopper and Pearson: at either end, so few or so many have a chance of 2.5 %."""
    low, high = binomial_interval(right, count)
    if right:
        assert binom.sf(right - 1, count, low) == pytest.approx(0.025)
    else:
        assert low == 0.0
    if right < count:
        assert binom.cdf(right, count, high) == pytest.approx(0.025)
    else:
        assert high == 1.0


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_the_interval_covers_as_often_as_it_says(share):
    """The normal approximation does not: the negative control, .64 of the time at .99 of 40."""
    counts = np.arange(41)
    chance = binom.pmf(counts, 40, share)
    ends = np.array([binomial_interval(int(right), 40) for right in counts])
    assert chance[(ends[:, 0] <= share) & (share <= ends[:, 1])].sum() >= 0.95
    if share == 0.99:
        half = 1.96 * np.sqrt(counts / 40 * (1 - counts / 40) / 40)
        assert chance[np.abs(counts / 40 - share) <= half].sum() < 0.8


def rows():
    """Two matrices, two partitions; differences of tau .1, .3 | .2, .6 by matrix | partition."""
    found = []
    for matrix, partition, tau, shared_tau, error in [
        ("a", 0, 0.6, 0.5, 2.0), ("a", 1, 0.8, 0.5, 1.0),
        ("b", 0, 0.4, 0.2, 3.0), ("b", 1, 0.9, 0.3, 2.0),
    ]:  # fmt: skip
        shared = replace(PLAIN, tau=shared_tau)
        mine = replace(ROW, matrix=matrix, partition=partition, tau=tau, shared=shared)
        found.append(replace(mine, score_abs_error=error, correct=4 - partition))
    return found


def test_differences_are_paired_by_test_then_partition():
    first, _, overall = summarise(rows())
    assert (first.regime, first.matrix, overall.matrix) == ("top", "a", "mean")
    assert first.tau_diff == pytest.approx(0.2)
    assert first.tau_diff_se == pytest.approx(0.1)  # of .1 and .3
    # Means over the matrices: .15 in the first partition, .45 in the second.
    assert overall.tau_diff == pytest.approx(0.3)
    assert overall.tau_diff_se == pytest.approx(0.15)
    assert overall.decided_diff == pytest.approx(0.25)
    assert overall.decided_diff_se == pytest.approx(0.0)
    assert overall.score_abs_error_diff == pytest.approx(-2.0)
    assert overall.score_abs_error_ratio == pytest.approx(0.5)
    assert overall.covered_diff == 0.0
    # 14 of 16 against 12 of 16; without a partition 6 of 8 or 8 of 8 against 6 of 8.
    assert overall.accuracy_diff == pytest.approx(2 / 16)
    assert overall.accuracy_diff_se == pytest.approx(np.sqrt(1 / 2 * (0.125**2 + 0.125**2)))
    assert (overall.accuracy_low, overall.accuracy_high) == binomial_interval(14, 16)


def test_a_difference_of_draws_in_common_is_known_better_than_both():
    """Tests that are hard for both methods alike: what pairing is for."""
    rng = np.random.default_rng(2)
    found = []
    for partition in range(50):
        hard = rng.normal()
        ours, plain = hard + 0.1 + 0.05 * rng.normal(), hard + 0.05 * rng.normal()
        found.append(replace(ROW, partition=partition, tau=ours, shared=replace(PLAIN, tau=plain)))
    (mean, _) = summarise(found)
    assert abs(mean.tau_diff - 0.1) < 3.0 * mean.tau_diff_se
    assert mean.tau_diff_se < 0.02
    assert mean.tau_se > 0.1  # unpaired, the difference would drown


def test_regimes_are_not_mixed():
    mixed = [*rows(), *(replace(row, regime="random", tau=0.0) for row in rows())]
    means = {(each.regime, each.matrix): each for each in summarise(mixed)}
    assert set(means) == {(r, m) for r in ("top", "random") for m in ("a", "b", "mean")}
    assert means["top", "mean"].tau == pytest.approx(0.675)
    assert means["random", "mean"].tau == 0.0


def test_what_cannot_be_said_is_nan():
    (alone, _) = summarise([replace(ROW, shared=None, correct=0, decided_pairs=0)])
    for name in ("tau_se", "tau_diff", "tau_diff_se", "accuracy", "accuracy_diff"):
        assert math.isnan(getattr(alone, name))
    assert math.isnan(alone.score_abs_error_ratio)
    assert (alone.accuracy_low, alone.accuracy_high) == (0.0, 1.0)
    (some, _) = summarise([ROW, replace(ROW, partition=1, shared=None)])
    assert math.isnan(some.tau_diff)  # some tests are not held against all
    # Without the partition that called, nothing is left to compare: no error, the difference stays.
    (lone, _) = summarise([ROW, replace(ROW, partition=1, correct=0, decided_pairs=0)])
    assert lone.accuracy_diff == pytest.approx(1.0 - 6 / 8)
    assert math.isnan(lone.accuracy_diff_se)


def test_every_row_stands_beside_random_shared_items_of_its_own_draw():
    """At fixed lengths those of the method itself, at natural stops as many items as were asked."""
    plan = Plan(
        holdout=3, calibration=8, partitions=2, lengths=(10, 20),
        methods=("robust-2pl", "random-own", "random-shared"), max_items=30,
    )  # fmt: skip
    found = simulate([("toy", "score", benchmark())], plan, jobs=1)
    shared = {
        (row.partition, row.items_per_model): row for row in found if row.method == "random-shared"
    }
    assert len(found) == 2 * 7
    for row in found:
        if row.method == "random-shared":
            assert row.shared is None
            continue
        assert row.shared is not None
        if row.items_per_model is not None:
            mine = shared[row.partition, row.items_per_model]
            for name in ("tau", "decided", "correct", "score_abs_error", "covered"):
                assert getattr(row.shared, name) == getattr(mine, name)
        else:
            count = round(row.items)
            same = replace(plan, lengths=(count,), methods=("random-shared",))
            again = simulate([("toy", "score", benchmark())], same, jobs=1)[row.partition]
            assert row.shared.score_abs_error == again.score_abs_error
            assert (row.shared.tau, row.shared.decided) == (again.tau, again.decided)
