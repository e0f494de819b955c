"""A task's own aggregation: the mean that is estimated is the harness's number, or is refused."""

from __future__ import annotations

import json

import pytest

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.errors import DataError, TaskError
from lm_eval_adaptive.host.logs import find_runs

from .small import documents, run_adaptively, run_plainly, write_task

pytestmark = pytest.mark.contract

LENGTHS = (
    """
process_results: !function UTIL.by_length
metric_list:
  - {metric: "4096", aggregation: !function UTIL.of_kind, higher_is_better: true}
  - {metric: "8192", aggregation: !function UTIL.of_kind, higher_is_better: true}
metadata: {version: 1.0, adaptive: {range: [0, 1]}}
""",
    """
def by_length(doc, results):
    score = words_right(doc, results)["score"]
    long = "river" in doc["question"] or "moor" in doc["question"]
    return {"4096": -1.0 if long else score, "8192": score if long else -1.0}
def of_kind(values):
    kept = [value for value in values if value >= 0]
    return sum(kept) / len(kept) if kept else -1
""",
)


def all_of(folder, path, metric, **options):
    """A run that asks all 24 documents."""
    adaptive = {"metric": metric, "items_per_model": 24}
    return run_adaptively(folder, path, adaptive=adaptive, **options)


def test_a_sentinel_is_no_item_and_the_score_is_the_harness_s(tmp_path):
    path = write_task(tmp_path / "task", *LENGTHS)
    for metric in ("4096", "8192"):
        found = all_of(tmp_path / metric, path, metric, misses=(0, 5))
        scores = {row["model"]: row["score"] for row in found["ranking"]["small"]["ranking"]}
        for miss in (0, 5):
            plain = run_plainly(path, miss=miss)["results"]["small"][f"{metric},none"]
            assert scores[f"miss-{miss}"] == pytest.approx(plain)
        assert 0.0 < scores["miss-5"] < scores["miss-0"] == 1.0


def test_a_document_without_the_metric_or_with_none_is_no_item(tmp_path):
    yaml = LENGTHS[0].replace("UTIL.of_kind", "UTIL.nanmean").replace("by_length", "some")
    code = """
import numpy as np
def nanmean(values):
    kept = [value for value in values if value is not None]
    return sum(kept) / len(kept)
def some(doc, results):
    score = words_right(doc, results)["score"]
    found = {"4096": score if "river" in doc["question"] else None}
    if "moor" in doc["question"]:
        found["8192"] = score
    return found
"""
    path = write_task(tmp_path / "task", yaml, code)
    for metric in ("4096", "8192"):
        found = all_of(tmp_path / metric, path, metric, misses=(0, 5))
        scores = {row["model"]: row["score"] for row in found["ranking"]["small"]["ranking"]}
        for miss in (0, 5):
            plain = run_plainly(path, miss=miss)["results"]["small"][f"{metric},none"]
            assert scores[f"miss-{miss}"] == pytest.approx(plain)


@pytest.mark.parametrize(
    ("aggregation", "name"),
    [
        ("median", "median"),
        ("!function UTIL.best", "best"),
        ("!function UTIL.rooted", "rooted"),
        ("!function UTIL.late", "late"),
    ],
)
def test_what_is_no_mean_is_refused_by_name_before_anything_is_asked(tmp_path, aggregation, name):
    yaml = f"""
process_results: !function UTIL.words_right
metric_list:
  - {{metric: score, aggregation: {aggregation}, higher_is_better: true}}
"""
    code = """
def best(values):
    return max(values)
def rooted(values):
    return (sum(value * value for value in values) / len(values)) ** 0.5
def late(values):
    return sum(n * value for n, value in enumerate(values)) / max(1, sum(range(len(values))))
"""
    path = write_task(tmp_path / "task", yaml, code)
    with pytest.raises(TaskError, match=rf"aggregates score by {name}, which is no mean.*--metric"):
        all_of(tmp_path / "run", path, "score")
    assert not (tmp_path / "run" / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("body", "notice"),
    [
        ("100 * sum(values) / len(values)", "multiplies the mean by 100"),
        ("sum(values)", "is a sum over documents"),
        ("0.0", "gives 0 whatever"),
        ("sum(values) / len(values)", ""),
    ],
)
def test_multiples_of_a_mean_are_ranked_and_told(tmp_path, body, notice):
    yaml = """
process_results: !function UTIL.words_right
metric_list:
  - {metric: score, aggregation: !function UTIL.agg, higher_is_better: true}
"""
    path = write_task(tmp_path / "task", yaml, f"def agg(values):\n    return {body}\n")
    ranking = all_of(tmp_path / "run", path, "score")["ranking"]["small"]
    assert [row["model"] for row in ranking["ranking"]] == ["miss-0", "miss-2"]
    told = [line for line in ranking["warnings"] if "aggregation" in line]
    assert told == [] if not notice else notice in told[0]


def log_plainly(folder, path, misses, **options):
    from lm_eval.loggers import EvaluationTracker

    for miss in misses:
        tracker = EvaluationTracker(output_path=str(folder))
        results = run_plainly(path, miss=miss, evaluation_tracker=tracker, **options)
        general = tracker.general_config_tracker
        general.model_name = general.model_name_sanitized = f"miss-{miss}"
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name="small", samples=samples["small"])
    return folder


def test_logs_with_a_sentinel_calibrate_on_the_documents_of_the_kind(tmp_path):
    path = write_task(tmp_path / "task", *LENGTHS)
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    scored = score_matrix(find_runs(logs, "small"), "8192")
    assert sum("leaves out" in notice for notice in scored.notices) == 1
    assert (scored.matrix.scores >= 0).sum() == 6 * 12
    for row, run in enumerate(scored.runs):
        own = scored.matrix.scores[row]
        assert own[own >= 0].mean() == pytest.approx(run.totals["8192,none"])
    bank = calibrate_from(CalibrateOptions(task="small", metric="8192", samples=(str(logs),)))
    means = {model.name: model.mean_raw for model in bank.info.models}
    assert means["miss-2"] == pytest.approx(
        run_plainly(path, miss=2)["results"]["small"]["8192,none"]
    )
    assert min(means.values()) > 0.0


def test_logs_of_another_aggregation_are_refused_by_name(tmp_path):
    yaml = """
process_results: !function UTIL.words_right
metric_list:
  - {metric: score, aggregation: !function UTIL.best, higher_is_better: true}
"""
    path = write_task(tmp_path / "task", yaml, "def best(values):\n    return max(values)\n")
    logs = log_plainly(tmp_path / "logs", path, (2, 3))
    (results, _) = sorted(logs.rglob("results_*.json"))
    assert (
        "def best"
        in json.loads(results.read_text())["configs"]["small"]["metric_list"][0]["aggregation"]
    )
    with pytest.raises(DataError, match=r"score is aggregated by best.*gives 1 where the mean is"):
        score_matrix(find_runs(logs, "small"), "score")


def test_a_listed_metric_that_never_comes_ends_the_run_early_and_is_named(tmp_path):
    yaml = """
process_results: !function UTIL.words_right
metric_list:
  - {metric: score, aggregation: mean, higher_is_better: true}
  - {metric: never, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0, adaptive: {range: [0, 1]}}
"""
    docs = [{**doc, "question": f"{doc['question']} {n}"} for n in range(5) for doc in documents()]
    path = write_task(tmp_path / "task", yaml, docs=docs)
    told = r"lists the metric never and gave it for none of the \d+ documents asked; it gave score"
    with pytest.raises(TaskError, match=told):
        run_adaptively(
            tmp_path / "out", path, adaptive={"metric": "never", "items_per_model": None}
        )
    journal = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
    asked = {r["doc_id"] for r in map(json.loads, journal) if r["type"] == "answer"}
    assert 20 <= len(asked) <= 40


def test_a_corpus_score_says_that_the_mean_of_documents_stands_for_it(tmp_path):
    path = write_task(
        tmp_path / "task",
        "metric_list:\n  - {metric: chrf}\nmetadata: {version: 1.0, adaptive: {range: [0, 100]}}\n",
    )
    found = all_of(tmp_path / "run", path, "chrf")["ranking"]["small"]
    (said,) = [each for each in found["warnings"] if "aggregation of chrf" in each]
    assert said.endswith("scores here are the mean of the documents' own")
