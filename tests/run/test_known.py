"""`--against`: models of the bank stand in the ranking with their recorded scores, unasked."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.ranker import DecisionRule, judge_pairs
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.state import Round
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.core.helpers import ALL_MODELS, draw_scores, make_bank, random_items
from tests.support import toy

NEW = {"new": 0.55}  # between cal-0.50 and cal-0.60


def run(bank, output, models=NEW, **adaptive):
    found = simple_evaluate(
        toy.models(models), [toy.TASK], AdaptiveConfig(bank=bank, **adaptive), output_path=output
    )
    return found["ranking"][toy.TASK]


@pytest.fixture(scope="module")
def placed(toy_bank, tmp_path_factory):
    toy.register()
    folder = tmp_path_factory.mktemp("placed")
    # Neighbours are 0.04 away on each side: a low level, so that a quarter of the items will do.
    return run(toy_bank, str(folder), against="all", confidence=0.8), folder


def test_one_new_model_is_placed_among_those_of_the_bank(placed):
    ranking, _ = placed
    names = [entry["model"] for entry in ranking["ranking"]]
    rest = [name for name in names if name != "new"]
    assert rest == sorted(toy.CALIBRATION, key=toy.CALIBRATION.get, reverse=True)
    assert names.index("cal-0.60") < names.index("new") < names.index("cal-0.50")
    assert ranking["stop_reason"] == "decided"


def test_known_models_cost_nothing_and_have_their_recorded_scores(placed, toy_bank):
    ranking, folder = placed
    recorded = {model.name: model.mean_raw for model in ItemBank.load(toy_bank).info.models}
    for entry in ranking["ranking"]:
        assert entry["known"] == (entry["model"] != "new")
        if entry["known"]:
            assert (entry["items"], entry["cost"], entry["score_se"]) == (0, 0.0, 0.0)
            assert entry["score"] == pytest.approx(recorded[entry["model"]], abs=1e-12)
            assert entry["score_ci"] == pytest.approx([entry["score"]] * 2)
    assert {name for name, _ in toy.ToyLM.calls} <= {"new"}
    records = toy.journal(folder)
    assert {r["model"] for r in records if r["type"] == "answer"} == {"new"}
    assert ranking["items_full"] == ranking["bank"]["items"], "a full run would ask one model"
    assert ranking["cost_total"] == ranking["items_total"] < 0.4 * ranking["items_full"]
    assert not (folder / "cal-0.50").exists()


def test_only_pairs_with_the_new_model_are_waited_for(placed):
    ranking, _ = placed
    required = [pair for pair in ranking["pairs"] if pair["required"]]
    assert len(required) == 2
    assert all("new" in (pair["a"], pair["b"]) for pair in required)
    assert all(pair["verdict"] == "a" for pair in ranking["pairs"])
    assert len(ranking["pairs"]) == 9 * 8 // 2


def test_the_page_and_the_command_line_show_them(toy_bank, tmp_path):
    done = toy.command(
        "run", "--adaptive", "--tasks", toy.TASK, "--bank", toy_bank, *toy.candidate_words(NEW),
        "--against", "cal-0.60,cal-0.30", "--output_path", tmp_path,
    )  # fmt: skip
    ranking = toy.ranking_of(tmp_path)
    assert [entry["model"] for entry in ranking["ranking"]] == ["cal-0.60", "new", "cal-0.30"]
    assert "cal-0.60" in done.stdout
    assert "against:cal-0.30,cal-0.60" in ranking["signature"]
    assert "cal-0.60" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_choice_is_part_of_what_a_resumed_run_must_share(toy_bank, tmp_path):
    first = run(toy_bank, str(tmp_path / "a"), against=["cal-0.60"])
    again = simple_evaluate(
        toy.models(NEW),
        [toy.TASK],
        AdaptiveConfig(bank=toy_bank, against=["cal-0.60"]),
        resume=tmp_path / "a",
    )["ranking"][toy.TASK]
    assert toy.undated(first) == toy.undated(again)
    with pytest.raises(Exception, match="against was"):
        simple_evaluate(
            toy.models(NEW),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, against=["cal-0.30"]),
            resume=tmp_path / "a",
        )


def test_an_unfinished_run_against_known_models_can_be_looked_at(placed, toy_bank, tmp_path):
    from lm_eval_adaptive.report.write import write_report

    _, folder = placed
    lines = (folder / "journal.jsonl").read_text().splitlines()
    header = json.loads(lines[0])
    header["command"] = ["run", "--bank", str(toy_bank)]
    kept = [line for line in lines[1:] if json.loads(line)["type"] != "end"]
    (tmp_path / "journal.jsonl").write_text("\n".join([json.dumps(header), *kept[:9]]) + "\n")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "cal-0.90" in page


def test_bad_names_are_one_line_that_says_what_there_is(toy_bank, tmp_path):
    with pytest.raises(UsageError, match=r"--against nobody: .* it holds cal-0.20, cal-0.30"):
        run(toy_bank, str(tmp_path), against="cal-0.30,nobody")
    with pytest.raises(UsageError, match=r"--against cal-0.30: a model of that name is asked"):
        run(toy_bank, str(tmp_path), models={"cal-0.30": 0.3}, against="cal-0.30")
    with pytest.raises(UsageError, match="--against takes all, or names"):
        AdaptiveConfig(against="a,,b")
    assert not (tmp_path / "journal.jsonl").exists()


def test_a_model_of_the_bank_that_is_asked_anew_stands_there_once(toy_bank, tmp_path):
    ranking = run(toy_bank, str(tmp_path), models={"cal-0.30": 0.3}, against="all")
    names = [entry["model"] for entry in ranking["ranking"]]
    assert sorted(names) == sorted(toy.CALIBRATION)
    (mine,) = [entry for entry in ranking["ranking"] if entry["model"] == "cal-0.30"]
    assert not mine["known"]
    assert mine["items"] > 0
    assert any(
        "cal-0.30 is a model of the bank and is asked anew" in w for w in ranking["warnings"]
    )


# --- the core


def bank_of(model, seed=1, n=60, missing=False):
    rng = np.random.default_rng(seed)
    items = random_items(model, n, rng)
    theta = np.linspace(-1.5, 1.5, 9)
    scores = draw_scores(items, theta, rng)
    if missing:
        scores[4, 20:] = np.nan
    from lm_eval_adaptive.core.build import calibrate
    from lm_eval_adaptive.core.matrix import ScoreMatrix

    matrix = ScoreMatrix(tuple("abcdefghi"), tuple(map(str, range(n))), scores)
    bank = calibrate(matrix, task="t", metric="m", response_model=model, score_range=(0, 1))
    return bank, items, rng


@pytest.mark.parametrize("model", ALL_MODELS)
@pytest.mark.parametrize("pairs", ["adjacent", "all", "top:3"])
def test_every_response_model_and_choice_of_pairs_ends(model, pairs):
    bank, items, rng = bank_of(model)
    rule = DecisionRule(pairs=pairs, correction="holm")
    procedure = Procedure.for_bank(bank, [1.0, 2.0], ProcedureConfig(rule=rule), known=[8, 2, 0])
    scores = draw_scores(items, [0.8, -0.2], rng)
    asked = []

    def respond(row, chosen):
        asked.append(row)
        return [float(scores[row, item]) for item in chosen]

    state, stop = procedure.run(respond)
    assert set(asked) == {0, 1}
    assert stop.reason in ("decided", "max_items", "bank_exhausted")
    found = procedure.pairs(state)
    assert not any(pair.required for pair in found if pair.a > 1 and pair.b > 1)
    assert any(pair.required for pair in found)
    order = [pair for pair in found if {pair.a, pair.b} == {2, 4}]
    assert order[0].a == 2, "the calibration model of ability 1.5 stands above that of -1.5"


def test_a_model_recorded_in_part_keeps_the_error_of_an_estimate():
    bank, _, _ = bank_of("robust-2pl", missing=True)
    procedure = Procedure.for_bank(bank, [1.0], ProcedureConfig(), known=[4, 5])
    estimates = procedure.estimate(procedure.start())
    assert estimates.score_se[1] > 0.0
    assert estimates.score_se[2] == 0.0


def test_what_items_have_in_common_does_not_drop_out_against_a_recorded_score():
    """The error of a difference to a known model is that of the score itself, not of a pair's.

    So the pair is decided just where the score's 95 % interval leaves the recorded score out.
    """
    bank, items, rng = bank_of("robust-2pl")
    procedure = Procedure.for_bank(bank, [1.0, 1.0], ProcedureConfig(items_per_model=20), known=[4])
    scores = draw_scores(items, [0.1, 0.0], rng)
    state, _ = procedure.run(lambda row, chosen: [float(scores[row, i]) for i in chosen])
    estimates = procedure.estimate(state)
    assert estimates.pair_var is not None
    assert estimates.pair_var[0, 2] == estimates.pair_var[2, 0] == estimates.score_cov[0, 0]
    assert estimates.pair_var[0, 2] > estimates.pair_var[0, 1] / 2.0
    half = estimates.score_half_interval[0]
    level = estimates.score.copy()
    for factor, verdict in ((1.0001, "a"), (0.9999, "undecided")):
        level[0] = estimates.score[2] + factor * half
        pairs = judge_pairs(replace(estimates, level=level), DecisionRule())
        assert next(pair for pair in pairs if {pair.a, pair.b} == {0, 2}).verdict == verdict


def test_known_models_change_nothing_of_the_others():
    bank, items, rng = bank_of("robust-2pl")
    scores = draw_scores(items, [0.4, -0.3], rng)
    config = ProcedureConfig(items_per_model=15)
    alone = Procedure.for_bank(bank, [1.0, 1.0], config)
    beside = Procedure.for_bank(bank, [1.0, 1.0], config, known=[0, 8])
    one, _ = alone.run(lambda row, chosen: [float(scores[row, i]) for i in chosen])
    two, _ = beside.run(lambda row, chosen: [float(scores[row, i]) for i in chosen])
    np.testing.assert_array_equal(one.responses, two.responses[:2])
    np.testing.assert_allclose(alone.estimate(one).score, beside.estimate(two).score[:2])


def test_a_known_model_alone_does_not_spare_the_first_items():
    procedure = Procedure.for_bank(
        make_bank(random_items("bernoulli-2pl", 40, np.random.default_rng(0))),
        [1.0],
        ProcedureConfig(min_items=6),
        known=[0],
    )
    step = procedure.next(procedure.start())
    assert isinstance(step, Round)
    assert [ask.model for ask in step.asks] == [0]
