"""The Python face: its names, and that what is made of a run never costs the run."""

from __future__ import annotations

import pytest

import lm_eval_adaptive
from lm_eval_adaptive import api
from lm_eval_adaptive.errors import Interrupted, UsageError
from lm_eval_adaptive.host.settings import HarnessSettings
from lm_eval_adaptive.host.stop import Stop
from lm_eval_adaptive.records.outcome import RunOutcome
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.loop import AdaptiveRun


def test_the_package_shows_the_names_of_its_face():
    assert set(lm_eval_adaptive.__all__) == {"__version__", *api.__all__}
    assert all(getattr(lm_eval_adaptive, name) is getattr(api, name) for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'perform'"):
        _ = lm_eval_adaptive.perform


@pytest.mark.parametrize("name", ["limit", "samples", "predict_only", "cache_requests", "model"])
def test_what_would_choose_documents_is_refused(name):
    with pytest.raises(UsageError, match=f"do not take {name}"):
        api.simple_evaluate([], ["t"], **{name: 1})


def test_an_unknown_keyword_is_named():
    with pytest.raises(UsageError, match=r"unknown keyword.*num_fewshots; known are .*num_fewshot"):
        api.simple_evaluate([{"model": "hf"}], ["t"], num_fewshots=1)


class Ran(AdaptiveRun):
    """A run that is over at once."""

    def __init__(self, folder, error=None):
        self.settings, self.output_path, self.error = HarnessSettings(), folder, error
        self.stop, self.adaptive = Stop(), AdaptiveConfig()

    def run(self):
        if self.error is not None:
            raise self.error
        return RunOutcome(self.output_path)


def test_an_interrupted_run_has_its_page(tmp_path, monkeypatch):
    pages = []
    monkeypatch.setattr(api, "_page", pages.append)
    with pytest.raises(Interrupted):
        api.perform(Ran(tmp_path, Interrupted("stopped by you")))
    assert pages == [tmp_path]


def test_a_page_that_cannot_be_made_costs_the_run_nothing(tmp_path, caplog):
    outcome = api.perform(Ran(tmp_path))  # an empty folder has no run to show
    assert outcome == RunOutcome(tmp_path)
    assert "no report.html (UsageError: report: " in caplog.text


def test_stopped_while_the_page_is_made_the_run_says_how_to_go_on(tmp_path, monkeypatch):
    def stopped(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "_page", stopped)
    with pytest.raises(Interrupted, match=rf"go on with --resume {tmp_path}"):
        api.perform(Ran(tmp_path))


def test_trackers_are_told_last(tmp_path, monkeypatch):
    from lm_eval_adaptive.report import trackers

    told = []
    monkeypatch.setattr(api, "_page", lambda folder: folder / "report.html")
    monkeypatch.setattr(trackers, "track", lambda settings, outcome: told.append(outcome))
    api.perform(Ran(tmp_path))
    assert told == [RunOutcome(tmp_path, report=tmp_path / "report.html")]


def test_every_keyword_of_the_harness_is_taken_or_refused():
    """A new keyword of the harness fails here until someone decides what becomes of it."""
    import inspect

    from lm_eval import simple_evaluate

    names = set(inspect.signature(simple_evaluate).parameters)
    taken = set(HarnessSettings.__dataclass_fields__) | set(api._SEEDS) | set(api._IDLE)
    taken |= {"task_manager", "evaluation_tracker"}
    assert names <= taken | api._REFUSED, sorted(names - taken - api._REFUSED)
    assert not taken & api._REFUSED


def test_keywords_at_their_defaults_are_as_good_as_none():
    """A call that spells out the harness's defaults is the call without them."""
    import inspect

    from lm_eval import simple_evaluate

    defaults = {
        name: each.default
        for name, each in inspect.signature(simple_evaluate).parameters.items()
        if each.default is not each.empty
        and name not in {"tasks", "fewshot_as_multiturn", "task_manager"}
    }
    assert api._settings(["t"], defaults) == api._settings(["t"], {})


def test_what_cannot_be_honoured_is_said_in_one_line(caplog):
    given = {"bootstrap_iters": 500, "log_samples": False, "verbosity": "DEBUG"}
    settings = api._settings(["t"], {**given, "gen_kwargs": "temperature=0.5"})
    assert settings.gen_kwargs == {"temperature": 0.5}
    (record,) = caplog.records
    assert all(name in record.getMessage() for name in given)


def test_task_objects_and_the_caller_s_task_manager(tmp_path):
    """As ``lm_eval.evaluate`` takes them; a tracker's folder is the run's."""
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    from tests.host import small

    small.register()
    folder = tmp_path / "tasks"
    small.write_task(folder, "", name="first")
    path = small.write_task(folder, "", name="second")
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    objects = list(manager.load([small.config_of(path)])["tasks"].values())
    models = [{"name": str(miss), "model": "word", "model_args": {"miss": miss}} for miss in (0, 2)]
    found = api.simple_evaluate(
        models,
        [*objects, "first"],
        api.AdaptiveConfig(bank="none", items_per_model=6, min_items=2),
        task_manager=manager,
        evaluation_tracker=EvaluationTracker(output_path=str(tmp_path / "out")),
    )
    assert list(found["ranking"]) == ["second", "first"]
    assert found["output_path"] == tmp_path / "out"
    assert [each["model"] for each in found["ranking"]["second"]["ranking"]] == ["0", "2"]


def test_a_tracker_that_pushes_is_refused_with_the_way_to_do_it():
    class Pushing:
        push_results_to_hub, push_samples_to_hub, output_path = True, False, "out"

    with pytest.raises(UsageError, match="hf_hub_log_args"):
        api.simple_evaluate([], ["t"], evaluation_tracker=Pushing())
