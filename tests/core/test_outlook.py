"""Predictions of what is left: they follow the procedure's own rules, and shrink as it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_adaptive.core.outlook import look_ahead
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import DecisionRule
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.state import Stop
from tests.core.helpers import draw_scores, make_bank, random_items


def setting(model="robust-2pl", theta=(1.0, 0.3, 0.2, -1.0), items=300, **rules):
    rng = np.random.default_rng(3)
    parameters = random_items(model, items, rng)
    scores = draw_scores(parameters, np.asarray(theta), rng)
    procedure = Procedure.for_bank(
        make_bank(parameters), np.ones(len(theta)), ProcedureConfig(**rules)
    )
    return procedure, scores


def play(procedure, scores):
    """States of a run, before every round and at its end, with what was predicted."""
    state, found = procedure.start(), []
    while True:
        estimates = procedure.estimate(state)
        step = procedure.next(state)
        found.append((int(state.answered.sum()), look_ahead(procedure, state, estimates), step))
        if isinstance(step, Stop):
            return found
        for ask in step.asks:
            for item in ask.items:
                state.record(ask.model, item, float(scores[ask.model, item]))


@pytest.mark.parametrize("model", ["robust-2pl", "paper-1pl", "bernoulli-2pl"])
def test_who_is_said_to_be_asked_is_who_is_asked(model):
    procedure, scores = setting(model, round_size=4)
    states = play(procedure, scores)
    assert len(states) > 3
    for _, outlook, step in states[:-1]:
        asked = {ask.model for ask in step.asks}
        assert asked <= {row for row, each in enumerate(outlook.standing) if each == "asking"}
        assert outlook.items_left > 0
    _, last, step = states[-1]
    assert last.items_left == 0 or step.reason == "max_items"
    if step.reason == "decided":
        assert last.decided == last.required == 3
        assert last.hardest is None
        assert set(last.standing) == {"settled"}


def test_the_hardest_pair_is_the_close_one():
    procedure, scores = setting(round_size=4, rule=DecisionRule(confidence=0.99))
    states = play(procedure, scores)
    named = [
        {outlook.hardest.a, outlook.hardest.b}
        for _, outlook, _ in states[2:]
        if outlook.hardest is not None
    ]
    assert named
    assert named[-1] == {1, 2}


def test_a_fixed_length_and_a_budget_bound_what_is_left():
    procedure, _ = setting(items_per_model=30)
    state = procedure.start()
    assert look_ahead(procedure, state, procedure.estimate(state)).items_left == 4 * 30
    procedure, _ = setting(items_per_model=30, budget_items=125)
    state = procedure.start()
    state.record(0, 0, 0.5)
    assert look_ahead(procedure, state, procedure.estimate(state)).items_left == 4 * 30 - 1
    procedure, _ = setting(theta=(0.0, 0.0, 0.0, 0.0), budget_items=50)
    state = procedure.start()
    assert look_ahead(procedure, state, procedure.estimate(state)).items_left <= 50
    procedure, _ = setting(theta=(0.0, 0.0, 0.0, 0.0), budget=45.0)
    state = procedure.start()
    assert look_ahead(procedure, state, procedure.estimate(state)).items_left <= 45


def test_a_single_model_goes_on_until_its_precision():
    procedure, scores = setting(theta=(0.4,), precision=0.02, round_size=5)
    states = play(procedure, scores)
    left = [outlook.items_left for _, outlook, _ in states]
    assert left[-1] == 0
    asked = states[-1][0]
    middle_asked, middle, _ = states[len(states) // 2]
    assert 0.4 * asked < middle_asked + middle.items_left < 2.5 * asked
    assert [outlook.standing for _, outlook, _ in states][-1] == ("settled",)


def test_models_set_aside_and_pairs_given_up_need_nothing():
    procedure, _ = setting(theta=(0.0, 0.0), items=200, max_items=12, min_items=10)
    rng = np.random.default_rng(0)
    state = procedure.start()
    for item in range(10):
        score = float(rng.uniform(0.3, 0.7))
        state.record(0, item, score)
        state.record(1, item, score)
    outlook = look_ahead(procedure, state, procedure.estimate(state))
    assert (outlook.decided, outlook.required, outlook.given_up) == (0, 1, 1)
    assert outlook.standing == ("too close", "too close")
    assert outlook.items_left == 0
    assert isinstance(procedure.next(state), Stop)
    state.failed[0] = True
    outlook = look_ahead(procedure, state, procedure.estimate(state))
    assert outlook.standing[0] == "failed"
    assert outlook.required == 0
