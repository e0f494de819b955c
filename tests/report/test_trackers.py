"""`--wandb_args` and `--trackio_args`: results per model by the harness's loggers, and the ranking.

The trackers are stand-ins with the calls that the harness's loggers and ours make; both packages
were tried for real, without a network, when this was written (wandb 0.31, trackio 0.43).
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy


class Artifact:
    def __init__(self, name, type=None):  # noqa: A002  as the trackers call it
        self.name, self.type, self.files = name, type, []

    def add_file(self, path):
        self.files.append(Path(path).name)

    @contextlib.contextmanager
    def new_file(self, name, mode="w", encoding=None):
        self.files.append(name)
        yield io.StringIO()


class Table:
    def __init__(self, columns=None, data=None, dataframe=None):
        self.columns = list(columns if dataframe is None else dataframe.columns)
        self.rows = list(data or []) if dataframe is None else dataframe.values.tolist()

    def add_data(self, *row):
        self.rows.append(list(row))


class Run:
    """One tracker run: what it was opened with and what it was sent."""

    def __init__(self, arguments):
        self.arguments, self.logged, self.artifacts, self.open = arguments, {}, [], True
        self.config, self.summary = {}, {}
        self.config = SimpleNamespace(update=lambda new, **_: self.settings.update(new))
        self.settings = {}

    def log(self, values, step=None):
        assert self.open
        self.logged.update(values)

    def log_artifact(self, artifact):
        self.artifacts.append(artifact)

    def finish(self):
        self.open = False


@pytest.fixture
def wandb(monkeypatch):
    return stand_in_for_wandb(monkeypatch)


def stand_in_for_wandb(monkeypatch):
    module = ModuleType("wandb")
    module.__version__, module.run, module.runs = "0.31.0", None, []
    module.Table, module.Artifact = Table, Artifact

    def init(**arguments):
        assert module.run is None or not module.run.open, "a run inside a run"
        module.run = Run(arguments)
        module.runs.append(module.run)
        finish = module.run.finish

        def close():
            finish()
            module.run = None

        module.run.finish = close
        return module.run

    module.init = init
    printer = ModuleType("wandb.sdk.lib.printer")
    printer.new_printer = lambda: None
    for name, each in {
        "wandb": module, "wandb.sdk": ModuleType("wandb.sdk"),
        "wandb.sdk.lib": ModuleType("wandb.sdk.lib"), "wandb.sdk.lib.printer": printer,
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, each)
    return module


@pytest.fixture
def trackio(monkeypatch):
    module = ModuleType("trackio")
    module.runs = []
    module.Table, module.Artifact = Table, Artifact
    module.Trace = lambda messages, metadata: (messages, metadata)

    def init(**arguments):
        module.runs.append(Run(arguments))
        module.config = module.runs[-1].config
        return module.runs[-1]

    module.init = init
    module.log = lambda values, step=None: module.runs[-1].log(values, step)
    module.log_artifact = lambda artifact: module.runs[-1].artifacts.append(artifact)  # noqa: PLW0108  the run is the last one then

    def finish():
        module.runs[-1].finish()

    module.finish = finish
    monkeypatch.setitem(sys.modules, "trackio", module)
    return module


def run(bank, folder, **harness):
    rules = AdaptiveConfig(bank=bank, min_items=4, confidence=0.999)
    return simple_evaluate(toy.models(), [toy.TASK], rules, output_path=str(folder), **harness)


def check_ranking_run(last, ranking, prefix):
    assert last.arguments["name"] == f"{prefix}ranking"
    table = last.logged[f"{toy.TASK}/ranking"]
    assert [row[:2] for row in table.rows] == [
        [entry["rank"], entry["model"]] for entry in ranking["ranking"]
    ]
    assert table.columns[:4] == ["rank", "model", "score", "score_se"]
    assert len(last.logged[f"{toy.TASK}/pairs"].rows) == len(ranking["pairs"])
    assert len(last.logged[f"{toy.TASK}/trace"].rows) == ranking["items_total"]
    (artifact,) = last.artifacts
    assert "report.html" in artifact.files
    assert [name for name in artifact.files if name.startswith(f"ranking_{toy.TASK}_")]
    assert not last.open


def test_wandb_gets_a_run_per_model_and_one_of_the_ranking(wandb, toy_bank, tmp_path):
    found = run(
        toy_bank, tmp_path, wandb_args={"project": "p", "name": "mine"},
        wandb_config_args={"note": "x"},
    )  # fmt: skip
    ranking = found["ranking"][toy.TASK]
    assert [each.arguments["name"] for each in wandb.runs] == [
        "mine/middle", "mine/strong", "mine/weak", "mine/ranking",
    ]  # fmt: skip
    assert {each.arguments["group"] for each in wandb.runs} == {"mine"}
    assert {each.arguments["project"] for each in wandb.runs} == {"p"}
    for each in wandb.runs:
        assert each.settings["note"] == "x"
        assert not each.open
    scores = {entry["model"]: entry["score"] for entry in ranking["ranking"]}
    items = {entry["model"]: entry["items"] for entry in ranking["ranking"]}
    for each in wandb.runs[:-1]:
        name = each.arguments["name"].partition("/")[2]
        assert each.logged[f"{toy.TASK}/rougeL,adaptive"] == scores[name]
        assert len(each.logged[f"{toy.TASK}_eval_results"]) == items[name]
        assert [artifact.type for artifact in each.artifacts] == ["eval_results", "samples_by_task"]
    check_ranking_run(wandb.runs[-1], ranking, "mine/")
    assert wandb.runs[-1].summary[f"{toy.TASK}/first"] == "strong"


def second_task(folder):
    """The toy task under another name."""
    own = toy.ROOT / "tasks" / "records" / "records_to_text.yaml"
    path = folder / "again.yaml"
    path.write_text(f"include: {own}\ntask: records_again\nmetadata: {{version: 1.0}}\n")
    return path


def test_several_tasks_stand_in_one_run_of_each_model(wandb, toy_bank, tmp_path):
    path = second_task(tmp_path)
    rules = AdaptiveConfig(
        bank={toy.TASK: toy_bank, "records_again": "none"}, metric="rougeL", items_per_model=8
    )
    found = simple_evaluate(
        toy.models(), [toy.TASK, str(path)], rules, output_path=str(tmp_path / "out"),
        wandb_args={"project": "p"},
    )  # fmt: skip
    assert [each.arguments["name"] for each in wandb.runs] == [
        "middle", "strong", "weak", "ranking",
    ]  # fmt: skip
    tasks = (toy.TASK, "records_again")
    assert set(found["ranking"]) == set(tasks)
    for each in wandb.runs[:-1]:
        name = each.arguments["name"]
        for task in tasks:
            (entry,) = [e for e in found["ranking"][task]["ranking"] if e["model"] == name]
            assert each.logged[f"{task}/rougeL,adaptive"] == entry["score"]
            assert len(each.logged[f"{task}_eval_results"]) == entry["items"]
    last = wandb.runs[-1]
    assert {f"{task}/ranking" for task in tasks} <= set(last.logged)


def test_several_tasks_are_pushed_to_the_hub_once_each(monkeypatch, toy_bank, tmp_path):
    pushed = []

    class Api:
        def __init__(self, *_, **__): ...

        def create_repo(self, **__): ...

        def upload_folder(self, **given):
            pushed.append(("results", given.get("path_in_repo", "")))

        def upload_file(self, **given):
            pushed.append(("results", given["path_in_repo"]))

        def __getattr__(self, name):
            return lambda *_, **__: None

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    monkeypatch.setattr(
        "lm_eval.loggers.EvaluationTracker.recreate_metadata_card",
        lambda self: pushed.append(("card", "")),
    )
    path = second_task(tmp_path)
    rules = AdaptiveConfig(
        bank={toy.TASK: toy_bank, "records_again": "none"}, metric="rougeL", items_per_model=8
    )
    found = simple_evaluate(
        toy.models(), [toy.TASK, str(path)], rules, output_path=str(tmp_path / "out"),
        hf_hub_log_args={
            "hub_results_org": "org", "details_repo_name": "d", "results_repo_name": "r",
            "push_results_to_hub": True, "push_samples_to_hub": True, "token": "t",
        },
    )  # fmt: skip
    assert set(found["ranking"]) == {toy.TASK, "records_again"}
    assert pushed.count(("card", "")) == 1
    # Results and samples of three models on two tasks.
    assert len(pushed) - 1 == 3 * 2 * 2, pushed


def test_trackio_gets_a_run_per_model_and_one_of_the_ranking(trackio, toy_bank, tmp_path):
    found = run(toy_bank, tmp_path, trackio_args={"project": "p"})
    ranking = found["ranking"][toy.TASK]
    assert [each.arguments["name"] for each in trackio.runs] == [
        "middle", "strong", "weak", "ranking",
    ]  # fmt: skip
    assert {each.arguments["group"] for each in trackio.runs} == {tmp_path.name}
    scores = {entry["model"]: entry["score"] for entry in ranking["ranking"]}
    for each in trackio.runs[:-1]:
        assert each.logged[f"{toy.TASK}/rougeL,adaptive"] == scores[each.arguments["name"]]
        assert f"{toy.TASK}/sample" in each.logged
    check_ranking_run(trackio.runs[-1], ranking, "")
    assert trackio.runs[-1].logged[f"{toy.TASK}/items_total"] == ranking["items_total"]


def test_a_tracker_that_fails_costs_nothing_but_a_warning(wandb, toy_bank, tmp_path, caplog):
    def broken(**_):
        raise ConnectionError("the tracker is away")

    wandb.init = broken
    with caplog.at_level(logging.WARNING):
        found = run(toy_bank, tmp_path, wandb_args={"project": "p"})
    assert found["ranking"][toy.TASK]["ranking"]
    assert "logging to W&B failed (ConnectionError: the tracker is away)" in caplog.text


def test_what_cannot_be_tracked_is_refused_before_anything_is_asked(
    toy_bank, tmp_path, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(
        UsageError, match=r"--wandb_args needs the package wandb: pip install wandb"
    ):
        run(toy_bank, tmp_path, wandb_args={"project": "p"})
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    with pytest.raises(UsageError, match="cannot share an id"):
        run(toy_bank, tmp_path, wandb_args={"id": "abc"})
    assert toy.ToyLM.calls == []
    assert not list(tmp_path.iterdir())
