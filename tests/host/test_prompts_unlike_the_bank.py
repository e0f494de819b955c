"""Prompts unlike those that calibrated a bank are told, and options that the harness ignores."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.core.bank import ItemBank

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


@pytest.fixture
def two_systems(tmp_path):
    """A bank of runs whose system prompts differ: no prompt is shared, what else is there is."""
    logs = tmp_path / "logs"
    path = write_task(tmp_path / "task", "description: 'Tell the place.'\n")
    for system, misses in ((None, (2, 3, 4)), ("Be brief.", (5, 6, 7))):
        log_plainly(logs, path, misses, system_instruction=system)
    bank = calibrate_from(CalibrateOptions(task="small", metric="score", samples=(str(logs),)))
    return path, bank, bank.save(tmp_path / "small.bank.parquet")


def test_what_all_prompts_share_is_kept_and_read_again(two_systems):
    _, bank, saved = two_systems
    facts = ItemBank.load(saved).info.prompts
    assert facts == bank.info.prompts
    assert facts.system_instruction is None
    assert facts.description
    assert facts.doc_to_text
    assert not any(bank.prompt_hash)
    assert all(ItemBank.load(saved).part_hash)


def test_the_setting_that_differs_is_named(two_systems, tmp_path):
    path, _, saved = two_systems
    assert not any("prompts" in line for line in warnings_of(tmp_path / "same", path, saved))
    other = write_task(tmp_path / "description", "description: 'Name the place.'\n")
    told = warnings_of(tmp_path / "run", other, saved)
    [line] = [each for each in told if "prompts" in each]
    assert "in the description:" in line
    yaml = "description: 'Tell the place.'\ndoc_to_text: 'Question: {{question}}'\n"
    told = warnings_of(tmp_path / "text", write_task(tmp_path / "text-task", yaml), saved)
    [line] = [each for each in told if "prompts" in each]
    assert "in the doc_to_text:" in line


def test_another_way_to_write_the_same_text_is_no_difference(two_systems, tmp_path):
    _, _, saved = two_systems
    yaml = "description: 'Tell the place.'\ndoc_to_text: '{{ question }}'\n"
    told = warnings_of(tmp_path / "run", write_task(tmp_path / "other", yaml), saved)
    assert not any("prompts" in line for line in told)


def test_another_system_instruction_is_named_where_prompts_differ(tmp_path):
    path = write_task(tmp_path / "task", "")
    logs = log_plainly(tmp_path / "logs", path, (2, 3, 4, 5, 6, 7))
    bank = calibrate_from(CalibrateOptions(task="small", metric="score", samples=(str(logs),)))
    saved = bank.save(tmp_path / "small.bank.parquet")
    told = warnings_of(tmp_path / "run", path, saved, system_instruction="Be brief.")
    assert any("in the system instruction:" in line for line in told)
    assert any("(another system instruction)" in line for line in told)
