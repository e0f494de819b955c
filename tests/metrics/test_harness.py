"""The metrics inside the harness: by name in a YAML, and by a task's helper."""

from __future__ import annotations

import json
import math
from collections import Counter
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import yaml

from lm_eval_adaptive.errors import TaskError, UsageError
from lm_eval_adaptive.metrics import METRICS, Metric, document_metrics, register
from lm_eval_adaptive.metrics.registry import registrable


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    rows = [{"text": "Say it.", "target": "the cat sat"}, {"text": "Again.", "target": "a dog ran"}]
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = {
        "task": "by_name",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{target}}",
        "metric_list": [{"metric": "rougeL"}, {"metric": "sentence_bleu"}],
    }
    (tmp_path / "by_name.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return tmp_path


def test_names_work_in_a_metric_list(folder):
    from lm_eval.tasks import TaskManager

    register()
    register()
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    task = manager.load(["by_name"])["tasks"]["by_name"]
    found = task.process_results(task.eval_docs[0], ["the cat sat"])
    assert found == {"rougeL": 1.0, "sentence_bleu": pytest.approx(100.0)}
    assert task.process_results(task.eval_docs[0], [""])["rougeL"] == 0.0
    assert task.higher_is_better() == {"rougeL": True, "sentence_bleu": True}
    assert task.aggregation()["rougeL"]([0.0, 1.0]) == 0.5


def test_a_yaml_can_name_the_function_without_registering(folder):
    from lm_eval.tasks import TaskManager

    text = (folder / "by_name.yaml").read_text(encoding="utf-8").replace("by_name", "by_function")
    text = text.replace(
        "- metric: rougeL",
        "- metric: !function lm_eval_adaptive.metrics.registry.rougeL\n"
        "  aggregation: mean\n  higher_is_better: true",
    )
    (folder / "by_function.yaml").write_text(text, encoding="utf-8")
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    task = manager.load(["by_function"])["tasks"]["by_function"]
    assert task.process_results(task.eval_docs[0], ["the cat sat"])["rougeL"] == 1.0


def test_the_harness_s_own_metrics_stay(folder):
    from lm_eval.api.registry import get_metric

    before = get_metric("bleu")
    register()
    assert get_metric("bleu") is before
    assert "comet" not in registrable()


def test_settings_of_a_metric_list_entry_reach_the_metric(monkeypatch):
    from lm_eval.api.registry import get_metric

    from lm_eval_adaptive.metrics import bertscore
    from tests.tasks.fakes import FakeBert

    seen = []

    def scorer(settings):
        seen.append(settings)
        return FakeBert()

    monkeypatch.setattr(bertscore, "scorer", scorer)
    register()
    function = get_metric("bertscore_f1")
    assert function(references=["a b"], predictions=["a b"], model="/w", num_layers=6) == 1.0
    assert (seen[0].model, seen[0].num_layers) == ("/w", 6)


class TestDocumentMetrics:
    def test_columns_may_be_lists_numbers_or_functions(self):
        score = document_metrics("rougeL", reference=lambda doc: [doc["a"], doc["b"]])
        assert score({"a": "x y", "b": None}, ["x y"]) == {"rougeL": 1.0}
        assert document_metrics("rougeL", reference="n")({"n": 42}, ["42"]) == {"rougeL": 1.0}
        assert math.isnan(document_metrics("rougeL", reference="n")({"n": []}, ["42"])["rougeL"])

    @pytest.mark.parametrize("results", [[], [None], [[]], [[None]]])
    def test_no_answer_is_an_empty_answer(self, results):
        assert document_metrics("rougeL", reference="n")({"n": "x"}, results) == {"rougeL": 0.0}

    def test_a_missing_column_names_those_there_are(self):
        with pytest.raises(TaskError, match="no column 'summary', it has text, title"):
            document_metrics("rougeL", reference="summary")({"text": "", "title": ""}, ["x"])

    def test_settings_come_from_the_yaml(self, tmp_path):
        path = tmp_path / "task.yaml"
        path.write_text(
            "doc_to_text: !function nowhere.at_all\n"
            "metadata: {metrics: {bertscore: {model: /weights, num_layers: 3}}}\n",
            encoding="utf-8",
        )
        score = document_metrics("bertscore_f1", reference="n", settings=path)
        assert "/weights|layer:3" in score.signature()["bertscore_f1"]

    def test_a_metric_of_one_s_own(self):
        own = Metric("length", "tests.metrics.test_harness:length")
        score = document_metrics(own, "rougeL", reference="n")
        assert score({"n": "x"}, ["x y"]) == {"length": 3.0, "rougeL": 2 / 3}

    def test_nothing_left_to_compute_is_refused(self, monkeypatch):
        monkeypatch.setenv("LMEVAL_ADAPTIVE_METRICS", "bleu")
        with pytest.raises(UsageError, match="it has rougeL"):
            document_metrics("rougeL", reference="n")({"n": "x"}, ["x"])

    def test_an_empty_round(self):
        assert document_metrics("rougeL", reference="n").batch([], []) == []

    def test_every_metric_says_what_its_values_depend_on(self):
        settings = {"judge": {"rubric": "x", "model": "m"}}
        for metric in METRICS.values():
            text = metric.signature(settings)
            assert text.startswith(metric.name)
            assert "\n" not in text


def length(cases, settings):
    return [float(len(case.answer)) for case in cases]


class TestOddValues:
    """What a metric gives for a document beside a number."""

    @pytest.mark.parametrize(
        ("given", "expected"),
        [(3, 3.0), (True, 1.0), ([0.5], 0.5), (np.float32(0.5), 0.5), (np.array([2]), 2.0)],
    )
    def test_numbers_and_lists_of_one(self, monkeypatch, given, expected):
        assert self.score(monkeypatch, given) == {"odd": expected, "rougeL": 1.0}

    def test_nothing_is_missing_with_a_reason(self, monkeypatch):
        found = self.score(monkeypatch, None)
        assert math.isnan(found["odd"])
        assert "gives nothing" in found["odd"].reason
        assert found["rougeL"] == 1.0

    @pytest.mark.parametrize("given", [[(1, 2), (3, 4)], {"a": 1}, Counter("ab"), (1, 2), "x"])
    def test_another_shape_does_the_others_no_harm(self, monkeypatch, given):
        assert self.score(monkeypatch, given) == {"odd": given, "rougeL": 1.0}

    def score(self, monkeypatch, given):
        monkeypatch.setattr("tests.metrics.test_harness.length", lambda cases, settings: [given])
        own = Metric("odd", "tests.metrics.test_harness:length")
        return document_metrics(own, "rougeL", reference="n")({"n": "x"}, ["x"])

    def test_too_few_values_are_one_line(self, monkeypatch):
        monkeypatch.setattr("tests.metrics.test_harness.length", lambda cases, settings: [])
        own = Metric("odd", "tests.metrics.test_harness:length")
        with pytest.raises(TaskError, match="gave 0 values for 1 documents"):
            document_metrics(own)({}, ["x"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata: [1]", "must be a mapping of metric families"),
        ("metadata: {metrics: {bertscore: roberta}}", "bertscore must be a mapping"),
        ("metadata: {metrics: {", "cannot be read"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path, text, message):
    path = tmp_path / "task.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=message) as caught:
        document_metrics("bertscore_f1", reference="n", settings=path)({"n": "x"}, ["x"])
    assert "\n" not in str(caught.value)


def test_ranges_are_those_of_the_settings():
    settings = {"judge": {"rubric": "x", "model": "m", "scale": [0, 4]}}
    score = document_metrics("judge", "sentence_bleu", reference="n", settings=settings)
    assert score.ranges() == {"judge": (0.0, 4.0), "sentence_bleu": (0.0, 100.0)}


class TestPlugin:
    """What entry points name: loaded as the harness's main branch loads them."""

    @pytest.mark.parametrize("name", registrable())
    def test_a_metric_s_entry_point_brings_direction_and_aggregation(self, name):
        from lm_eval.api.registry import get_metric_aggregation, is_higher_better

        target = f"lm_eval_adaptive.metrics.registry:{name}"
        function = EntryPoint(name, target, "lm_eval.metrics").load()
        assert f"{function.__module__}:{function.__qualname__}" == target
        assert is_higher_better(name) is METRICS[name].higher_is_better
        assert get_metric_aggregation(name)([1.0, 0.0]) == 0.5

    def test_a_placeholder_of_ours_gives_way_and_another_s_stays(self, monkeypatch):
        from lm_eval.api import registry as host

        from lm_eval_adaptive.metrics import registry

        made = []

        def register_metric(**words):
            made.append(words["metric"])
            return lambda function: function

        ours = EntryPoint("rougeL", "lm_eval_adaptive.metrics.registry:rougeL", "lm_eval.metrics")
        other = EntryPoint("rouge1", "another.package:rouge1", "lm_eval.metrics")
        taken = {"rougeL": ours, "rouge1": other, "rouge2": len}
        monkeypatch.setattr(host, "metric_registry", taken)
        monkeypatch.setattr(host, "register_metric", register_metric)
        registry.register()
        assert "rougeL" in made
        assert not {"rouge1", "rouge2"} & set(made)

    def test_filter_and_aggregation_by_name(self):
        from lm_eval.api.registry import get_aggregation, get_filter

        register()
        found = get_filter("after_reasoning")().apply(
            [["<think>a 3?</think> 4", "5"], ["<think>cut"], [None]], [{}, {}, {}]
        )
        assert found == [["4", "5"], [""], [None]]
        assert get_aggregation("mean_of_scored")([1.0, math.nan, 0.0, None]) == 0.5
        assert math.isnan(get_aggregation("mean_of_scored")([None]))
