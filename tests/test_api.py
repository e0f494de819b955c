"""The Python face: its names, and that what is made of a run never costs the run."""

from __future__ import annotations

import pytest

import lm_eval_adaptive
from lm_eval_adaptive import api
from lm_eval_adaptive.errors import Interrupted, UsageError
from lm_eval_adaptive.host.settings import HarnessSettings
from lm_eval_adaptive.records.outcome import RunOutcome
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
