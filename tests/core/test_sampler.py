"""Which items are asked."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from lm_eval_adaptive.core import sampler as sampler_module
from lm_eval_adaptive.core.build import refit
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.prospects import Prospects
from lm_eval_adaptive.core.robust import RobustPosterior
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.sampler import (
    POWER,
    SAMPLERS,
    WeightedDraw,
    WorthSampler,
    choose_shared,
    make_sampler,
)
from lm_eval_adaptive.errors import UsageError
from tests.core.helpers import (
    FactorBenchmark,
    global_parameters,
    make_items,
    posterior_under,
    quick,
    random_items,
)


def shared(*asked):
    """Items chosen for all models at once, without their probabilities."""
    found = choose_shared(*asked)
    return {model: [each.item for each in items] for model, items in found.items()}


# Items of robust-2pl are chosen for all models at once, below.
MODELS = ("paper-1pl", "bernoulli-2pl")


def setting(items, responses, sampler="fisher", worth=None, seed=0):
    posterior = posterior_under(items, global_parameters(items))
    worth = np.linspace(1.0, 0.0, len(items)) if worth is None else worth
    made = make_sampler(sampler, posterior, worth, seed)
    return made, posterior.estimate(responses)


def pick(sampler, model, estimates, available, count):
    """Items for one model of several."""
    free = np.repeat(available[None, :], len(estimates.theta), axis=0)
    return [each.item for each in sampler.choose({model: count}, estimates, free)[model]]


def test_the_papers_choice_is_the_item_of_most_information_at_theta():
    # No answers: theta is the median of b, 0. mu (1 - mu) falls with |theta - b|, so the order of
    # |b| is the order of choice: 0, 0.4, -0.5, -2, 3.
    items = make_items("paper-1pl", [-2.0, -0.5, 0.4, 3.0, 0.0])
    sampler, estimates = setting(items, np.full((1, 5), np.nan))
    everything = np.ones(5, dtype=bool)
    assert pick(sampler, 0, estimates, everything, 5) == [4, 2, 1, 0, 3]


def test_discrimination_decides_between_items_of_one_difficulty():
    # At b the information is a^2 / 4: 1/4, 9/16, 1.
    items = make_items("bernoulli-2pl", [0.0, 0.0, 0.0], [1.0, 1.5, 2.0])
    sampler, estimates = setting(items, np.full((1, 3), np.nan))
    assert pick(sampler, 0, estimates, np.ones(3, dtype=bool), 3) == [2, 1, 0]


@quick
@given(st.sampled_from(MODELS), st.sampled_from(SAMPLERS), st.integers(0, 10_000), st.data())
def test_nothing_administered_or_unavailable_is_picked(model, name, seed, data):
    rng = np.random.default_rng(seed)
    n = 12
    items = random_items(model, n, rng)
    responses = np.full((2, n), np.nan)
    asked = data.draw(st.sets(st.integers(0, n - 1)))
    gone = data.draw(st.sets(st.integers(0, n - 1)))
    count = data.draw(st.integers(1, 15))
    responses[1, list(asked)] = rng.uniform(size=len(asked))
    available = ~np.isfinite(responses[1])
    available[list(gone)] = False
    before = available.copy()
    sampler, estimates = setting(items, responses, name, seed=seed)
    picked = pick(sampler, 1, estimates, available, count)
    free = set(range(n)) - asked - gone
    assert set(picked) <= free
    assert len(set(picked)) == len(picked) == min(count, len(free))
    np.testing.assert_array_equal(available, before)  # the caller's array is left alone


@quick
@given(st.sampled_from(MODELS), st.integers(0, 10_000))
def test_the_choice_does_not_hang_on_the_banks_row_order(model, seed):
    rng = np.random.default_rng(seed)
    items = random_items(model, 15, rng)
    responses = np.full((1, 15), np.nan)
    responses[0, [2, 9, 4]] = rng.uniform(size=3)
    order = rng.permutation(15)

    def ids(row_order):
        mine = responses[:, row_order]
        posterior = posterior_under(items.take(row_order), global_parameters(items))
        sampler = make_sampler("fisher", posterior, np.zeros(15), 0)
        picked = pick(sampler, 0, posterior.estimate(mine), ~np.isfinite(mine[0]), 4)
        return [int(row_order[item]) for item in picked]

    assert ids(order) == ids(np.arange(15))


def test_a_chosen_item_counts_as_if_its_answer_were_in():
    """Wide beliefs favour a blunt item of wide reach; once narrowed, the sharp one at theta wins.

    What matters is that chosen items change the choice as answers at their expectation would.
    """
    rng = np.random.default_rng(0)
    changed = 0
    for _ in range(30):
        items = make_items("bernoulli-2pl", rng.normal(0.0, 1.0, 20), rng.uniform(0.5, 4.0, 20))
        sampler, estimates = setting(items, np.full((1, 20), np.nan))
        free = np.ones(20, dtype=bool)
        first = pick(sampler, 0, estimates, free, 1)
        both = pick(sampler, 0, estimates, free, 2)
        assert both[:1] == first
        blind = free.copy()
        blind[first] = False
        changed += both[1:] != pick(sampler, 0, estimates, blind, 1)
    assert changed > 0


@pytest.mark.parametrize("model", MODELS)
def test_many_items_at_once_from_very_precise_items(model):
    """Thousands of times more precision than the grid resolves must not turn into NaN."""
    b = np.random.default_rng(1).permutation(np.linspace(-1.013, 1.0, 60))
    items = make_items(model, b, 3.0, 1e-3)
    responses = np.full((1, 60), np.nan)
    responses[0, :3] = [0.2, 0.3, 0.1]
    sampler, estimates = setting(items, responses)
    free = ~np.isfinite(responses[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picked = pick(sampler, 0, estimates, free, 50)
    assert len(set(picked)) == 50
    assert not {0, 1, 2} & set(picked)
    assert picked != sorted(picked)  # by information, not by row


# --- the same items for all models, under robust-2pl


@pytest.fixture(scope="module")
def robust():
    rng = np.random.default_rng(2)
    return RobustPosterior(FactorBenchmark(rng, n=60).bank(rng, 7))


def shared_setting(robust, models=3, asked=5):
    """Latents of models that answered the first items, and what they may still be asked."""
    responses = np.full((models, 60), np.nan)
    responses[:, :asked] = np.random.default_rng(3).uniform(0.3, 0.9, (models, asked))
    return robust.estimate(responses).latents, np.isnan(responses)


def test_all_models_of_a_round_are_asked_the_same_items_once(robust):
    latents, free = shared_setting(robust)
    before = free.copy()
    chosen = shared({0: 8, 1: 8, 2: 8}, Prospects(latents), free, None)
    assert chosen[0] == chosen[1] == chosen[2]
    assert len(set(chosen[0])) == 8
    assert min(chosen[0]) >= 5
    np.testing.assert_array_equal(free, before)


def test_counts_may_differ_and_the_common_part_is_shared(robust):
    latents, free = shared_setting(robust)
    chosen = shared({0: 3, 2: 6}, Prospects(latents), free, None)
    assert set(chosen) == {0, 2}
    assert (len(chosen[0]), len(chosen[2])) == (3, 6)
    assert chosen[0] == chosen[2][:3]
    assert len(set(chosen[2])) == 6


def test_an_item_that_one_model_cannot_be_asked_is_not_shared(robust):
    latents, free = shared_setting(robust)
    best = shared({0: 1, 1: 1, 2: 1}, Prospects(latents), free, None)[0][0]
    free[1, best] = False
    chosen = shared({0: 4, 1: 4, 2: 4}, Prospects(latents), free, None)
    assert chosen[0] == chosen[1] == chosen[2]
    assert best not in chosen[0]


def test_models_without_a_common_item_are_asked_their_own_to_the_last(robust):
    latents, free = shared_setting(robust)
    free[0, 20:] = False  # 15 items left
    free[1, :20] = False
    free[1, 24:] = False  # 4 items left
    free[2] = False
    chosen = shared({0: 6, 1: 6, 2: 6}, Prospects(latents), free, None)
    assert [len(chosen[row]) for row in range(3)] == [6, 4, 0]
    assert set(chosen[1]) == {20, 21, 22, 23}
    assert set(chosen[0]) <= set(range(5, 20))
    assert len(set(chosen[0])) == 6


def test_items_counted_as_asked_change_the_choice_as_choosing_them_does(robust):
    responses = np.full((2, 60), np.nan)
    responses[:, :5] = 0.6
    estimates, free = robust.estimate(responses), np.isnan(responses)
    both = [each.item for each in WorthSampler(robust).choose({0: 6}, estimates, free)[0]]
    worth = robust.worth(estimates)
    for item in both[:3]:
        worth.ask(item, [0])
    free[0, both[:3]] = False
    assert shared({0: 3}, worth, free, None)[0] == both[3:]


def test_an_items_worth_is_divided_by_what_it_costs(robust):
    latents, free = shared_setting(robust)
    everyone = dict.fromkeys(range(3), 5)
    plain = shared(everyone, Prospects(latents), free, None)[0]
    costs = np.ones((3, 60))
    assert shared(everyone, Prospects(latents), free, 7.0 * costs)[0] == plain
    costs[:, plain[0]] = 1000.0
    dear = shared(everyone, Prospects(latents), free, costs)[0]
    assert plain[0] not in dear
    assert len(set(dear) & set(plain)) >= 2


def test_items_chosen_together_repeat_each_other_less(robust):
    """The next item is chosen as if the ones before it were answered."""
    latents, free = shared_setting(robust)
    together = shared({0: 10, 1: 10, 2: 10}, Prospects(latents), free, None)[0]
    prospects = Prospects(latents)
    worth = sum(prospects.worth(row) for row in range(3))
    greedy = np.argsort(-np.where(free.all(axis=0), worth, -np.inf))[:10].tolist()
    assert together[0] == greedy[0]
    assert together != greedy


def test_static_asks_all_models_the_items_of_highest_item_rest_correlation():
    items = random_items("bernoulli-2pl", 5, np.random.default_rng(0))
    worth = np.array([0.1, np.nan, 0.9, 0.4, -0.3])
    sampler, estimates = setting(items, np.full((2, 5), np.nan), "static", worth)
    free = np.ones(5, dtype=bool)
    assert pick(sampler, 0, estimates, free, 5) == [2, 3, 0, 4, 1]  # unknown worth comes last
    assert pick(sampler, 1, estimates, free, 5) == [2, 3, 0, 4, 1]


def test_random_shares_one_order_that_hangs_on_the_seed_alone():
    items = random_items("bernoulli-2pl", 30, np.random.default_rng(0))
    free = np.ones(30, dtype=bool)
    orders = []
    for seed in (1, 1, 2):
        sampler, estimates = setting(items, np.full((2, 30), np.nan), "random", seed=seed)
        orders.append(pick(sampler, 0, estimates, free, 30))
        assert pick(sampler, 1, estimates, free, 30) == orders[-1]
    assert orders[0] == orders[1] != orders[2]


def test_an_unknown_sampler_is_refused_with_the_known_ones():
    items = random_items("bernoulli-2pl", 3, np.random.default_rng(0))
    with pytest.raises(UsageError, match="fisher, static, random; got 'best'"):
        setting(items, np.full((1, 3), np.nan), "best")


# --- drawing


def test_items_are_drawn_as_often_as_their_probabilities_say():
    """3,000 seeds, the first three items of eight: chi-square of each step against its own
    probabilities, and the negative control, the item of most worth first, fails it."""
    worth = np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.0])
    free = np.ones(8, dtype=bool)
    seeds, statistic, greedy = 3000, 0.0, 0.0
    counts, expected = np.zeros(8), np.zeros(8)
    for seed in range(seeds):
        drawn = WeightedDraw(seed)(worth, free)
        counts[drawn.item] += 1
    expected = seeds * worth**POWER / (worth**POWER).sum()
    kept = expected > 5.0
    statistic = float(((counts - expected)[kept] ** 2 / expected[kept]).sum())
    greedy = float(((seeds * (np.arange(8) == 0) - expected)[kept] ** 2 / expected[kept]).sum())
    limit = chi2.ppf(0.999, int(kept.sum()) - 1)
    assert statistic < limit < greedy
    assert counts[7] == 0
    one = WeightedDraw(3)(worth, free)
    assert one.probability == pytest.approx(worth[one.item] ** POWER / (worth**POWER).sum())


def test_every_fifth_item_is_drawn_plainly():
    worth = np.linspace(0.0, 1.0, 50)
    counts = np.zeros(50)
    for seed in range(4000):
        free = np.ones(50, dtype=bool)
        free[:4] = False
        drawn = WeightedDraw(seed)(worth, free)
        assert drawn.probability == pytest.approx(1.0 / 46.0)
        counts[drawn.item] += 1
    expected = 4000 / 46.0
    assert ((counts[4:] - expected) ** 2 / expected).sum() < chi2.ppf(0.999, 45)
    free = np.ones(50, dtype=bool)
    free[:3] = False  # the fourth is drawn by its worth
    assert WeightedDraw(0)(worth, free).probability != pytest.approx(1.0 / 47.0)


@pytest.mark.parametrize("response_model", ["robust-2pl", "bernoulli-2pl"])
def test_all_models_are_asked_the_same_drawn_items_and_a_seed_draws_them_again(response_model):
    bank = refit(drawn_bank(), response_model)
    runs = []
    for seed, order in ((1, [0, 1, 2]), (1, [2, 0, 1]), (2, [0, 1, 2])):
        procedure = Procedure.for_bank(
            bank, np.ones(3), ProcedureConfig(items_per_model=12, round_size=4, seed=seed)
        )
        assert procedure.sampler.name == "draw"
        scores = np.random.default_rng(9).uniform(size=(3, len(bank)))[order]
        asked = []

        def respond(row, items, y=scores, asked=asked):
            asked.append((row, items))
            return y[row, list(items)].tolist()

        procedure.run(respond)
        items = {
            row: [item for who, each in asked if who == row for item in each] for row in range(3)
        }
        assert items[0] == items[1] == items[2]
        runs.append(items[0])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_published_method_takes_the_items_of_most_worth_and_draws_none():
    bank = refit(drawn_bank(), "paper-1pl")
    procedure = Procedure.for_bank(bank, np.ones(2), ProcedureConfig(items_per_model=5))
    assert procedure.sampler.name == "fisher"
    step = procedure.next(procedure.start())
    assert step.asks[0].probabilities == (1.0,)


def test_a_round_tells_the_probability_of_every_item():
    procedure = Procedure.for_bank(
        drawn_bank(), np.ones(2), ProcedureConfig(items_per_model=10, round_size=10)
    )
    (first, second) = procedure.next(procedure.start()).asks
    assert first.probabilities == second.probabilities
    assert len(first.probabilities) == len(first.items) == 10
    assert all(0.0 < each < 1.0 for each in first.probabilities)


def drawn_bank():
    rng = np.random.default_rng(11)
    return FactorBenchmark(rng, 60).bank(rng, 12)


# --- very many items: a part is looked at


@pytest.fixture
def looks_at_few(monkeypatch):
    monkeypatch.setattr(sampler_module, "MANY_ITEMS", 40)
    monkeypatch.setattr(sampler_module, "CANDIDATES", 24)


@pytest.mark.usefixtures("looks_at_few")
def test_of_many_items_the_probabilities_told_are_those_of_the_design(robust):
    """The mean of 1 / probability over draws is the number of items that might have been drawn,
    which holds of a first draw under any design; with the candidates' share left out it is not."""
    responses = np.full((2, 60), np.nan)
    responses[:, :3] = 0.5
    estimates = robust.estimate(responses)
    free = np.isnan(responses)
    found, items = [], set()
    for seed in range(400):
        sampler = make_sampler("draw", robust, np.zeros(60), seed)
        chosen = sampler.choose({0: 3, 1: 3}, estimates, free)
        assert chosen[0] == chosen[1]
        assert chosen == sampler.choose({0: 3, 1: 3}, estimates, free)  # a run can be replayed
        mine = [each.item for each in chosen[0]]
        assert len(set(mine)) == 3
        assert not {0, 1, 2} & set(mine)
        found.append(1.0 / chosen[0][0].probability)
        items |= set(mine)
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - 57) < 4 * error
    assert abs(np.mean(found) * 24 / 57 - 57) > 4 * error
    assert len(items) > 45  # candidates are others every time


@pytest.mark.usefixtures("looks_at_few")
def test_the_published_rule_looks_at_all_items(robust):
    responses = np.full((1, 60), np.nan)
    estimates = robust.estimate(responses)
    (chosen,) = make_sampler("fisher", robust, np.zeros(60), 0).choose(
        {0: 1}, estimates, np.isnan(responses)
    )[0]
    assert chosen.item == int(np.argmax(robust.worth(estimates).worth(0)))


@pytest.mark.usefixtures("looks_at_few")
def test_near_the_end_of_a_long_bank_every_item_left_is_looked_at(robust):
    responses = np.full((1, 60), np.nan)
    free = np.zeros((1, 60), dtype=bool)
    free[0, 55:] = True
    chosen = make_sampler("draw", robust, np.zeros(60), 0).choose(
        {0: 9}, robust.estimate(responses), free
    )
    assert sorted(each.item for each in chosen[0]) == [55, 56, 57, 58, 59]
