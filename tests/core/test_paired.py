"""Ranking without a bank: orders, and errors that hold however often one looks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.paired import (
    STRATA,
    PairedPosterior,
    log_evidence,
    mean_interval,
    spread_order,
)
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import DecisionRule, better_by
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.state import Round
from tests.core.helpers import play, quick

# --- what is left when all is asked


def test_all_documents_asked_leave_an_error_and_no_certainty():
    rng = np.random.default_rng(3)
    n = 60
    scores = rng.uniform(size=(2, n)) * 0.4
    scores[1] += 0.6
    found = PairedPosterior(spread_order(None, n, rng)).estimate(scores)
    assert (found.score_se > 1e-4).all()
    assert (found.score_half_interval > 1e-4).all()
    assert 0.0 < better_by(found)[0, 1] < better_by(found)[1, 0] < 1.0


# --- orders


@given(n=st.integers(1, 60), seed=st.integers(0, 5), plain=st.booleans())
@quick
def test_an_order_holds_every_document_once_and_its_blocks_follow_each_other(n, seed, plain):
    values = None if plain else [float(k % 7) for k in range(n)]
    order = spread_order(values, n, np.random.default_rng(seed))
    assert sorted(order.items.tolist()) == list(range(n))
    assert set(np.diff(order.blocks)) <= {0, 1}
    assert order.blocks[0] == 0


def test_each_block_holds_one_document_of_every_stratum():
    length = np.arange(103.0)[::-1]
    order = spread_order(list(length), 103, np.random.default_rng(1))
    first = 103 % STRATA
    assert np.bincount(order.blocks).tolist() == [1] * first + [STRATA] * 20
    rest = np.sort(length[order.items[first:]])
    strata = {value: place * STRATA // 100 for place, value in enumerate(rest)}
    for block in range(first, first + 20):
        held = [strata[value] for value in length[order.items[order.blocks == block]]]
        assert sorted(held) == list(range(STRATA))


def test_texts_are_spread_as_well_and_the_seed_alone_decides():
    kinds = ["news"] * 60 + ["speech"] * 40
    one = spread_order(kinds, 100, np.random.default_rng(3))
    two = spread_order(kinds, 100, np.random.default_rng(3))
    other = spread_order(kinds, 100, np.random.default_rng(4))
    np.testing.assert_array_equal(one.items, two.items)
    assert (one.items != other.items).any()
    for block in range(20):
        held = [kinds[item] for item in one.items[one.blocks == block]]
        assert held.count("news") == 3


# --- evidence: known answers, each with a control that fails


def equal_models(kind, n, rng):
    """Differences of mean 0 over all documents, tied to the strata where the kind says so."""
    if kind == "normal":
        found = rng.normal(0.0, 0.2, n)
    elif kind == "rare":  # nearly always a little better, rarely much worse
        found = np.where(rng.random(n) < 0.08, -0.5, 0.5 * 0.08 / 0.92)
    elif kind == "binary":
        found = rng.choice([-1.0, 0.0, 1.0], p=[0.15, 0.7, 0.15], size=n)
    else:  # long documents favour one model, short ones the other
        found = np.linspace(-0.3, 0.3, n) + rng.normal(0.0, 0.1, n)
    found = np.clip(found - found.mean(), -1.0, 1.0)
    found = found - found.mean()
    return found / max(1.0, np.abs(found).max())


def looked_at_always(kind, alpha, n=200, runs=400, least=10):
    """Shares of runs in which equal models are told apart: by wealth, and by z at each look."""
    by_wealth = by_z = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 9])
        d = equal_models(kind, n, rng)
        order = spread_order(list(range(n)), n, rng)
        sizes = np.bincount(order.blocks)
        x = d[order.items]
        # The greatest wealth so far holds every earlier look.
        up = log_evidence(x[: n // 2], order.blocks[: n // 2], sizes, 0.0, -1.0, n)
        down = log_evidence(-x[: n // 2], order.blocks[: n // 2], sizes, 0.0, -1.0, n)
        by_wealth += max(up, down) >= np.log(2.0 / alpha)
        k = np.arange(least, n // 2 + 1)
        means = np.cumsum(x)[k - 1] / k
        sd = np.sqrt(np.maximum(np.cumsum(x**2)[k - 1] / k - means**2, 1e-12) * k / (k - 1))
        left = np.sqrt(1.0 - k / n)
        by_z += bool((np.abs(means) > 1.959964 * sd / np.sqrt(k) * left).any())
    return by_wealth / runs, by_z / runs


@pytest.mark.parametrize("kind", ["normal", "rare", "binary", "strata"])
def test_equal_models_are_rarely_told_apart_however_often_one_looks(kind):
    wealth, z = looked_at_always(kind, alpha=0.05)
    assert wealth <= 0.05
    if kind != "strata":  # there, spreading alone makes every mean nearly exact
        assert z > 0.10, "the control: a 95 % interval of fixed length, looked at after each answer"


def test_a_true_difference_is_found_in_time():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = np.clip(rng.normal(0.15, 0.25, 400), -1.0, 1.0)
        order = spread_order(None, 400, rng)
        sizes = np.bincount(order.blocks)
        x = d[order.items]
        found.append(
            next(
                k
                for k in range(1, 401)
                if log_evidence(x[:k], order.blocks[:k], sizes, 0.0, -1.0, 400) > np.log(40.0)
            )
        )
    assert np.median(found) < 90


def test_evidence_is_the_wealth_of_all_bets_worked_by_hand():
    x, blocks, sizes = np.array([0.5, -0.2]), np.array([0, 1]), np.array([1, 1, 1, 1])
    from lm_eval_adaptive.core.paired import BETS, STAKES

    # Claim 0 over 4 documents: what is left must have mean 0, then (0 - 0.5) / 3.
    left = (0.0 - 0.5) / 3.0
    one = 1.0 + BETS * 0.5
    two = one * (1.0 + BETS / (left + 1.0) * (-0.2 - left))
    assert STAKES.sum() == pytest.approx(1.0)
    expected = np.log(max(STAKES @ one, STAKES @ two))
    assert log_evidence(x, blocks, sizes, 0.0, -1.0, 4) == pytest.approx(expected)


def test_documents_of_a_block_that_is_not_whole_prove_nothing_yet():
    blocks, sizes = np.array([0, 0, 1]), np.array([2, 2, 2])
    x = np.array([0.3, 0.3, 0.9])
    whole = log_evidence(x[:2], blocks[:2], sizes, 0.0, -1.0, 6)
    assert log_evidence(x, blocks, sizes, 0.0, -1.0, 6) == whole > 0.0
    assert log_evidence(x[:1], blocks[:1], sizes, 0.0, -1.0, 6) == 0.0


def test_a_claim_that_the_documents_left_cannot_meet_is_refuted_for_certain():
    x = np.full(9, 0.9)
    assert log_evidence(x, np.arange(9), np.ones(10, dtype=int), 0.1, 0.0, 10) == np.inf


def test_intervals_of_scores_cover_at_every_look_and_end_in_the_truth():
    missed, runs, n = 0, 150, 120
    for seed in range(runs):
        rng = np.random.default_rng([seed, 4])
        scores = rng.beta(0.6, 1.4, n)
        order = spread_order(list(scores), n, rng)
        sizes = np.bincount(order.blocks)
        truth, x = scores.mean(), scores[order.items]
        looks = [
            mean_interval(x[:k], order.blocks[:k], sizes, n, 0.9) for k in range(10, n + 1, 10)
        ]
        missed += not all(low - 1e-5 <= truth <= high + 1e-5 for low, high in looks)
        width = [high - low for low, high in looks]
        assert all(one >= other - 1e-9 for one, other in pairwise(width))
        assert width[-1] < 1e-5
    assert missed / runs <= 0.1


# --- in the loop


def procedure_of(scores, rule=None, seed=0, **config):
    m, n = scores.shape
    order = spread_order(None, n, np.random.default_rng(seed))
    rules = ProcedureConfig(rule=rule or DecisionRule(), **config)
    return Procedure.for_order(order, [1.0] * m, rules)


def models(gaps, n=400, seed=1):
    rng = np.random.default_rng(seed)
    easy = rng.uniform(0.2, 0.8, n)
    return np.clip(easy + np.array(gaps)[:, None] + rng.normal(0, 0.1, (len(gaps), n)), 0, 1)


def test_all_models_are_asked_the_same_documents_in_the_order_drawn():
    scores = models([0.0, 0.02, 0.3])
    procedure = procedure_of(scores, max_items=60)
    state, _ = play(procedure, scores)
    asked = np.isfinite(state.responses)
    for row in asked:
        prefix = procedure.inference.order.items[: row.sum()]
        assert set(np.flatnonzero(row)) == set(prefix)
    assert asked[2].sum() < asked[0].sum() == asked[1].sum() == 60


def test_models_apart_are_decided_in_the_right_order():
    scores = models([-0.2, 0.0, 0.2])
    procedure = procedure_of(scores, max_items=200)
    state, reason = play(procedure, scores)
    assert reason == "decided"
    assert [(p.a, p.b) for p in procedure.pairs(state) if p.required] == [(2, 1), (1, 0)]
    estimates = procedure.estimate(state)
    half = estimates.score_half_interval
    assert (np.abs(estimates.score - scores.mean(axis=1)) <= half).all()


def test_a_pair_is_decided_when_the_p_value_is_below_the_level_and_not_before():
    scores = models([0.0, 0.12])
    procedure = procedure_of(scores, max_items=200)
    state = procedure.start()
    order = procedure.inference.order
    sizes = np.ones(len(order.items), dtype=int)
    for k, item in enumerate(order.items[:80], start=1):
        for row in (0, 1):
            state.record(row, int(item), float(scores[row, item]))
        x = (scores[1] - scores[0])[order.items[:k]]
        p = 2.0 * np.exp(-log_evidence(x, order.blocks[:k], sizes, 0.0, -1.0, len(order.items)))
        (pair,) = procedure.pairs(state)
        assert (pair.verdict == "undecided") == (p >= 0.05)
        if p < 1.0:
            assert 1.0 - pair.p_a_better == pytest.approx(p / 2.0, rel=1e-6)


@pytest.mark.parametrize(("gap", "expected"), [(0.0, "equivalent"), (0.2, "a")])
def test_equivalence_needs_evidence_against_the_margin_on_both_sides(gap, expected):
    scores = models([gap, 0.0], n=600)
    rule = DecisionRule(equivalence=0.1)
    procedure = procedure_of(scores, rule, max_items=300)
    state, reason = play(procedure, scores)
    assert reason == "decided"
    assert procedure.pairs(state)[0].verdict == expected
    short = procedure_of(scores, rule, max_items=10)
    state, _ = play(short, scores)
    assert short.pairs(state)[0].verdict != "equivalent"


def test_models_asked_unequally_are_compared_as_if_asked_alike():
    """A model that was asked only the first, easy documents gains nothing by that."""
    n = 200
    easy = np.linspace(0.9, 0.1, n)
    scores = np.stack([easy - 0.05, easy + 0.05])
    order = spread_order(None, n, np.random.default_rng(0))
    by_ease = type(order)(np.arange(n), order.blocks)
    responses = scores.copy()
    responses[0, 60:] = np.nan
    estimates = PairedPosterior(by_ease).estimate(responses)
    assert np.nanmean(responses[0]) > np.nanmean(responses[1]), "plain means mislead"
    assert estimates.score[0] < estimates.score[1]


def test_excluded_documents_and_failed_models_do_not_stop_the_rest():
    scores = models([0.0, 0.3, 0.1])
    procedure = procedure_of(scores, max_items=100, round_size=None)
    state = procedure.start()
    state.failed[2] = True
    step = procedure.next(state)
    assert isinstance(step, Round)
    assert [ask.model for ask in step.asks] == [0, 1]
    for ask in step.asks:
        for item in ask.items:
            state.record(ask.model, item, float(scores[ask.model, item]))
    state.exclude(step.asks[0].items[3])
    state, stop = procedure.run(
        lambda row, items: [float(scores[row, item]) for item in items], state
    )
    assert stop.reason == "decided"
