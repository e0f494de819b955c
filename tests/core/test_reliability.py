"""Reliability of tests of some length, from a bank's parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import BankInfo, CalibrationModel
from lm_eval_adaptive.core.reliability import population, reliability
from lm_eval_adaptive.core.response import ItemParameters
from lm_eval_adaptive.core.scale import ScoreScale


def make_bank(
    difficulty: list[float], discrimination: list[float], kept: list[bool] | None = None
) -> ItemBank:
    n = len(difficulty)
    empty = ("",) * n
    zeros = np.zeros(n)
    return ItemBank(
        BankInfo(
            "task",
            "acc",
            "none",
            ScoreScale(0.0, 1.0),
            "declared",
            "bernoulli-2pl",
            {"prior_mean": 0.5, "prior_sd": 2.0},
            tuple(CalibrationModel(f"m{k}", k - 1.0, 0.5, 0.5, n) for k in range(3)),
        ),
        ItemParameters(
            "bernoulli-2pl",
            np.array(difficulty),
            np.array(discrimination),
            np.ones(n),
            np.zeros((n, 2, 2)),
        ),
        tuple(map(str, range(n))),
        np.arange(n),
        empty,
        empty,
        np.array(kept or [True] * n),
        empty,
        np.full(n, 3),
        zeros,
        zeros,
        zeros,
        zeros,
        np.zeros((3, n)),
    )


def test_of_equal_items_it_is_the_integral_of_the_formula() -> None:
    bank = make_bank([0.0] * 5, [1.5] * 5)
    # Abilities -1, 0, 1: mean 0, standard deviation 1. Monte Carlo in place of the grid.
    theta = np.random.default_rng(0).normal(size=400_000)
    mu = 1.0 / (1.0 + np.exp(-1.5 * theta))
    for n in (1, 4):
        expected = 1.0 - np.mean(1.0 / (1.0 + n * 1.5**2 * mu * (1.0 - mu)))
        adaptive, chance = reliability(bank, [n])
        assert adaptive == pytest.approx(expected, abs=3e-3)
        assert chance == pytest.approx(expected, abs=3e-3)


def test_chosen_items_tell_more_until_all_are_asked() -> None:
    rng = np.random.default_rng(1)
    bank = make_bank(rng.normal(size=30).tolist(), rng.uniform(0.3, 2.0, 30).tolist())
    adaptive, chance = reliability(bank, [1, 5, 29, 30])
    assert (adaptive[:3] > chance[:3]).all()
    assert adaptive[3] == pytest.approx(chance[3])
    assert (np.diff(adaptive) > 0).all()
    assert (np.diff(chance) > 0).all()
    assert 0.0 < chance[0] < adaptive[3] < 1.0


def test_items_that_are_not_kept_are_not_asked() -> None:
    with_it = make_bank([0.0, 0.0], [0.5, 3.0])
    without = make_bank([0.0, 0.0], [0.5, 3.0], kept=[True, False])
    assert reliability(without, [1])[0] < reliability(with_it, [1])[0]
    assert reliability(without, [1])[0] == pytest.approx(
        reliability(make_bank([0.0], [0.5]), [1])[0]
    )


def test_the_prior_stands_in_where_there_are_too_few_models() -> None:
    bank = make_bank([0.0], [1.0])
    assert population(bank) == (0.0, 1.0)
    few = replace(bank, info=replace(bank.info, models=bank.info.models[:2]))
    assert population(few) == (0.5, 2.0)
