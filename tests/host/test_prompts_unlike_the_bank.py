"""Prompts unlike those that calibrated a bank are told, and options that the harness ignores."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions

from .small import run_adaptively, run_plainly, write_task
from .test_aggregations import log_plainly

pytestmark = pytest.mark.contract


def warnings_of(folder, path, bank="none", **options):
    found = run_adaptively(
        folder, path, adaptive={"bank": str(bank), "items_per_model": 12}, **options
    )
    return found["ranking"]["small"]["warnings"]


@pytest.fixture
def two_shot(tmp_path):
    """A task whose plain runs have two examples, and a bank of such runs."""
    path = write_task(tmp_path / "task", "num_fewshot: 2\nfewshot_split: test\n")
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    bank = calibrate_from(CalibrateOptions(task="small", metric="score", samples=(str(logs),)))
    return path, bank.save(tmp_path / "small.bank.parquet")


def test_another_number_of_examples_than_the_bank_s_is_told(two_shot, tmp_path):
    path, bank = two_shot
    told = warnings_of(tmp_path / "zero", path, bank, num_fewshot=0)
    assert any("2 few-shot examples, this run's have 0" in line for line in told)
    told = warnings_of(tmp_path / "same", path, bank)
    assert not any("few-shot" in line for line in told)


def test_examples_that_the_task_refuses_are_told(tmp_path):
    path = write_task(tmp_path / "task", "num_fewshot: 0\nfewshot_split: test\n")
    plain = run_plainly(path, num_fewshot=2)
    assert plain["n-shot"]["small"] == 0, "the harness overrides a 0"
    told = warnings_of(tmp_path / "run", path, num_fewshot=2)
    assert any("--num_fewshot 2 is ignored, as in a plain run" in line for line in told)
    assert not any("ignored" in line for line in warnings_of(tmp_path / "none", path))


def test_runs_of_several_numbers_of_examples_leave_the_bank_without_one(tmp_path):
    logs = tmp_path / "logs"
    for shots, misses in ((0, (2, 3, 4)), (2, (5, 6, 7))):
        yaml = f"num_fewshot: {shots}\nfewshot_split: test\n"
        path = write_task(tmp_path / f"task{shots}", yaml)
        log_plainly(logs, path, misses)
    options = CalibrateOptions(
        task="small", metric="score", samples=(str(logs),), allow=("few_shot",)
    )
    assert calibrate_from(options).info.num_fewshot is None
