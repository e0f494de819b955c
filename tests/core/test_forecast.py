"""One law of how errors fall, whoever predicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.core.forecast import FASTEST, Forecast
from lm_eval_adaptive.core.outlook import look_ahead
from lm_eval_adaptive.core.paired import PairedPosterior, spread_order
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from tests.core.helpers import make_bank, quick, random_items


@quick
@given(st.floats(0.2, 2.0), st.integers(1, 500), st.floats(1.0, 20.0))
def test_after_the_items_foretold_the_error_is_as_asked(power, items, times):
    law = Forecast(power)
    then = law.items(items, times)
    assert then >= items
    assert law.variance(1.0, items, then) == pytest.approx(times**-2.0)


def test_the_root_law_by_hand():
    assert FASTEST.items(10, 3.0) == 90.0  # a third of the error takes nine times the items
    assert FASTEST.variance(0.09, 10, 90) == pytest.approx(0.01)


class Slower:
    """An inference whose errors fall more slowly, and which is the other in all else."""

    forecast = Forecast(0.2)

    def __init__(self, inference):
        self._inference = inference

    def __getattr__(self, name):
        return getattr(self._inference, name)


def test_chances_and_outlook_follow_the_law_of_the_inference():
    bank = make_bank(random_items("robust-2pl", 200, np.random.default_rng(0)))
    procedure = Procedure.for_bank(bank, np.ones(2), ProcedureConfig(futility=0.0))
    state = procedure.start()
    rng = np.random.default_rng(1)
    for item in range(20):
        score = float(rng.uniform(0.3, 0.7))
        state.record(0, item, score)
        state.record(1, item, float(np.clip(score + 0.04 + 0.2 * rng.normal(), 0.0, 1.0)))
    estimates = procedure.estimate(state)
    # A gap of two standard errors: it can be decided, and not at once.
    spread = np.ptp(estimates.level) / 2.0
    estimates = replace(estimates, pair_var=np.full((2, 2), spread**2))
    (pair,) = procedure.pairs(state, estimates)
    chance = procedure.chance(state, estimates, pair)
    left = look_ahead(procedure, state, estimates).items_left
    procedure.inference = Slower(procedure.inference)
    assert 0.0 < procedure.chance(state, estimates, pair) < chance
    assert look_ahead(procedure, state, estimates).items_left > left


def test_without_a_bank_no_document_is_worth_more_than_another():
    paired = PairedPosterior(spread_order(None, 30, np.random.default_rng(0)))
    worth = paired.worth(paired.estimate(np.full((2, 30), np.nan)))
    worth.ask(3, [0])
    assert np.ptp(worth.worth(0)) == 0.0
