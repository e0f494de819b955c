"""`--bank none`: a ranking without any calibration, end to end on toy models of known order."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.host.find_tasks import make_task_manager
from lm_eval_adaptive.host.settings import HarnessSettings
from lm_eval_adaptive.host.task import TaskDocs, load_task
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

APART = {"weak": 0.3, "middle": 0.55, "strong": 0.8}


def run(output, models=APART, seed=1234, **adaptive):
    found = simple_evaluate(
        toy.models(models),
        [toy.TASK],
        AdaptiveConfig(bank="none", **adaptive),
        output_path=str(output),
        numpy_random_seed=seed,
    )
    return found["ranking"][toy.TASK]


def asked_by(folder):
    records = toy.journal(folder)
    found = {}
    for record in records:
        if record["type"] == "answer":
            found.setdefault(record["model"], []).append(record["doc_id"])
    return found


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    toy.register()
    folder = tmp_path_factory.mktemp("cold")
    return run(folder), folder


def test_models_apart_are_ranked_without_a_bank(cold):
    ranking, folder = cold
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "middle", "weak"]
    assert ranking["stop_reason"] == "decided"
    assert ranking["fraction"] < 0.5
    assert (ranking["bank"]["path"], ranking["bank"]["sha256"]) == ("none", "none")
    assert ranking["bank"]["response_model"] == "paired"
    assert (ranking["metric"], ranking["bank"]["range"]) == ("rougeL", [0.0, 1.0])
    assert "|bank:none|response:paired|sampler:spread|" in ranking["signature"]
    assert "made without a bank" in (folder / "report.html").read_text(encoding="utf-8")


def test_every_model_is_asked_the_same_documents_in_one_order(cold):
    _, folder = cold
    orders = sorted(asked_by(folder).values(), key=len)
    assert len(orders) == 3
    for shorter in orders:
        assert set(shorter) == set(orders[-1][: len(shorter)])


def test_intervals_hold_the_full_scores(cold):
    ranking, _ = cold
    manager = make_task_manager(HarnessSettings(tasks=(toy.TASK,)))
    docs = TaskDocs(load_task(manager, toy.TASK))
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"])
    for entry in ranking["ranking"]:
        name = entry["model"]
        model = toy.ToyLM(share=APART[name], name=name)
        full = np.mean(
            [scorer.score(doc["target"], model.answer(doc))["rougeL"].fmeasure for doc in docs.docs]
        )
        low, high = entry["score_ci"]
        assert low < full < high
        assert low < entry["score"] < high


def test_the_order_is_spread_over_lengths_and_drawn_from_the_seed(tmp_path):
    manager = make_task_manager(HarnessSettings(tasks=(toy.TASK,)))
    docs = TaskDocs(load_task(manager, toy.TASK))
    length = np.array([len(docs.task.doc_to_text(doc)) for doc in docs.docs])
    short, long = np.quantile(length, [0.25, 0.75])
    rules = {"items_per_model": 12, "min_items": 12}
    run(tmp_path / "a", **rules)
    run(tmp_path / "b", **rules)
    run(tmp_path / "c", seed=7, **rules)
    one, two, three = (asked_by(tmp_path / name)["weak"] for name in "abc")
    assert one == two
    assert set(one) != set(three)
    for chosen in (one, three):  # two at odds and two whole blocks of five
        assert (length[chosen] <= short).sum() >= 2
        assert (length[chosen] >= long).sum() >= 2


def test_stratify_takes_a_column_and_names_those_there_are(tmp_path):
    run(tmp_path / "a", items_per_model=12, min_items=12, stratify="domain")
    with pytest.raises(UsageError, match=r"--stratify colour: doc 0 .* it has .*target"):
        run(tmp_path / "b", stratify="colour")


def test_a_run_that_was_cut_off_goes_on_to_the_same_ranking(cold, tmp_path):
    ranking, folder = cold
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_text("".join(lines[: len(lines) // 2]))
    again = simple_evaluate(
        toy.models(APART), [toy.TASK], AdaptiveConfig(bank="none"), resume=tmp_path
    )["ranking"][toy.TASK]
    assert json.dumps(toy.undated(again)) == json.dumps(toy.undated(ranking))


def test_the_command_line_and_a_budget(tmp_path):
    done = toy.command(
        "run", "--adaptive", "--tasks", toy.TASK, "--bank", "none", "--range", "0,1",
        *toy.candidate_words(APART), "--budget_items", "40", "--output_path", tmp_path,
    )  # fmt: skip
    ranking = toy.ranking_of(tmp_path)
    assert ranking["stop_reason"] in ("budget", "decided")
    assert ranking["items_total"] <= 40
    assert "strong" in done.stdout


def test_one_model_alone_stops_at_its_precision(tmp_path):
    ranking = run(tmp_path, {"alone": 0.6}, precision=0.02)
    assert ranking["stop_reason"] == "precision"
    assert ranking["ranking"][0]["score_se"] <= 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"against": "all"}, "--against takes models of a bank"),
        ({"response_model": "paper-1pl"}, "--response_model paper-1pl needs a bank"),
        ({"sampler": "static"}, "--sampler static needs a bank"),
        ({"metric": "slot_coverage,none"}, r"range of slot_coverage is not known.*--range LO,HI"),
        ({"metric": "rougeL,best"}, "has no filter best; say --metric rougeL,FILTER"),
        ({"range": "0,x"}, "--range takes two numbers"),
        ({"range": "1,0"}, "needs LO below HI"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        run(tmp_path, **options)
    assert not (tmp_path / "journal.jsonl").exists()


@pytest.mark.parametrize("option", [{"range": (0, 1)}, {"stratify": "target"}])
def test_options_of_a_cold_start_do_not_go_with_a_bank(toy_bank, tmp_path, option):
    with pytest.raises(UsageError, match="goes with --bank none"):
        simple_evaluate(
            toy.models(APART),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, **option),
            output_path=str(tmp_path),
        )


def test_a_metric_without_a_declared_range_is_ranked_when_one_is_given(tmp_path):
    ranking = run(tmp_path, metric="slot_coverage", range=(0, 1), items_per_model=20, min_items=20)
    assert ranking["metric"] == "slot_coverage"
    assert ranking["ranking"][0]["model"] == "strong"
