"""Tasks that run models' answers as code: nothing runs before the user confirms it."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.errors import TaskError

from .small import run_adaptively, write_task

pytestmark = pytest.mark.contract

RUNNING = (
    """
unsafe_code: true
process_results: !function UTIL.run
metric_list:
  - {metric: score, aggregation: mean, higher_is_better: true}
""",
    """
import pathlib
def run(doc, results):
    (pathlib.Path(__file__).parent / "executed").touch()
    return words_right(doc, results)
""",
)


def test_unconfirmed_code_is_refused_before_anything_is_asked(tmp_path):
    path = write_task(tmp_path / "task", *RUNNING)
    with pytest.raises(TaskError, match=r"small is marked as unsafe.*--confirm_run_unsafe_code"):
        run_adaptively(tmp_path / "run", path)
    assert not (tmp_path / "task" / "executed").exists()
    assert not (tmp_path / "run" / "journal.jsonl").exists()


def test_confirmed_code_runs(tmp_path):
    path = write_task(tmp_path / "task", *RUNNING)
    found = run_adaptively(tmp_path / "run", path, confirm_run_unsafe_code=True)
    assert (tmp_path / "task" / "executed").exists()
    assert found["ranking"]["small"]["ranking"][0]["model"] == "miss-0"
