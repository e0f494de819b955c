"""Simulated tests: the protocol by hand, baselines, honest figures, the same whoever computes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, kendalltau
from scipy.stats import t as student

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.exam import Called, Exam, greedy_composite
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.plan import METHODS, Plan
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.simulate import complete_part, simulate, simulate_partition, split
from lm_eval_adaptive.core.summary import summarise
from lm_eval_adaptive.errors import UsageError
from tests.core.helpers import FactorBenchmark, matrix_of

SMALL = Plan(holdout=3, calibration=8, partitions=2, lengths=(10, 20), methods=("random-shared",))


def benchmark(models=14, items=60, seed=1):
    rng = np.random.default_rng(seed)
    return matrix_of(FactorBenchmark(rng, items).draw(rng.normal(size=models), rng))


def rows_of(matrix, plan, **settings):
    return simulate([("toy", "score", matrix)], plan, jobs=1, **settings)


# --- who is ranked, what is true


def test_models_that_miss_over_three_percent_leave_and_then_items_that_others_miss():
    scores = np.random.default_rng(0).uniform(size=(4, 100))
    scores[1, :4] = np.nan  # 4 %: left out
    scores[3, 10:13] = np.nan  # 3 %: kept, but its items leave
    matrix = matrix_of(scores)
    shuffled = matrix.select_models(["m3", "m1", "m0", "m2"])
    part = complete_part(shuffled)
    assert part.models == ("m0", "m2", "m3")
    assert len(part.items) == 97
    assert "i000" in part.items
    assert "i011" not in part.items
    assert np.isfinite(part.scores).all()


def test_a_partition_ranks_the_first_models_of_its_own_permutation():
    matrix = complete_part(benchmark(12))
    plan = Plan(holdout=4, calibration=5, seed=7)
    for partition in (0, 3):
        order = np.random.default_rng(7 + partition).permutation(12)
        calibrating, ranked = split(matrix, plan, partition)
        names = sorted(matrix.models)
        assert list(ranked.models) == [names[row] for row in order[:4]]
        assert list(calibrating.models) == [names[row] for row in order[4:9]]


def test_named_models_are_ranked_against_all_others_or_those_named():
    matrix = benchmark(8)
    calibrating, ranked = split(matrix, Plan(ranked=("m5", "m1")), 0)
    assert (set(ranked.models), len(calibrating.models)) == ({"m1", "m5"}, 6)
    plan = Plan(ranked=("m5", "m1"), calibrating=("m0", "m2", "m3"))
    calibrating, ranked = split(matrix, plan, 0)
    assert set(calibrating.models) == {"m0", "m2", "m3"}
    rows = rows_of(matrix, replace(plan, methods=("random-own",), lengths=(10,)))
    assert len(rows) == 1  # one partition, there being nothing to permute


def test_too_few_models_are_refused():
    with pytest.raises(UsageError, match=r"6 complete models are too few to rank 4 .* --holdout"):
        split(benchmark(6), Plan(holdout=4), 0)
    for wrong in ({"holdout": 1}, {"calibration": 2}, {"partitions": 0}):
        with pytest.raises(UsageError, match="simulate needs --holdout of at least 2"):
            Plan(**wrong)
    with pytest.raises(UsageError, match="unknown best; known are default,"):
        Plan(methods=("best",))


# --- counts, by hand


def exam(truth, matrix_scale=(0.0, 1.0), higher_is_better=True):
    rng = np.random.default_rng(3)
    lo, hi = matrix_scale
    scores = lo + (hi - lo) * rng.uniform(size=(4, 12))
    bank = calibrate(
        matrix_of(scores), task="t", metric="m", score_range=matrix_scale,
        higher_is_better=higher_is_better, response_model="paper-1pl",
    )  # fmt: skip
    truth = np.asarray(truth, dtype=float)
    return Exam(bank, np.zeros((len(truth), 12)), truth, np.ones(len(truth)), SMALL, 5)


def called(level, p, score=None, half=0.1):
    level = np.asarray(level, dtype=float)
    score = level if score is None else np.asarray(score, dtype=float)
    return Called(level, np.asarray(p), score, np.full(len(level), half), 10.0, 30.0)


def test_figures_of_one_test_by_hand():
    """Truth 0.8 > 0.6 > 0.4. The first pair is called rightly at 0.99, the second wrongly (the last
    model is held to be better than the middle one at 0.98), the third is left open at 0.97."""
    p = np.array([[0.5, 0.99, 0.97], [0.01, 0.5, 0.02], [0.03, 0.98, 0.5]])
    row = exam([0.8, 0.6, 0.4]).row(
        "toy", "m", "x", 10, called([0.9, 0.5, 0.55], p, [0.82, 0.5, 0.52], 0.11)
    )
    assert (row.decided_pairs, row.correct) == (2, 1)
    assert row.decided == pytest.approx(2 / 3)
    # Two of three pairs in the right order: tau = (2 - 1) / 3.
    assert row.tau == pytest.approx(1 / 3)
    # Errors 0.02, 0.1, 0.12 of a range of 1, in percent; two of three within 0.11.
    assert row.score_abs_error == pytest.approx(8.0)
    assert row.covered == pytest.approx(2 / 3)
    assert (row.items, row.cost, row.partition, row.items_per_model) == (10.0, 30.0, 5, 10)


def test_a_metric_where_less_is_better_and_a_range_of_its_own():
    """Raw truth 20 and 40 of 0 to 200, less is better: scores 0.9 and 0.8, the first is best."""
    p = np.array([[0.5, 0.99], [0.01, 0.5]])
    row = exam([20.0, 40.0], (0.0, 200.0), higher_is_better=False).row(
        "toy", "ter", "x", 10, called([0.85, 0.8], p)
    )
    assert (row.tau, row.correct, row.decided_pairs) == (1.0, 1, 1)
    assert row.score_abs_error == pytest.approx(2.5)  # 0.05 and 0, of 1


@pytest.mark.parametrize("first", [0.99, 0.01])
def test_models_equal_in_truth_cannot_be_called_rightly(first):
    p = np.array([[0.5, first], [1.0 - first, 0.5]])
    row = exam([0.5, 0.5]).row("toy", "m", "x", 10, called([0.6, 0.4], p))
    assert (row.decided_pairs, row.correct, row.tau) == (1, 0, 0.0)


def test_means_of_partitions_and_matrices_and_their_errors_by_hand():
    """Two matrices, two partitions: means of matrices within each partition, then over them."""
    (example, *_) = rows_of(benchmark(), SMALL)
    cells = {("a", 0): 0.2, ("a", 1): 0.4, ("b", 0): 0.6, ("b", 1): 1.0}
    rows = [
        replace(
            example, matrix=matrix, partition=partition, tau=tau, items_per_model=10,
            decided_pairs=4, correct=3 + partition,
        )
        for (matrix, partition), tau in cells.items()
    ]  # fmt: skip
    first, second, overall = summarise(rows)
    assert (first.matrix, second.matrix, overall.matrix) == ("a", "b", "mean")
    assert first.tau == pytest.approx(0.3)
    # sd of 0.2 and 0.4 is 0.1414, over sqrt(2).
    assert first.tau_se == pytest.approx(0.1)
    assert overall.tau == pytest.approx(0.55)
    assert overall.tau_se == pytest.approx(0.15)  # of 0.4 and 0.7
    assert overall.tests == 4
    assert (overall.decided_pairs, overall.correct) == (16, 14)
    assert overall.accuracy == pytest.approx(14 / 16)


# --- baselines


def test_random_shared_is_the_mean_over_items_all_are_asked_with_paired_errors():
    matrix = benchmark()
    row = next(each for each in rows_of(matrix, SMALL) if each.partition == 1)
    calibrating, ranked = split(complete_part(matrix), SMALL, 1)
    ranked = ranked.select_models(sorted(ranked.models))
    bank = calibrate(calibrating, task="t", metric="m")
    scores = bank.info.scale.to_score(ranked.scores)
    order = np.random.default_rng([1, 77]).permutation(60)
    sample = scores[:, order[:10]]
    left = 1 - 10 / 60  # of a sample without replacement
    assert row.tau == pytest.approx(kendalltau(sample.mean(axis=1), scores.mean(axis=1)).statistic)
    off = np.abs(sample.mean(axis=1) - scores.mean(axis=1))
    assert row.score_abs_error == pytest.approx(100 * off.mean())
    half = student.ppf(0.975, 9) * np.sqrt(sample.var(axis=1, ddof=1) / 10 * left)
    assert row.covered == pytest.approx((off <= half).mean())
    decided = 0
    for a in range(3):
        for b in range(a):
            d = sample[a] - sample[b]
            decided += abs(d.mean()) / np.sqrt(d.var(ddof=1) / 10 * left) > 1.959964
    assert row.decided_pairs == decided
    assert row.cost == 30.0


def test_asked_everything_random_items_are_exact():
    plan = replace(SMALL, lengths=(60,), methods=("random-own", "random-shared"))
    for row in rows_of(benchmark(), plan):
        assert row.tau == 1.0
        assert row.score_abs_error == pytest.approx(0.0, abs=1e-9)
        assert (row.decided, row.correct) == (1.0, 3)


def test_greedy_takes_items_whose_mean_follows_the_full_mean():
    # Item 2 is the full mean plus a constant; 0 and 1 deviate from it by +-0.1 in turn.
    target = np.array([0.2, 0.4, 0.5, 0.7])
    wiggle = np.array([0.1, -0.1, -0.1, 0.1])
    scores = np.stack([target + wiggle, target - wiggle, target + 0.05], axis=1)
    assert greedy_composite(scores, 1) == [2]
    assert set(greedy_composite(scores, 3)) == {0, 1, 2}
    rng = np.random.default_rng(4)
    scores = rng.uniform(size=(6, 9))
    first, second = greedy_composite(scores, 2)
    centred = scores - scores.mean(axis=0)
    full = scores.mean(axis=1) - scores.mean()
    losses = ((centred - full[:, None]) ** 2).sum(axis=0)
    assert first == int(np.argmin(losses))
    pairs = [((centred[:, first] + centred[:, j]) / 2 - full) for j in range(9)]
    order = np.argsort([(each**2).sum() if j != first else np.inf for j, each in enumerate(pairs)])
    assert second == int(order[0])


def test_static_asks_items_that_go_with_the_rest_and_beats_random_where_few_do():
    """Five items in sixty tell models apart; the others are noise."""
    rng = np.random.default_rng(5)
    theta = np.linspace(0.2, 0.8, 14)
    scores = np.clip(0.5 + 0.2 * rng.standard_normal((14, 60)), 0.0, 1.0)
    scores[:, ::12] = np.clip(theta[:, None] + 0.02 * rng.standard_normal((14, 5)), 0.0, 1.0)
    plan = replace(SMALL, partitions=6, lengths=(5,), methods=("static", "greedy", "random-shared"))
    means = {each.method: each for each in summarise(rows_of(matrix_of(scores), plan))}
    assert means["static"].tau > means["random-shared"].tau + 0.1


# --- the whole procedure


def test_every_method_reports_every_length_and_natural_stops_in_order():
    plan = replace(SMALL, methods=METHODS, lengths=(20, 10), partitions=1)
    rows = rows_of(benchmark(), plan)
    adaptive = ("default", "robust-2pl", "paper-1pl", "bernoulli-2pl")
    expected = []
    for method in METHODS:
        expected += [(method, 10), (method, 20)]
        expected += [(method, None)] if method in adaptive else []
    assert [(row.method, row.items_per_model) for row in rows] == expected
    for row in rows:
        if row.items_per_model is not None:
            assert row.items == row.items_per_model
            assert row.cost == 3 * row.items_per_model
        else:
            assert 10 <= row.items <= 60
        assert 0 <= row.correct <= row.decided_pairs <= 3
        assert not math.isnan(row.tau)


@pytest.mark.parametrize("method", ["robust-2pl", "paper-1pl"])
def test_any_lengths_are_met_exactly_whatever_the_rounds(method):
    plan = replace(SMALL, lengths=(7, 15, 16), methods=(method,), natural=False, partitions=1)
    rows = rows_of(benchmark(), plan)
    assert [(row.items_per_model, row.items) for row in rows] == [(7, 7.0), (15, 15.0), (16, 16.0)]


def test_lengths_beyond_the_items_are_left_out():
    plan = replace(SMALL, lengths=(10, 61), methods=("robust-2pl", "static"), natural=False)
    assert {row.items_per_model for row in rows_of(benchmark(), plan)} == {10}


def test_unequal_costs_show_in_the_cost_and_in_who_is_asked():
    matrix = benchmark(14, 60)
    costs = {name: 8.0 if number % 2 else 1.0 for number, name in enumerate(matrix.models)}
    plan = replace(SMALL, costs=costs, methods=("robust-2pl", "random-own"), partitions=1)
    rows = rows_of(matrix, plan)
    _, ranked = split(complete_part(matrix), plan, 0)
    each = [costs[name] for name in ranked.models]
    for row in rows:
        if row.items_per_model is not None:
            assert row.cost == pytest.approx(row.items_per_model * sum(each))
    same = rows_of(matrix, replace(plan, costs={}))
    assert [row.tau for row in rows if row.method == "random-own"] == [
        row.tau for row in same if row.method == "random-own"
    ]


@pytest.mark.parametrize("model", ["robust-2pl", "paper-1pl", "bernoulli-2pl"])
def test_nothing_of_the_ranked_models_is_known_but_the_answers_asked(model):
    """Scores on items that were not asked may be anything: what is said stays as it is."""
    calibrating, ranked = split(complete_part(benchmark()), SMALL, 0)
    bank = calibrate(calibrating, task="t", metric="m", response_model=model)
    scores = np.clip(bank.info.scale.to_score(ranked.scores), 0.0, 1.0)
    procedure = Procedure.for_bank(
        bank, np.ones(3), ProcedureConfig(items_per_model=10, round_size=1)
    )
    state, _ = procedure.run(lambda row, items: scores[row, list(items)].tolist())
    asked = np.isfinite(state.responses)
    plan = replace(SMALL, natural=False, round_size=1)
    said = []
    for mine in (scores, np.where(asked, scores, 1.0 - scores)):
        tested = Exam(bank, mine, mine.mean(axis=1), np.ones(3), plan, 0)
        ((length, found),) = tested.adaptive([10])
        assert length == 10
        said.append(found)
    for name in ("level", "p_better", "score", "half_interval"):
        np.testing.assert_array_equal(getattr(said[0], name), getattr(said[1], name))


def test_more_items_give_better_rankings_and_intervals_that_cover():
    """A known world: the default beats own random items, and its intervals hold the truth."""
    matrix = benchmark(24, 150, seed=2)
    plan = Plan(
        holdout=4, calibration=16, partitions=10, lengths=(10, 40),
        methods=("robust-2pl", "random-own"), natural=True,
    )  # fmt: skip
    rows = rows_of(matrix, plan)
    means = {
        (each.method, each.items_per_model): each
        for each in summarise(rows)
        if each.matrix == "mean"
    }
    best = means["robust-2pl", 40]
    # Items are drawn: ten partitions leave an order uncertain by the error that is told with it.
    assert best.tau >= means["robust-2pl", 10].tau - 2.0 * best.tau_se
    for length in (10, 40):
        own, ours = means["random-own", length], means["robust-2pl", length]
        # A part of the items is drawn plainly, more of them in longer tests.
        assert ours.score_abs_error < (0.7 if length == 10 else 0.8) * own.score_abs_error
        assert ours.decided > own.decided
        assert ours.tau >= own.tau - 0.05
    natural = means["robust-2pl", None]
    assert natural.decided_pairs > 15
    wrong = natural.decided_pairs - natural.correct
    assert wrong <= binom.ppf(0.995, natural.decided_pairs, 0.05)
    for length in (10, 40):
        inside = round(24 * means["robust-2pl", length].covered)
        assert inside >= binom.ppf(0.005, 24, 0.95)


def test_the_order_of_models_and_items_in_the_matrix_changes_nothing():
    matrix = benchmark(14, 60)
    plan = replace(SMALL, methods=("static", "robust-2pl"), natural=False)
    moved = matrix.select_models(list(reversed(matrix.models)))
    assert rows_of(moved, plan) == rows_of(matrix, plan)


def test_parallel_processes_give_the_same_rows_in_the_same_order():
    matrices = [("b", "score", benchmark(seed=1)), ("a", "score", benchmark(seed=2))]
    plan = replace(SMALL, methods=("static", "robust-2pl"))
    done = []
    serial = simulate(matrices, plan, jobs=1, progress=lambda: done.append(1))
    assert len(done) == 4
    assert simulate(matrices, plan, jobs=2, progress=lambda: done.append(1)) == serial
    assert len(done) == 8
    assert list(dict.fromkeys((row.matrix, row.partition) for row in serial)) == [
        ("b", 0), ("b", 1), ("a", 0), ("a", 1),
    ]  # fmt: skip
    alone = simulate_partition(complete_part(matrices[1][2]), plan, 1, "a", "score")
    assert alone == [row for row in serial if (row.matrix, row.partition) == ("a", 1)]


def test_a_matrix_with_missing_cells_is_simulated_on_its_complete_part():
    matrix = benchmark(14, 60)
    holes = np.array(matrix.scores)
    holes[0, 5] = np.nan
    rows = rows_of(ScoreMatrix(matrix.models, matrix.items, holes, None), SMALL)
    without = matrix.select_items(np.arange(60) != 5)
    assert rows == rows_of(without, SMALL)
