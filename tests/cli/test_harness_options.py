"""Each option of the harness's ``run`` works in an adaptive run, or is refused by name."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from lm_eval.api.model import LM

from lm_eval_adaptive.cli.harness_options import HONOURED, OURS, REFUSED
from lm_eval_adaptive.cli.main import build_parser, main
from lm_eval_adaptive.cli.request import own_keys, read_request
from lm_eval_adaptive.host.settings import HarnessSettings
from tests.host.small import WordLM, register, write_task


class Recorder(LM):
    """Answers everything with ``reply`` and keeps what it was made with and asked."""

    made: ClassVar = []

    def __init__(
        self, reply="near the old", batch_size=None, device=None, max_batch_size=None, **more
    ):
        super().__init__()
        self.reply, self.asked = reply, []
        self.made.append({"batch_size": batch_size, "device": device, **more})

    def generate_until(self, requests, disable_tqdm=False):
        self.asked += [request.args for request in requests]
        Recorder.made[-1].setdefault("asked", []).extend(request.args[1] for request in requests)
        return [self.reply] * len(requests)

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError


@pytest.fixture(autouse=True)
def models():
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.registry import model_registry

    register()
    if "recorder" not in model_registry:
        model_registry.register("recorder", target=Recorder)
    Recorder.made.clear()


@pytest.fixture
def task(tmp_path):
    return write_task(tmp_path / "tasks", "")


RULES = ["--bank", "none", "--items_per_model", "4", "--min_items", "2"]
MODELS = [
    "--model", "word", "--model_args", "miss=2", "--model_name", "half",
    "--model", "word", "--model_args", "miss=0", "--model_name", "whole",
]  # fmt: skip


def adaptive(*words):
    return main([str(word) for word in ["run", "--adaptive", *words]])


def refusal(capsys, *words):
    assert adaptive(*words) != 0
    (line,) = [
        each
        for each in capsys.readouterr().err.splitlines()
        if each.startswith("lm-eval-adaptive:")
    ]
    return line


def request_of(*words):
    parser, _ = build_parser()
    return read_request(parser.parse_args([str(word) for word in ["run", "--adaptive", *words]]))


def ranking_of(folder, name="small"):
    (path,) = Path(folder).glob(f"ranking_{name}_*.json")
    return json.loads(path.read_text(encoding="utf-8"))


def host_options():
    from lm_eval._cli import HarnessCLI

    run = HarnessCLI()._subparsers.choices["run"]
    return {action.dest for action in run._actions} - {"help"}


def test_every_option_of_the_host_s_parser_is_decided():
    """A new option of the harness fails here until someone decides what becomes of it."""
    decided = {*HONOURED, *OURS, *REFUSED}
    assert host_options() <= decided, sorted(host_options() - decided)
    assert len(HONOURED) + len(OURS) + len(REFUSED) == len(decided), "in one table each"
    assert len(host_options()) > 25, "the control: the parser was read"


def test_every_key_of_the_host_s_config_file_is_decided():
    from lm_eval.config.evaluate_config import EvaluatorConfig

    keys = {each.name for each in fields(EvaluatorConfig)}
    assert keys <= {*HONOURED, *OURS, *REFUSED}, sorted(keys - {*HONOURED, *OURS, *REFUSED})
    assert not keys & (own_keys() - {"adaptive"}), "an option of ours bears a host option's name"


def test_what_is_honoured_reaches_the_run():
    settings = {each.name for each in fields(HarnessSettings)}
    assert set(HONOURED) <= settings, sorted(set(HONOURED) - settings)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_on_the_line_and_in_a_file(name, task, tmp_path, capsys):
    value = {"limit": "3", "samples": '{"small": [1]}', "cache_requests": "true"}.get(name)
    words = [f"--{name}", value] if value else [f"--{name}"]
    line = refusal(capsys, "--tasks", task, *MODELS, *RULES, *words)
    assert f"--{name} does not go with --adaptive" in line
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({name: {"true": True} if name == "samples" else True}))
    line = refusal(capsys, "--tasks", task, *MODELS, *RULES, "--config", config)
    assert f"--{name} does not go with --adaptive" in line


def test_a_key_that_nobody_knows_is_named(task, tmp_path, capsys):
    config = tmp_path / "c.yaml"
    config.write_text("num_fewshots: 3\n")
    line = refusal(capsys, "--tasks", task, *MODELS, *RULES, "--config", config)
    assert "num_fewshots" in line


def test_a_file_s_model_is_a_candidate(task, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        yaml.safe_dump({"model": "word", "model_args": {"miss": 3}, "tasks": [str(task)]})
    )
    (only,) = request_of("--config", config).candidates
    assert (only.model, only.model_args) == ("word", {"miss": 3})
    config.write_text(yaml.safe_dump({"model": "word", "model_args": "miss=3", "tasks": "t"}))
    (only,) = request_of("--config", config).candidates
    assert only.model_args == {"miss": 3}


def test_the_line_s_models_take_the_place_of_a_file_s_and_it_is_said(task, tmp_path, caplog):
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump({"model": "hf", "model_args": {"pretrained": "a"}}))
    with caplog.at_level(logging.WARNING, "lm_eval_adaptive"):
        found = request_of("--config", config, "--tasks", task, *MODELS).candidates
    assert [each.name for each in found] == ["half", "whole"]
    assert "model: hf and model_args: gives way" in caplog.text
    caplog.clear()
    config.write_text(yaml.safe_dump({"model_args": {"miss": 5}}))
    (only,) = request_of("--config", config, "--tasks", task, "--model", "word").candidates
    assert only.model_args == {"miss": 5}, "as in a plain run"
    assert not caplog.text


def test_a_file_may_hold_models_beside_its_model(task, tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "model": "word",
                "model_args": {"miss": 3},
                "models": [{"name": "other", "model": "word"}],
            }
        )
    )
    found = request_of("--config", config, "--tasks", task).candidates
    assert {each.name for each in found} == {"other", "word"}


@pytest.mark.parametrize(
    ("given", "seeds"),
    [("0,7,None,9", (0, 7, None, 9)), ("5", (5, 5, 5, 5)), ("1,2,3", (1, 2, 3, 1234))],
)
def test_seeds_in_every_form_on_the_line_and_in_a_file(given, seeds, task, tmp_path):
    assert request_of("--tasks", task, *MODELS, "--seed", given).settings.seed == seeds
    listed = [None if each == "None" else int(each) for each in given.split(",")]
    for form in (listed if len(listed) > 1 else listed[0], listed):
        config = tmp_path / "c.yaml"
        config.write_text(yaml.safe_dump({"seed": form}))
        found = request_of("--tasks", task, *MODELS, "--config", config).settings.seed
        assert found == seeds


@pytest.mark.parametrize("ending", ["run.json", "run.parquet"])
def test_an_output_path_like_a_file_s_is_refused(ending, task, tmp_path, capsys):
    line = refusal(capsys, "--tasks", task, *MODELS, *RULES, "--output_path", tmp_path / ending)
    assert f"{ending} ends in .{ending.partition('.')[2]} like a file, expected a folder" in line
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize("ending", ["run.v1", "run"])
def test_output_path_with_any_other_ending_and_going_on(ending, task, tmp_path):
    folder = tmp_path / ending
    assert adaptive("--tasks", task, *MODELS, *RULES, "--output_path", folder) == 0
    assert ranking_of(folder)["ranking"][0]["model"] == "whole"
    assert len(list(folder.glob("half/samples_small_*.jsonl"))) == 1
    assert adaptive("--resume", folder) == 0


def test_tasks_as_files_folders_patterns_and_names_in_a_mix(tmp_path):
    one = write_task(tmp_path / "one", "", name="first")
    write_task(tmp_path / "two", "", name="second")
    (tmp_path / "two" / "template.yaml").write_text("output_type: generate_until\n")
    write_task(tmp_path / "three", "", name="third")
    out = tmp_path / "out"
    words = [
        "--tasks", one, tmp_path / "two", str(tmp_path / "t*o" / "s*.yaml"), f"{one},third",
        "--include_path", tmp_path / "three",
    ]  # fmt: skip
    assert adaptive(*words, *MODELS, *RULES, "--output_path", out) == 0
    found = sorted(path.name.split("_")[1] for path in out.glob("ranking_*.json"))
    assert found == ["first", "second", "third"]


def test_a_folder_without_tasks_is_named(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    line = refusal(capsys, "--tasks", tmp_path / "empty", *MODELS, *RULES)
    assert "holds no YAML file of a task" in line


CHOICE = """
output_type: multiple_choice
doc_to_choice: ["a", "b"]
doc_to_target: 0
process_results: null
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""


def mixed_group(folder):
    write_task(folder, "", name="writes")
    path = write_task(folder, "", name="chooses")
    config = yaml.load(path.read_text().replace("!function ", ""), yaml.SafeLoader)
    config.update(yaml.safe_load(CHOICE))
    del config["process_results"], config["generation_kwargs"]
    path.write_text(yaml.safe_dump(config))
    (folder / "both.yaml").write_text("group: both\ntask: [writes, chooses]\n")


def test_a_group_of_both_kinds_is_refused_by_task_and_goes_on_when_asked(tmp_path, capsys):
    mixed_group(tmp_path / "tasks")
    words = ["--tasks", "both", "--include_path", tmp_path / "tasks", *MODELS, *RULES]
    line = refusal(capsys, *words)
    assert "chooses (multiple_choice)" in line
    assert "writes" not in line
    assert "--generation_only" in line
    out = tmp_path / "out"
    assert adaptive(*words, "--generation_only", "--output_path", out) == 0
    assert any(
        "chooses (multiple_choice)" in each for each in ranking_of(out, "writes")["warnings"]
    )
    assert [path.name for path in out.glob("ranking_chooses*")] == []


def test_nothing_that_generates_is_refused_even_when_asked(tmp_path, capsys):
    mixed_group(tmp_path / "tasks")
    line = refusal(
        capsys, "--tasks", "chooses", "--include_path", tmp_path / "tasks", *MODELS, *RULES,
        "--generation_only",
    )  # fmt: skip
    assert "a task does not generate text: chooses (multiple_choice)" in line


def recorders(*more):
    return [
        "--model", "recorder", "--model_args", "reply=near", *more, "--model_name", "one",
        "--model", "recorder", "--model_args", "reply=nowhere", "--model_name", "two",
    ]  # fmt: skip


def test_trust_remote_code_reaches_every_model_that_takes_it(task, tmp_path):
    words = ["--tasks", task, *recorders("trust_remote_code=False"), *MODELS, *RULES]
    assert adaptive(*words, "--trust_remote_code", "--output_path", tmp_path / "out") == 0
    assert [each["trust_remote_code"] for each in Recorder.made] == [False, True]
    import datasets

    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False


METADATA_TASK = """
def made(max_seq_lengths=(), tokenizer=None, **_):
    import datasets

    rows = [
        {"question": f"{length} {tokenizer} {k}", "right": "near the old mill"}
        for length in max_seq_lengths for k in range(8)
    ]
    return {"test": datasets.Dataset.from_list(rows)}
"""


def test_metadata_makes_a_task_s_documents_as_in_a_plain_run(tmp_path):
    path = write_task(
        tmp_path / "tasks",
        "custom_dataset: !function UTIL.made\nmetadata: {version: 1, adaptive: {metric: score, "
        "range: [0, 1]}}",
        METADATA_TASK,
    )
    lines = [
        line
        for line in path.read_text().splitlines()
        if not line.startswith(("dataset_path", "dataset_kwargs"))
    ]
    path.write_text("\n".join(lines) + "\n")
    models = [
        "--model", "recorder", "--model_args", "tokenizer=shared,reply=near", "--model_name", "one",
        "--model", "recorder", "--model_args", "tokenizer=shared,reply=far", "--model_name", "two",
    ]  # fmt: skip
    words = ["--tasks", path, *models, *RULES, "--metadata", '{"max_seq_lengths": [512, 1024]}']
    assert adaptive(*words, "--output_path", tmp_path / "out") == 0
    samples = next((tmp_path / "out" / "one").glob("samples_*.jsonl")).read_text().splitlines()
    prompts = [json.loads(line)["arguments"]["gen_args_0"]["arg_0"] for line in samples]
    assert all(" shared " in each for each in prompts)
    assert {each.split()[0] for each in prompts} <= {"512", "1024"}
    head = json.loads((tmp_path / "out" / "journal.jsonl").read_text().splitlines()[0])
    assert head["config"]["tasks"]["small"]["documents"] == 16


def test_a_model_s_own_generation_settings_update_the_shared_ones(task, tmp_path):
    (tmp_path / "m.yaml").write_text(
        yaml.safe_dump(
            [
                {"name": "one", "model": "recorder", "gen_kwargs": "temperature=0.7"},
                {"name": "two", "model": "recorder"},
            ]
        )
    )
    words = ["--tasks", task, "--models", tmp_path / "m.yaml", *RULES]
    words += ["--gen_kwargs", "temperature=0.2,top_p=0.9", "--output_path", tmp_path / "out"]
    assert adaptive(*words) == 0
    asked = [each["asked"][0] for each in Recorder.made]
    assert [(each["temperature"], each["top_p"]) for each in asked] == [(0.7, 0.9), (0.2, 0.9)]
    assert all(each["max_gen_toks"] == 16 for each in asked), "the task's own stay"


def test_each_model_has_a_cache_of_its_own(task, tmp_path, monkeypatch):
    asked = []
    plain = WordLM.generate_until
    monkeypatch.setattr(
        WordLM, "generate_until", lambda self, r, **k: asked.extend(r) or plain(self, r)
    )
    words = ["--tasks", task, *MODELS, *RULES, "--use_cache", tmp_path / "cache" / "c"]
    assert adaptive(*words, "--output_path", tmp_path / "a") == 0
    first = len(asked)
    assert first == 8
    assert len(list((tmp_path / "cache").glob("c_*_rank0.db"))) == 2
    assert adaptive(*words, "--output_path", tmp_path / "b") == 0
    assert len(asked) == first, "nothing is asked a second time"
    one, two = (ranking_of(tmp_path / each)["ranking"] for each in "ab")
    assert [(e["model"], e["score"]) for e in one] == [(e["model"], e["score"]) for e in two]


def test_batch_size_auto_is_tried_once_though_a_model_is_asked_in_several_rounds(task, tmp_path):
    tried = []

    class Auto(WordLM):
        def __init__(self, miss=0, batch_size=None, **more):
            super().__init__(miss)
            self.batch_size = str(batch_size).split(":")[0]

        def _detect_batch_size(self, requests=None, pos=0):
            tried.append(pos)
            return 4

        def generate_until(self, requests, disable_tqdm=False):
            assert self.batch_size == "auto"
            assert self._detect_batch_size() == 4
            return super().generate_until(requests)

    from lm_eval.api.registry import model_registry

    if "auto_word" not in model_registry:
        model_registry.register("auto_word", target=Auto)
    models = [word if word != "word" else "auto_word" for word in MODELS]
    words = ["--tasks", task, *models, "--bank", "none", "--items_per_model", "6"]
    words += ["--min_items", "2", "--round_size", "2", "--batch_size", "auto:4"]
    assert adaptive(*words, "--output_path", tmp_path / "out") == 0
    assert len(tried) == 2, "once for each model"


def test_write_out_and_show_config_print(task, tmp_path, capsys):
    words = ["--tasks", task, *MODELS, *RULES, "--output_path", tmp_path / "out"]
    assert adaptive(*words) == 0
    assert "(end of prompt" not in capsys.readouterr().out
    assert adaptive(*words[:-1], tmp_path / "again", "--write_out", "--show_config") == 0
    out = capsys.readouterr().out
    assert "Where does the" in out
    assert "(end of prompt" in out
    assert '"n-samples"' in out


def test_what_cannot_be_pushed_is_refused_before_anything_is_asked(
    task, tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    words = ["--tasks", task, *recorders(), *RULES, "--output_path", tmp_path / "out"]
    line = refusal(
        capsys, *words, "--hf_hub_log_args", "push_results_to_hub=True,hub_results_org=o"
    )
    assert "--hf_hub_log_args" in line
    assert "token" in line
    line = refusal(capsys, *words, "--hf_hub_log_args", "no_such_thing=1")
    assert "no_such_thing" in line
    assert not Recorder.made


class Hub:
    """In place of the hub's client: keeps what is pushed."""

    pushed: ClassVar = []

    def __init__(self, token=None):
        assert token == "secret"

    def create_repo(self, **_):
        pass

    def upload_file(self, repo_id, path_in_repo, **_):
        if "broken" in repo_id:
            raise ConnectionError("the hub is away")
        self.pushed.append((repo_id, path_in_repo.split("/")[0]))


def test_results_of_every_model_and_task_are_pushed(tmp_path, monkeypatch, capsys):
    import huggingface_hub
    from lm_eval.loggers import EvaluationTracker

    cards = []
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(
        EvaluationTracker,
        "recreate_metadata_card",
        lambda self: cards.append(self.details_repo),
    )
    monkeypatch.setenv("HF_TOKEN", "secret")
    Hub.pushed.clear()
    paths = [write_task(tmp_path / name, "", name=name) for name in ("first", "second")]
    words = ["--tasks", *paths, *MODELS, *RULES, "--hf_hub_log_args"]
    pushing = "push_results_to_hub=True,hub_results_org=o,public_repo=True"
    assert adaptive(*words, pushing, "--output_path", tmp_path / "out") == 0
    assert sorted(Hub.pushed) == sorted([("o/lm-eval-results", m) for m in ("half", "whole")] * 2)
    assert len(cards) == 1, "one card, after all tasks"
    broken = f"{pushing},results_repo_name=broken"
    assert adaptive(*words, broken, "--output_path", tmp_path / "more") == 0
    said = capsys.readouterr().err
    assert "to the hub failed" in said
    assert len(list((tmp_path / "more").glob("*/results_*.json"))) == 4, "files stay"
    assert "the hub is away" in said
