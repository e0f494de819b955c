"""Regimes: who is ranked and who calibrates for known means, and what is too small for one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.regimes import (
    FROM_ONE_MATRIX,
    REGIMES,
    Pool,
    chosen_regimes,
    plan_draws,
)
from lm_eval_adaptive.core.simulate import complete_part, run_draws, simulate
from lm_eval_adaptive.errors import UsageError

# Twenty models; the mean of model number k is rank k of twenty, whatever its name's place.
RANKS = np.random.default_rng(11).permutation(20)
PLAN = Plan(holdout=4, calibration=5, partitions=30, seed=3)
GOLDEN = {
    "random": (("m01", "m02", "m07"), ("m05", "m11", "m00")),
    "stronger": (("m14", "m08", "m19"), ("m05", "m06", "m03")),
    "weaker": (("m17", "m09", "m01"), ("m03", "m14", "m08")),
    "top": (("m14", "m00", "m02"), ("m09", "m07", "m04")),
    "family": (("m04", "m02", "m08"), ("m03", "m05", "m15")),
    "source": (("m01", "m02", "m07"), ("s00", "s03", "s01")),
}


def named(scores, models, items=None):
    items = items or [f"i{column:03d}" for column in range(scores.shape[1])]
    return ScoreMatrix(tuple(models), tuple(items), scores)


def toy(ranks=RANKS, items=30, prefix="m", sign=1.0):
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(len(ranks), items))
    noise -= noise.mean(axis=1, keepdims=True)
    scores = sign * np.asarray(ranks, dtype=float)[:, None] + noise
    names = [f"{prefix}{number:02d}" for number in range(len(ranks))]
    return named(scores, names)


def rank_of(names):
    return {int(RANKS[int(name[1:])]) for name in names}


def drawn(regime, plan=PLAN, pool=None, **settings):
    draws, skipped = plan_draws([pool or Pool("toy", "x", toy(), **settings)], plan, [regime])
    assert skipped == []
    return draws


@pytest.mark.parametrize(
    ("regime", "may_be_ranked", "may_calibrate"),
    [
        ("random", range(20), range(20)),
        ("stronger", range(12, 20), range(12)),  # the best 40 %, the other 60 %
        ("weaker", range(8), range(8, 20)),
        ("top", range(14, 20), range(20)),  # the best 30 %, all that are not ranked
    ],
)
def test_models_are_drawn_from_their_side_by_mean_and_all_of_it(
    regime, may_be_ranked, may_calibrate
):
    draws = drawn(regime)
    assert [each.partition for each in draws] == list(range(30))
    ranked, calibrating = set(), set()
    for each in draws:
        assert (each.regime, len(each.ranked), len(each.calibrating)) == (regime, 4, 5)
        ranked |= rank_of(each.ranked)
        calibrating |= rank_of(each.calibrating)
    # Each of 20 is drawn by the 30th partition but for 1 chance in 800.
    assert ranked == set(may_be_ranked)
    assert calibrating == set(may_calibrate)


@pytest.mark.parametrize("regime", ["stronger", "weaker", "top"])
def test_less_may_be_better(regime):
    """With all scores turned round and their direction told, the same models are drawn."""
    turned = Pool("toy", "x", toy(sign=-1.0))
    found = drawn(regime, replace(PLAN, higher_is_better=False), turned)
    for mine, theirs in zip(found, drawn(regime), strict=True):
        assert (mine.ranked, mine.calibrating) == (theirs.ranked, theirs.calibrating)
    untold = drawn(regime, PLAN, turned)
    assert any(mine.ranked != other.ranked for mine, other in zip(untold, found, strict=True))


@pytest.mark.parametrize("regime", REGIMES)
def test_no_ranked_model_calibrates_and_a_seed_gives_its_draw_whatever_the_order(regime):
    families = {f"m{number:02d}": "ab"[number % 2] for number in range(16)}
    # Half of the source's models bear the names of models that are ranked.
    source = toy(np.arange(12), prefix="m")
    pool = Pool("toy", "x", toy(), families, source)
    draws = drawn(regime, replace(PLAN, calibration=17), pool)
    for each in draws:
        assert not set(each.ranked) & set(each.calibrating)
        assert len(set(each.ranked)) == 4
        assert len(set(each.calibrating)) == len(each.calibrating) >= 6
    moved = replace(pool, matrix=toy().select_models(list(reversed(toy().models))))
    later = drawn(regime, replace(PLAN, calibration=17, seed=13, partitions=5), moved)
    for mine, theirs in zip(later, draws[10:], strict=False):  # seed 13 + 0 is seed 3 + 10
        assert (mine.ranked, mine.calibrating) == (theirs.ranked, theirs.calibrating)


def test_a_familys_models_are_ranked_and_others_calibrate():
    families = {f"m{number:02d}": "small" for number in range(3)}
    families |= {f"m{number:02d}": "large" for number in range(3, 10)}
    families |= {"m10": "two", "m11": "two"}  # too few to be ranked; they calibrate
    names = {"small": set(), "large": set()}
    calibrating = set()
    for each in drawn("family", families=families):
        (family,) = {families[name] for name in each.ranked}
        assert family not in {families.get(name) for name in each.calibrating}
        assert len(each.ranked) == {"small": 3, "large": 4}[family]
        names[family] |= set(each.ranked)
        calibrating |= set(each.calibrating)
    assert (len(names["small"]), len(names["large"])) == (3, 7)
    assert {"m10", "m11", "m19"} <= calibrating


def test_another_source_calibrates_on_the_items_both_have():
    source = toy(np.arange(8), items=40, prefix="s")
    scores = np.array(source.scores)
    scores[:7, 4] = np.nan  # this item is in no complete part
    source = named(scores[:, ::-1], source.models, source.items[::-1])
    draws = drawn("source", source=source)
    both = set(toy().items) - {"i004"}
    for each in draws:
        assert set(each.calibrating) <= {f"s{number:02d}" for number in range(7, -1, -1)}
        assert set(each.ranked) <= set(toy().models)
        assert each.scores.items == each.bank_scores.items
        assert set(each.scores.items) == both
    column = draws[0].bank_scores.items.index("i007")
    place = complete_part(source).items.index("i007")
    np.testing.assert_array_equal(
        draws[0].bank_scores.scores[:, column], complete_part(source).scores[:, place]
    )


def test_random_rows_are_those_of_the_plain_simulation():
    plan = replace(PLAN, partitions=2, lengths=(5,), methods=("static", "random-shared"))
    draws, _ = plan_draws([Pool("toy", "x", toy())], plan, ["random", "stronger"])
    rows = run_draws(draws, plan, jobs=1)
    assert rows[:4] == simulate([("toy", "x", toy())], plan, jobs=1)
    assert [row.regime for row in rows] == ["random"] * 4 + ["stronger"] * 4


@pytest.mark.parametrize(
    ("models", "regimes"),
    [
        (20, ["random", "stronger", "weaker", "top"]),
        (10, ["random", "stronger", "weaker", "top"]),  # 60 % are 6, 40 % are 4
        (9, ["random"]),  # 5 to calibrate, 4 ranked; top leaves 5
        (7, ["random"]),
    ],
)
def test_what_is_too_small_for_a_regime_is_left_out_and_said(models, regimes):
    pool = Pool("toy", "x", toy(np.arange(models)))
    draws, skipped = plan_draws([pool], replace(PLAN, partitions=1), FROM_ONE_MATRIX)
    assert [each.regime for each in draws] == regimes
    assert [each.regime for each in skipped] == [
        name for name in FROM_ONE_MATRIX if name not in regimes
    ]
    for each in skipped:
        assert str(each).startswith(f"toy x: no regime {each.regime}, ")
        assert f"{models} complete models" in str(each)
        assert "\n" not in str(each)


def test_nothing_left_is_an_error_with_the_first_reason():
    small = Pool("toy", "x", toy(np.arange(6)))
    with pytest.raises(UsageError, match=r"toy x: no regime random, 6 complete models are too few"):
        plan_draws([small], PLAN, ["random"])
    with pytest.raises(UsageError, match="no family has 3 models or more with at least 6 outside"):
        plan_draws([replace(small, families={"m00": "a"})], PLAN, ["family"])
    with pytest.raises(UsageError, match="6 complete models to rank and 3 to calibrate, of which"):
        plan_draws([replace(small, source=toy(np.arange(3), prefix="s"))], PLAN, ["source"])
    other = toy(np.arange(8), prefix="s")
    other = named(other.scores, other.models, [f"x{i}" for i in range(30)])
    with pytest.raises(
        UsageError, match=r"--calibrate_on: its 30 complete items and the 30 of toy"
    ):
        plan_draws([replace(small, source=other)], PLAN, ["source"])
    with pytest.raises(UsageError, match="leave out --regime and --calibrate_on"):
        plan_draws([small], replace(PLAN, ranked=("m01", "m02")), ["stronger"])


def test_regimes_are_named_in_their_own_order():
    assert chosen_regimes([], source=False) == ("random",)
    assert chosen_regimes([], source=True) == ("source",)
    assert chosen_regimes(["weaker", "random"], source=True) == ("random", "weaker", "source")
    assert chosen_regimes(["all"], source=False) == FROM_ONE_MATRIX
    assert chosen_regimes(["all", "top"], source=True) == REGIMES
    with pytest.raises(UsageError, match="--regime: unknown best; known are random, stronger,"):
        chosen_regimes(["best"], source=False)
    with pytest.raises(UsageError, match="--regime source needs --calibrate_on"):
        chosen_regimes(["source"], source=False)


def test_the_draws_of_a_seed_stay_what_they_are():
    """Golden: another order of draws from the generator would change every published table."""
    families = {f"m{number:02d}": "ab"[number % 2] for number in range(16)}
    pool = Pool("toy", "x", toy(), families, toy(np.arange(8), prefix="s"))
    plan = Plan(holdout=3, calibration=3, partitions=1, seed=8000)
    draws, _ = plan_draws([pool], plan, REGIMES)
    assert {each.regime: (each.ranked, each.calibrating) for each in draws} == GOLDEN


@pytest.mark.parametrize("regime", ["stronger", "weaker", "top", "family"])
def test_the_draws_are_those_of_the_protocol_written_out_anew(regime):
    """The notes' protocol by plain numpy on sorted names, for ten seeds."""
    matrix = complete_part(toy())
    families = {name: "ab"[int(name[1:]) % 2] for name in matrix.models}
    order = np.argsort(matrix.scores.mean(axis=1))
    for seed, mine in enumerate(
        drawn(regime, replace(PLAN, seed=0, partitions=10), families=families)
    ):
        rng = np.random.default_rng(seed)
        if regime == "stronger":
            calibrating, ranked = rng.permutation(order[:12]), rng.permutation(order[12:])
        elif regime == "weaker":
            calibrating, ranked = rng.permutation(order[8:]), rng.permutation(order[:8])
        elif regime == "top":
            ranked = rng.permutation(order[14:])[:4]
            calibrating = rng.permutation([row for row in range(20) if row not in ranked])
        else:
            odd = int(rng.integers(2))
            ranked = rng.permutation(np.arange(odd, 20, 2))
            calibrating = rng.permutation(np.arange(1 - odd, 20, 2))
        assert mine.ranked == tuple(matrix.models[row] for row in ranked[:4])
        assert mine.calibrating == tuple(matrix.models[row] for row in calibrating[:5])
