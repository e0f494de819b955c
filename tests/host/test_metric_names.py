"""Names, ranges and directions of metrics, wherever they are asked for."""

from __future__ import annotations

import json

import pytest

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.host.scoring import direction

from .small import run_adaptively, write_task
from .test_aggregations import log_plainly

pytestmark = pytest.mark.contract

ODD = (
    """
metric_list:
  - {metric: !function UTIL.pass_at_k, aggregation: !function UTIL.agg, higher_is_better: true}
metadata: {version: 1.0, adaptive: {range: [0, 2]}}
""",
    """
from functools import partial
def agg(values):
    numbers = [value[0] if isinstance(value, list) else value for value in values]
    return sum(numbers) / len(numbers)
def _pass(references, predictions, scale=1, **kwargs):
    want, got = references[0].split(), predictions[0].split()
    share = sum(a == b for a, b in zip(want, got)) / len(want)
    return {"pass@1": share, "pass,strict": float(share > 0.5), "rouge/1": share * 2, "a b": [share]}
def pass_at_k(references, predictions, **kwargs):
    return _pass(references, predictions, **kwargs)
partly = partial(_pass, scale=2)
partly.__name__ = "partly"
""",
)


@pytest.mark.parametrize("metric", ["pass@1", "pass,strict", "rouge/1", "a b", "pass,strict,none"])
def test_metrics_of_a_function_are_ranked_under_their_own_names(tmp_path, metric):
    path = write_task(tmp_path / "task", *ODD)
    found = run_adaptively(tmp_path / "run", path, adaptive={"metric": metric})
    ranking = found["ranking"]["small"]
    assert ranking["metric"] == metric.removesuffix(",none")
    assert ranking["higher_is_better"] is True
    assert [row["model"] for row in ranking["ranking"]] == ["miss-0", "miss-2"]


def test_a_partial_is_a_metric_like_any(tmp_path):
    path = write_task(tmp_path / "task", ODD[0].replace("pass_at_k", "partly"), ODD[1])
    found = run_adaptively(tmp_path / "run", path, adaptive={"metric": "pass@1"})
    assert [row["model"] for row in found["ranking"]["small"]["ranking"]] == ["miss-0", "miss-2"]


def test_logs_with_such_names_calibrate(tmp_path):
    path = write_task(tmp_path / "task", *ODD)
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    for metric in ("pass,strict", "rouge/1"):
        bank = calibrate_from(
            CalibrateOptions(
                task="small",
                metric=metric,
                samples=(str(logs),),
                score_range=(0.0, 2.0),
                lower_is_better=False,
            )
        )
        assert bank.info.metric == metric
        saved = bank.save(tmp_path / f"{metric.replace('/', '_')}.bank.parquet")
        found = run_adaptively(
            tmp_path / metric.replace("/", "_"),
            path,
            adaptive={"metric": metric, "bank": str(saved), "items_per_model": 12},
        )
        assert found["ranking"]["small"]["ranking"][0]["model"] == "miss-0"


LOW = (
    """
process_results: !function UTIL.both
metric_list:
  - {metric: wer, aggregation: mean, higher_is_better: false}
  - {metric: diff, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0, adaptive: {ranges: {wer: [0, 3], diff: [-0.5, 0.5]}}}
""",
    """
def both(doc, results):
    score = words_right(doc, results)["score"]
    return {"wer": 3 * (1 - score), "diff": score - 0.5}
""",
)


@pytest.mark.parametrize("metric", ["wer", "diff"])
def test_either_direction_ranks_the_better_model_first(tmp_path, metric):
    path = write_task(tmp_path / "task", *LOW)
    found = run_adaptively(tmp_path / "run", path, adaptive={"metric": metric})
    ranking = found["ranking"]["small"]
    assert ranking["higher_is_better"] is (metric == "diff")
    assert [row["model"] for row in ranking["ranking"]] == ["miss-0", "miss-2"]


@pytest.mark.parametrize("metrics", [["wer", "diff"], ["diff", "wer"]])
def test_simulation_turns_errors_round_beside_a_gain(tmp_path, metrics):
    from lm_eval_adaptive.cli.main import build_parser
    from lm_eval_adaptive.cli.simulate import matrices

    path = write_task(tmp_path / "task", *LOW)
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 5))
    words = ["simulate", "--samples", str(logs), "--task", "small", "--metric"]
    parser, _ = build_parser()

    def means(*asked):
        namespace = parser.parse_args([*words, *asked])
        found = {metric: matrix.scores.mean(axis=1) for _, metric, matrix in matrices(namespace)}
        return found, namespace.lower_is_better

    found, lower = means(*metrics)
    assert not lower
    for scores in found.values():  # miss-2 misses most, miss-5 least
        assert scores[0] < scores[1] < scores[2]
    alone, lower = means("wer")
    assert lower
    assert alone["wer"][0] > alone["wer"][2]


def test_directions_by_name_where_nobody_says():
    assert [direction(name, None) for name in ("wer", "cer", "ter", "metricx")] == [False] * 4
    assert direction("wer", True) is True, "the task's own word comes first"
    assert direction("ter", True) is False, "old logs call it a gain"
    assert direction("mine", None) is None


def test_a_range_below_zero_is_no_option(tmp_path, capsys):
    path = write_task(tmp_path / "task", *LOW)
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    words = ["calibrate", "--samples", str(logs), "--task", "small", "--metric", "diff"]
    words += ["--range", "-1,3", "--output", str(tmp_path / "diff.bank.parquet")]
    assert main(words) == 0, capsys.readouterr().err
    assert "-1" in capsys.readouterr().out


RAISING = (
    """
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
  - {metric: !function UTIL.frail, aggregation: mean, higher_is_better: true}
metadata: {version: 1.0, adaptive: {range: [0, 1]}}
""",
    """
def frail(references, predictions, **kwargs):
    if "river" in references[0] and "nowhere" in predictions[0]:
        raise ValueError("no such place")
    return float(references[0] == predictions[0])
""",
)


@pytest.mark.parametrize("metric", ["exact_match", "frail"])
def test_a_metric_that_raises_is_missing_by_itself(tmp_path, metric):
    path = write_task(tmp_path / "task", *RAISING)
    run_adaptively(tmp_path / "run", path, adaptive={"metric": metric})
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    mine = [each for each in lines if each["type"] == "answer" and each["model"] == "miss-2"]
    lost = [each for each in mine if each["problem"]]
    if metric == "exact_match":
        assert len(mine) == 24
        assert not lost, "the other metric's fault is not this one's"
    else:
        assert lost
        assert all("no such place" in each["problem"] for each in lost)
        assert all(each["metrics"]["none"]["exact_match"] == 0.0 for each in lost)
