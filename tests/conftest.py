"""A bank for records_to_text, calibrated on toy models through the harness's own logs.

The imports stand inside the fixtures, so that the core's tests run where no harness is installed.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

# A machine that is shared may take a second for what takes a millisecond; no test is of time.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture(scope="session", autouse=True)
def no_store_of_the_machine(tmp_path_factory):
    """No test reads or writes the banks that the machine's user keeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path_factory.mktemp("home") / "store"))
        yield


@pytest.fixture(scope="session")
def toy_logs(tmp_path_factory):
    """Sample logs of the calibration models, written by lm_eval itself."""
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    from lm_eval_adaptive.host.find_tasks import tasks_folder
    from tests.support import toy

    toy.register()
    folder = tmp_path_factory.mktemp("toy_logs")
    manager = TaskManager(include_path=str(tasks_folder()), include_defaults=False)
    for name, share in toy.CALIBRATION.items():
        tracker = EvaluationTracker(output_path=str(folder))
        results = simple_evaluate(
            model="toy",
            model_args={"share": share, "name": name},
            tasks=[toy.TASK],
            task_manager=manager,
            log_samples=True,
            bootstrap_iters=0,
            evaluation_tracker=tracker,
        )
        tracker.general_config_tracker.model_name = name
        tracker.general_config_tracker.model_name_sanitized = name
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name=toy.TASK, samples=samples[toy.TASK])
    return folder


@pytest.fixture(scope="session")
def toy_bank(toy_logs, tmp_path_factory):
    """Path of a bank calibrated on those logs."""
    from lm_eval_adaptive.banks.calibrate import calibrate_from
    from lm_eval_adaptive.banks.options import CalibrateOptions
    from tests.support import toy

    bank = calibrate_from(
        CalibrateOptions(task=toy.TASK, metric="rougeL", samples=(str(toy_logs),))
    )
    return bank.save(tmp_path_factory.mktemp("bank") / "records.bank.parquet")
