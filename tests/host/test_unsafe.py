"""Tasks that run code, of answers or of their data: nothing runs before the user allows it."""

from __future__ import annotations

import pytest

from lm_eval_adaptive.errors import TaskError

from .small import register, run_adaptively, write_task

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


def trusting(folder):
    """A task whose data are said to need code of their own; a function stands for that code."""
    path = write_task(
        folder,
        "custom_dataset: !function UTIL.load",
        """
import pathlib
def load(data_files, **_):
    import datasets
    (pathlib.Path(__file__).parent / "executed").touch()
    return datasets.load_dataset("json", data_files=data_files)
""",
    )
    text = path.read_text(encoding="utf-8")
    asked = text.replace("dataset_kwargs: {", "dataset_kwargs: {trust_remote_code: true, ")
    path.write_text(asked, encoding="utf-8")
    return path


@pytest.fixture
def old_datasets(monkeypatch):
    """Versions before 4 run the code of data sets."""
    monkeypatch.setattr("datasets.__version__", "3.6.0")


def test_where_no_code_of_data_runs_a_task_that_names_it_loads_as_in_a_plain_run(tmp_path):
    path = trusting(tmp_path / "task")
    found = run_adaptively(tmp_path / "run", path)
    assert found["ranking"]["small"]["ranking"][0]["model"] == "miss-0"


@pytest.mark.usefixtures("old_datasets")
def test_bank_check_opens_no_data_with_code_either(tmp_path, capsys):
    from lm_eval_adaptive.cli.main import main

    path = trusting(tmp_path / "task")
    assert main(["bank", "check", "gsm8k", "--tasks", str(path)]) == 2
    assert "asks for trust_remote_code" in capsys.readouterr().err
    assert not (tmp_path / "task" / "executed").exists()


@pytest.mark.usefixtures("old_datasets")
def test_code_of_the_data_is_refused_before_they_are_opened(tmp_path):
    path = trusting(tmp_path / "task")
    with pytest.raises(TaskError, match=r"small asks for trust_remote_code.*--trust_remote_code"):
        run_adaptively(tmp_path / "run", path)
    assert not (tmp_path / "task" / "executed").exists()
    assert not (tmp_path / "run" / "journal.jsonl").exists()


def test_code_of_the_data_that_is_allowed_runs(tmp_path):
    path = trusting(tmp_path / "task")
    found = run_adaptively(tmp_path / "run", path, trust_remote_code=True)
    assert (tmp_path / "task" / "executed").exists()
    assert found["ranking"]["small"]["ranking"][0]["model"] == "miss-0"


@pytest.mark.usefixtures("old_datasets")
def test_the_command_refuses_it_in_one_line(tmp_path, capsys):
    from lm_eval_adaptive.cli.main import main

    path = trusting(tmp_path / "task")
    words = ["run", "--adaptive", "--bank", "none", "--tasks", str(path)]
    register()
    models = ["--model", "word", "--model_args", "miss=0", "--model_name", "a"]
    models += ["--model", "word", "--model_args", "miss=2", "--model_name", "b"]
    assert main([*words, *models, "--output_path", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err.strip()
    assert "asks for trust_remote_code" in said, said
    assert "\n" not in said
    assert not (tmp_path / "task" / "executed").exists()
