"""A run scores a round in one batch, by the metric it ranks by, and says what it depends on."""

from __future__ import annotations

import json
import logging

import pytest

from lm_eval_adaptive import AdaptiveConfig, simple_evaluate
from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.errors import DataError, ModelError, ScoringError, TaskError, UsageError
from lm_eval_adaptive.metrics import bertscore, judge
from lm_eval_adaptive.metrics.judging.reply import Reply
from tests.tasks import documents, fakes

SHARES = {"weak": 0.3, "strong": 0.9}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    fakes.register()
    return fakes.install(monkeypatch, tmp_path)


@pytest.fixture
def bank(task_logs, tmp_path):
    def make(task, metric):
        options = CalibrateOptions(task=task, metric=metric, samples=(str(task_logs),))
        return str(calibrate_from(options).save(tmp_path / f"{task}.{metric}.bank.parquet"))

    return make


@pytest.fixture
def run(local_tasks, tmp_path):
    def go(task, bank, names=SHARES, folder="out", resume=None):
        return simple_evaluate(
            models=[
                {"name": name, "model": "task_toy", "model_args": {"share": share, "name": name}}
                for name, share in names.items()
            ],
            tasks=[task],
            adaptive=AdaptiveConfig(bank=bank, items_per_model=6, min_items=6, round_size=3),
            include_path=str(local_tasks),
            output_path=str(tmp_path / folder),
            resume=resume,
        )["ranking"][task]

    return go


def test_a_network_is_asked_once_for_a_round_of_a_model(bank, run, stand_ins):
    bert, _ = stand_ins
    path = bank("biolaysumm_plos", "bertscore_f1")
    bert.calls.clear()
    ranking = run("biolaysumm_plos", path)
    rounds = max(step["round"] for step in ranking["trace"])
    assert rounds == 2
    assert bert.calls == [3] * rounds * len(SHARES)
    assert "|scorer:bertscore_f1;" in ranking["signature"]


def test_metrics_that_do_not_rank_are_not_computed(bank, run, monkeypatch, tmp_path):
    path = bank("biolaysumm_plos", "rougeL")

    def scorer(settings):
        raise AssertionError("BERTScore was loaded for a ranking by ROUGE-L")

    monkeypatch.setattr(bertscore, "scorer", scorer)
    run("biolaysumm_plos", path)
    (file,) = (tmp_path / "out").rglob("strong/**/samples_biolaysumm_plos_*.jsonl")
    row = json.loads(file.read_text(encoding="utf-8").splitlines()[0])
    assert row["metrics"] == ["rougeL"]


def test_a_missing_package_is_one_line_and_no_document_s_fault(bank, run, monkeypatch):
    path = bank("biolaysumm_plos", "bertscore_f1")

    def scorer(settings):
        raise UsageError("metric bertscore_f1 needs the package bert_score")

    monkeypatch.setattr(bertscore, "scorer", scorer)
    with pytest.raises(UsageError, match="needs the package bert_score"):
        run("biolaysumm_plos", path)


def test_one_document_that_breaks_a_batch_is_left_out_alone(bank, run, stand_ins, monkeypatch):
    bert, _ = stand_ins
    path = bank("biolaysumm_plos", "bertscore_f1")
    doc_id = run("biolaysumm_plos", path, folder="whole")["trace"][0]["doc_id"]
    broken = documents.biolaysumm_plos()[doc_id]["summary"]
    plain = bert.score

    def score(cands, refs, **more):
        if broken in refs:
            raise RuntimeError("index out of range")
        return plain(cands, refs, **more)

    monkeypatch.setattr(bert, "score", score)
    ranking = run("biolaysumm_plos", path)
    assert [entry["doc_id"] for entry in ranking["excluded"]] == [doc_id]
    assert "index out of range" in ranking["excluded"][0]["reason"]
    assert [entry["model"] for entry in ranking["ranking"]] == ["strong", "weak"]
    assert all(step["score"] is not None for step in ranking["trace"] if step["doc_id"] != doc_id)


def test_a_judge_that_is_away_ends_the_run_and_no_model_is_blamed(bank, run, monkeypatch, tmp_path):
    task = "truthfulqa_gen_adaptive"
    path = bank(task, "judge")
    whole = run(task, path, folder="whole")
    monkeypatch.setenv("LMEVAL_ADAPTIVE_CACHE", str(tmp_path / "other"))
    asked = []

    def away(messages, settings, sleep=None):
        asked.append(1)
        if len(asked) > 8:
            raise ModelError("judge fake-judge gave no reply in 6 attempts")
        return fakes.fake_verdict(messages, settings)

    monkeypatch.setattr(judge, "ask_server", away)
    with pytest.raises(ScoringError, match=r"fake-judge gave no reply.*--resume") as caught:
        run(task, path)
    assert caught.value.exit_code == 1
    monkeypatch.setattr(judge, "ask_server", fakes.fake_verdict)
    ranking = run(task, path, resume=tmp_path / "out")
    assert not ranking["set_aside"]
    assert {**ranking, "date": ""} == {**whole, "date": ""}


def test_a_run_is_not_resumed_under_another_judge(bank, run, monkeypatch, tmp_path):
    task = "truthfulqa_gen_adaptive"
    path = bank(task, "judge")
    run(task, path)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_MODEL", "other-judge")
    with pytest.raises(DataError, match=r"scorer:judge;fake-judge.*scorer:judge;other-judge"):
        run(task, path, resume=tmp_path / "out")


def test_a_judge_without_a_model_is_told_before_anything_is_asked(bank, run, monkeypatch, tmp_path):
    task = "truthfulqa_gen_adaptive"
    path = bank(task, "judge")
    monkeypatch.delenv("LMEVAL_ADAPTIVE_JUDGE_MODEL")
    with pytest.raises(UsageError, match="metric judge has no model"):
        run(task, path)
    assert not (tmp_path / "out").exists()


def test_a_judge_of_a_candidate_s_family_is_told(bank, run, monkeypatch):
    task = "truthfulqa_gen_adaptive"
    path = bank(task, "judge")
    monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_MODEL", "Qwen/Qwen3-32B")
    ranking = run(task, path, {"Qwen2.5-7B-Instruct": 0.3, "strong": 0.9})
    (said,) = [each for each in ranking["warnings"] if "of one family (qwen)" in each]
    assert "candidate Qwen2.5-7B-Instruct" in said


def test_answers_without_a_verdict_are_counted(bank, run, monkeypatch, caplog):
    task = "truthfulqa_gen_adaptive"
    path = bank(task, "judge")
    silent = iter([True])

    def ask(messages, settings, sleep=None):
        quiet = next(silent, False)
        return Reply("I would rather not say.") if quiet else fakes.fake_verdict(messages, settings)

    monkeypatch.setattr(judge, "ask_server", ask)
    with caplog.at_level(logging.WARNING):
        ranking = run(task, path)
    total = len(ranking["trace"])
    assert f"1 of {total} answers have no judge" in ranking["warnings"]
    assert ranking["excluded"] == []  # it is the missing answer of one model


def test_a_metric_that_the_task_lacks_is_named(bank, run, tmp_path):
    from dataclasses import replace

    from lm_eval_adaptive.core.bank import ItemBank

    found = ItemBank.load(bank("govreport", "rougeL"))
    other = replace(found, info=replace(found.info, metric="rouge2"))
    with pytest.raises(TaskError, match="gives no metric 'rouge2'; it has rougeL"):
        run("govreport", str(other.save(tmp_path / "o.bank.parquet")))


def test_ranges_and_clipping_come_with_the_metric(task_logs):
    """Without a word from the user: BioLaySumm declares ROUGE-L, the others have theirs."""

    def made(task, metric):
        return calibrate_from(
            CalibrateOptions(task=task, metric=metric, samples=(str(task_logs),))
        ).info

    fkgl = made("biolaysumm_plos", "fkgl")
    assert (fkgl.scale.lo, fkgl.scale.hi, fkgl.scale.higher_is_better) == (0.0, 20.0, False)
    bleu = made("flores_tr_en", "sentence_bleu")
    assert (bleu.scale.lo, bleu.scale.hi) == (0.0, 100.0)
    judged = made("truthfulqa_gen_adaptive", "judge")
    assert (judged.scale.lo, judged.scale.hi) == (1.0, 10.0)
    assert {info.range_source for info in (fkgl, bleu, judged)} == {"declared"}
