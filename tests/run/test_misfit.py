"""A model whose answers do not fit the bank is named in the ranking file and on the terminal."""

from __future__ import annotations

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

WORDS = "do not fit the bank"


@pytest.fixture
def odd(monkeypatch):
    """The strongest model answers every other document with nothing, as where a prompt is cut."""
    plain = toy.ToyLM.answer

    def answer(self, doc):
        text = plain(self, doc)
        return "um" if self.name == "strong" and len(doc["target"]) % 2 else text

    monkeypatch.setattr(toy.ToyLM, "answer", answer)


def ranking(bank, folder):
    found = simple_evaluate(
        toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=bank, items_per_model=30),
        output_path=str(folder),
    )
    return found["ranking"][toy.TASK]


def test_a_model_that_does_not_fit_is_named_with_what_to_do(odd, toy_bank, tmp_path):
    told = [text for text in ranking(toy_bank, tmp_path)["warnings"] if WORDS in text]
    assert len(told) == 1
    assert told[0].startswith("strong: its 30 answers")
    assert "ask more" in told[0]
    assert "recalibrate" in told[0]
    assert WORDS in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_models_like_those_that_calibrated_are_not_named(toy_bank, tmp_path):
    assert not [text for text in ranking(toy_bank, tmp_path)["warnings"] if WORDS in text]


def world(rng, models, items=150):
    """Scores of models of one kind: ability, difficulty, and much noise."""
    theta = rng.normal(0.0, 1.0, models)
    easy = rng.normal(0.0, 1.5, items)
    mean = 1.0 / (1.0 + np.exp(-(theta[:, None] + easy)))
    return np.clip(mean + rng.normal(0.0, 0.12, mean.shape), 0.0, 1.0)


@pytest.mark.parametrize("items", [10, 40])
def test_false_alarms_are_rare_and_spoilt_answers_are_found(items):
    """Known answer: models of the same kind; control: the same with 40 % of their answers lost."""
    alarms = {"same": 0, "spoilt": 0}
    tests = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, items])
        scores = world(rng, 21)
        matrix = ScoreMatrix(
            tuple(f"m{row}" for row in range(17)), tuple(map(str, range(150))), scores[:17]
        )
        bank = calibrate(matrix, task="t", metric="m", score_range=(0.0, 1.0))
        spoilt = np.where(rng.random((4, 150)) < 0.4, 0.0, scores[17:])
        config = ProcedureConfig(items_per_model=items, round_size=None)
        for kind, answers in (("same", scores[17:]), ("spoilt", spoilt)):
            procedure = Procedure.for_bank(bank, [1.0] * 4, config)
            state, _ = procedure.run(
                lambda row, chosen, answers=answers: [float(answers[row, item]) for item in chosen]
            )
            alarms[kind] += len(procedure.misfitting(state))
        tests += 4
    assert alarms["same"] <= 3  # P(more than 3 of 48) = 0.02 at a rate of 2.5 %
    assert alarms["spoilt"] >= (0.5 if items == 10 else 0.85) * tests


def test_fewer_answers_than_ten_are_no_ground_for_an_alarm():
    rng = np.random.default_rng(2)
    scores = world(rng, 18)
    matrix = ScoreMatrix(tuple(map(str, range(17))), tuple(map(str, range(150))), scores[:17])
    bank = calibrate(matrix, task="t", metric="m", score_range=(0.0, 1.0))
    procedure = Procedure.for_bank(bank, [1.0], ProcedureConfig(items_per_model=40, round_size=1))
    state = procedure.start()
    spoilt = np.where(rng.random(150) < 0.5, 1.0 - scores[17], scores[17])
    alarms = []
    for item in range(40):
        state.record(0, item, float(spoilt[item]))
        alarms.append(bool(procedure.misfitting(state)))
    assert not any(alarms[:9])
    assert alarms[-1]
