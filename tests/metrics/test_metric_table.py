"""``docs/metrics.md``: made anew it is the same, and its verdicts are those of the adaptor."""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def script():
    path = ROOT / "scripts" / "make" / "metric_table.py"
    spec = importlib.util.spec_from_file_location("metric_table", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(script):
    return script.make()


@pytest.mark.parametrize(
    ("entry", "own_results", "works"),
    [
        ({"metric": "exact_match"}, False, "yes"),
        ({"metric": "bleu", "aggregation": "bleu"}, False, "yes"),
        ({"metric": "ter"}, False, "yes"),
        ({"metric": "rougeL"}, False, "yes"),
        ({"metric": "f1"}, False, "no"),
        ({"metric": "acc"}, False, "no"),
        ({"metric": "f1", "aggregation": "mean"}, True, "yes"),
        ({"metric": "bleu", "aggregation": "bleu"}, True, "yes"),
        ({"metric": "f1", "aggregation": "/t/utils.agg_f1"}, True, "if numbers"),
        ({"metric": "/t/utils.rougeL", "aggregation": "mean"}, False, "yes"),
        ({"metric": "/t/utils.rougeL", "aggregation": "/t/utils.agg"}, False, "if numbers"),
        ({"metric": "accuracy", "hf_evaluate": True}, False, "if numbers"),
        ({"metric": "no_such_metric"}, False, "if numbers"),
    ],
)
def test_verdicts(script, entry, own_results, works):
    from lm_eval_adaptive.metrics import register

    register()
    assert script.metric_verdict(entry, own_results=own_results).works == works


def test_every_generation_task_has_a_verdict_and_a_reason_where_it_is_not_yes(made):
    _, found = made
    assert len(found) > 1000
    for verdicts in found.values():
        assert verdicts
        assert all(each.works == "yes" or each.why for each in verdicts)
    # Tasks whose logs are known to calibrate.
    for name in ("gsm8k", "truthfulqa-multi_gen_en", "wmt16-de-en", "eq_bench", "truthfulqa_gen"):
        assert any(each.works == "yes" for each in found[name]), name


@pytest.mark.skipif(
    f"lm_eval {version('lm_eval')};" not in PAGE.read_text(encoding="utf-8"),
    reason="docs/metrics.md is of another version of lm_eval",
)
def test_the_page_is_up_to_date(made):
    text, _ = made
    assert text == PAGE.read_text(encoding="utf-8"), "run python scripts/make/metric_table.py"
