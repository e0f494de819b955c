"""The shipped tasks over local documents, and logs of toy models on them."""

from __future__ import annotations

import json

import pytest
import yaml

from lm_eval_adaptive.host.find_tasks import tasks_folder
from tests.tasks import documents, fakes

CALIBRATION = {"cal-20": 0.2, "cal-35": 0.35, "cal-50": 0.5, "cal-65": 0.65, "cal-80": 0.8, "cal-95": 0.95}  # fmt: skip


@pytest.fixture(scope="session")
def local_tasks(tmp_path_factory):
    """Folder of task files that include the shipped ones and read local documents."""
    folder = tmp_path_factory.mktemp("local_tasks")
    for name, (rows, path, split) in documents.TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows()), encoding="utf-8")
        config = {
            "include": str(tasks_folder() / path),
            "task": name,
            "dataset_path": "json",
            "dataset_name": None,
            "custom_dataset": None,
            "dataset_kwargs": {"data_files": {split: str(data)}},
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def manager(local_tasks):
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=str(local_tasks), include_defaults=False)


@pytest.fixture(scope="session")
def task_logs(local_tasks, manager, tmp_path_factory):
    """Sample logs of the calibration models on all five tasks, written by lm_eval itself."""
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker

    fakes.register()
    folder = tmp_path_factory.mktemp("task_logs")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        fakes.install(monkeypatch, tmp_path_factory.mktemp("judge"))
        for name, share in CALIBRATION.items():
            tracker = EvaluationTracker(output_path=str(folder))
            results = simple_evaluate(
                model="task_toy",
                model_args={"share": share, "name": name},
                tasks=list(documents.TASKS),
                task_manager=manager,
                log_samples=True,
                bootstrap_iters=0,
                evaluation_tracker=tracker,
            )
            tracker.general_config_tracker.model_name = name
            tracker.general_config_tracker.model_name_sanitized = name
            samples = results.pop("samples")
            tracker.save_results_aggregated(results=results, samples=samples)
            for task, rows in samples.items():
                tracker.save_results_samples(task_name=task, samples=rows)
    return folder
