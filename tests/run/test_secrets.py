"""Keys that a run is given are in none of its outputs: files, terminal, page, trackers, errors."""

from __future__ import annotations

import html
import io
import json
import logging
import os
import stat
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from lm_eval_adaptive import redact
from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.host.noise import NAME as LOG
from lm_eval_adaptive.redact import HIDDEN
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.report.test_trackers import stand_in_for_wandb
from tests.support import toy

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0MHA1In0.c2lnbmF0dXJl"
# Where a secret is put, and what must not be read of it. The values are of no form but where the
# form is what tells.
PLACES = {
    "model_args by name": "plumtree-01",
    "model_args, another case": "plumtree-02",
    "model_args, a hyphen": "plumtree-03",
    "model_args, a password with blanks": "plum tree four",
    "model_args, a number": "9988776655",
    "a header in JSON": "plumtree-06",
    "a cookie in a header": "plumtree-07",
    "a bearer in a header": "plumtree-08",
    "a nested credential": "plumtree-09",
    "a list of headers": "plumtree-10",
    "the password of an address": "plumtree-11",
    "a signed query": "plumtree-12",
    "an Amazon signature": "plumtree-13",
    "by form: sk-": "sk-proj-Ab12Cd34Ef56",
    "by form: hf_": "hf_AbCdEfGhIjKlMnOpQr",
    "by form: AKIA": "AKIAIOSFODNN7EXAMPLE",
    "by form: JWT": JWT,
    "by form: Bearer": "abcdef.plumtree-18",
    "by value: a variable": "plumtree-19",
    "gen_kwargs by name": "plumtree-20",
    "gen_kwargs, a header": "plumtree-21",
    "metadata": "plumtree-22",
    "the trackers configuration": "plumtree-23",
    "the trackers notes": "plumtree-24",
    "the trackers key": "plumtree-25",
    "a proxy of the environment": "plumtree-26",
    "the hubs arguments": "plumtree-27",
}
PUT = list(PLACES.values())
# What is no secret although its name or form is near one: the negative control.
HARMLESS = {"tokenizer": "gpt2-like", "max_tokens": 77, "author": "nobody", "org": "hf-internal-x"}


class Keyed(toy.ToyLM):
    """Takes any arguments, tells them to whoever listens, and may fail with them in its mouth."""

    def __init__(self, share=0.5, name="toy", fail_after=None, batch_size=None, device=None,
                 max_batch_size=None, **rest):  # fmt: skip
        super().__init__(share=share, name=name)
        self.limit = None if fail_after is None else int(fail_after)
        self.rest = rest

    def generate_until(self, requests, disable_tqdm=False):
        held = [os.environ[name] for name in ENVIRONMENT]
        said = f"sent {self.rest} with {held} to {requests[0].args[1]}"
        logging.getLogger("some.package").warning("%s", said)
        print("a bar 3%\ra bar 100%", said, file=sys.stderr)
        if self.limit is not None and len(self.calls) > self.limit:
            raise RuntimeError(f"401, {said}: bare {' '.join(map(str, flat(self.rest)))}")
        return super().generate_until(requests)


def flat(value):
    for each in value.values() if isinstance(value, dict) else value:
        yield from flat(each) if isinstance(each, dict | list) else [each]


def model_args(share, name):
    put = iter(PUT)
    return {
        "share": share,
        "name": name,
        "api_key": next(put),
        "Some_TOKEN": next(put),
        "x-auth": next(put),
        "passWord": next(put),
        "secretNumber": int(next(put)),
        "header": {
            "X-Auth": next(put),
            "Cookie": f"sid={next(put)}",
            "Authorization": f"Bearer {next(put)}",
        },
        "options": [{"deep": {"credentials": {"user": "u", "value": next(put)}}}],
        "headers": [["X-Api-Key", next(put)]],
        "base_url": f"http://me:{next(put)}@host.example/v1?version=2&sig={next(put)}",
        "store": f"s3://bucket/x?X-Amz-Signature={next(put)}&X-Amz-Expires=5",
        "first": next(put),
        "second": next(put),
        "third": next(put),
        "fourth": next(put),
        "fifth": f"Bearer {next(put)}",
        "plain": next(put),
        **HARMLESS,
    }


def words(folder, bank):
    models = [
        word
        for name, share in toy.RANKED.items()
        for word in (
            "--model", "keyed", "--model_name", name, "--model_args",
            json.dumps(model_args(share, name) | ({"fail_after": 9} if name == "weak" else {})),
        )
    ]  # fmt: skip
    of_tracker = f"key: {PLACES['the trackers notes']},api_key={PLACES['the trackers key']}"
    generation = {
        "api_token": PLACES["gen_kwargs by name"],
        "extra_headers": {"X-Key": PLACES["gen_kwargs, a header"]},
        "temperature": 0.5,
    }
    return [
        "run", "--adaptive", "--tasks", toy.TASK, "--bank", str(bank), *models,
        "--output_path", str(folder), "--min_items", "4", "--confidence", "0.999",
        "--gen_kwargs", json.dumps(generation),
        "--metadata", json.dumps({"hub_password": PLACES["metadata"]}),
        "--wandb_args", f"project=plums,notes={of_tracker}",
        "--wandb_config_args", f"my_secret={PLACES['the trackers configuration']}",
        "--hf_hub_log_args", f"token={PLACES['the hubs arguments']}",
    ]  # fmt: skip


ENVIRONMENT = {
    "PLUM_API_KEY": PLACES["by value: a variable"],
    "PROXY_PASSWORD": PLACES["a proxy of the environment"],
}


def play(bank, folder, code, unhidden=False):
    """All that a run with keys everywhere leaves and says, by where."""
    from lm_eval.api.registry import model_registry

    toy.register()
    toy.ToyLM.calls.clear()
    if "keyed" not in model_registry:
        model_registry.register("keyed", target=Keyed)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        if unhidden:
            patch.setattr(redact, "_walk", lambda value, *_: value)
            patch.setattr(redact, "_hide", lambda text, *_: text)
            patch.setattr(redact, "_marked", lambda text, *_: text)
            patch.setattr(redact, "without", lambda text, *_: text)
        tracker = stand_in_for_wandb(patch)
        with redirect_stdout(out), redirect_stderr(err):
            assert main(words(folder, bank)) == code
        sent = [
            [
                {key: value for key, value in each.arguments.items() if key != "api_key"},
                each.settings,
                each.summary,
                {k: vars(v) if hasattr(v, "rows") else v for k, v in each.logged.items()},
            ]
            for each in tracker.runs
        ]
    texts = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }
    texts |= {"stdout": out.getvalue(), "stderr": err.getvalue(), "tracker": repr(sent)}
    return SimpleNamespace(folder=folder, texts=texts, tracker=tracker)


@pytest.fixture(scope="module")
def told(toy_bank, tmp_path_factory):
    # Exit code 1: a model was lost, with all keys in its last words.
    return play(toy_bank, tmp_path_factory.mktemp("keys") / "run", 1)


@pytest.mark.parametrize("place", PLACES)
def test_nowhere(told, place):
    where = [name for name, text in told.texts.items() if PLACES[place] in text]
    assert where == []


def test_all_outputs_were_looked_at(told):
    kinds = {name.rpartition("/")[2].partition("_")[0] for name in told.texts}
    assert {"journal.jsonl", "ranking", "results", "samples", "report.html", LOG} <= kinds
    journal = told.texts["journal.jsonl"]
    assert '"type": "failed"' in journal
    assert "bare" in journal
    assert HIDDEN in journal
    assert "weak" in told.texts["stderr"]
    assert "temperature" in told.texts["tracker"]
    # The tracker itself was given its key.
    assert told.tracker.runs[0].arguments["api_key"] == PLACES["the trackers key"]


def test_what_is_no_secret_is_kept(told):
    (results,) = [t for name, t in told.texts.items() if name.startswith("strong/results_")]
    kept = json.loads(results)["config"]["model_args"]
    assert {key: kept[key] for key in HARMLESS} == HARMLESS
    assert kept["base_url"] == f"http://{HIDDEN}@host.example/v1?version=2&sig={HIDDEN}"
    assert kept["header"]["Authorization"] == HIDDEN
    assert kept["options"] == [{"deep": {"credentials": {"user": HIDDEN, "value": HIDDEN}}}]
    command = json.loads(told.texts["journal.jsonl"].split("\n", 1)[0])["command"]
    assert f"share={toy.RANKED['weak']}"[6:] in " ".join(command)


def test_without_the_redactor_they_are_everywhere(toy_bank, tmp_path):
    """The negative control: the search finds each of them where nothing is hidden."""
    found = play(toy_bank, tmp_path / "run", 1, unhidden=True).texts
    for place, secret in PLACES.items():
        where = {
            name.rpartition("/")[2].partition("_")[0] for name, t in found.items() if secret in t
        }
        assert {"journal.jsonl"} <= where or "tracker" in where, place
    for name in ("ranking_", "results_", "samples_", "report.html", LOG, "stderr", "tracker"):
        (text, *_) = [t for at, t in found.items() if at.rpartition("/")[2].startswith(name)]
        assert any(secret in text for secret in PUT), name


@pytest.mark.skipif(os.name != "posix", reason="rights of files as POSIX has them")
def test_journal_and_log_are_their_owner_s(told):
    for name in ("journal.jsonl", LOG):
        assert stat.S_IMODE((told.folder / name).stat().st_mode) == 0o600


def test_what_libraries_say_is_in_the_log_and_the_log_is_named(told):
    assert "some.package WARNING" in told.texts[LOG]
    assert "a bar 100%" in told.texts[LOG]
    assert "a bar 3%" not in told.texts[LOG]
    for name in ("stdout", "stderr"):
        assert "some.package" not in told.texts[name]
        assert "a bar" not in told.texts[name].replace("are", "")
    assert str(told.folder / LOG) in told.texts["stderr"]


class TestResume:
    """A journal keeps no key: it comes anew from the environment or the command line."""

    def begin(self, folder, bank, key, fail):
        args = f"share=0.4,name=weak,api_key={key},fail_file={fail}"
        models = ["--model", "toy_keyed", "--model_name", "weak", "--model_args", args]
        models += ["--model", "toy_keyed", "--model_name", "strong"]
        models += ["--model_args", "share=0.7,name=strong"]
        return [
            "run", "--adaptive", "--tasks", toy.TASK, "--bank", str(bank), *models,
            "--min_items", "4", "--output_path", str(folder),
        ]  # fmt: skip

    @pytest.fixture
    def stopped(self, toy_bank, tmp_path, monkeypatch, capsys):
        """A run that lost a model, begun with a key."""
        from lm_eval.api.registry import model_registry

        seen = []

        class Keyed(toy.ToyLM):
            def __init__(self, api_key=None, **rest):
                super().__init__(**rest)
                seen.append(api_key)

        toy.register()
        if "toy_keyed" in model_registry:
            model_registry._objs.pop("toy_keyed")
        model_registry.register("toy_keyed", target=Keyed)
        fail = tmp_path / "fail"
        fail.touch()
        folder = tmp_path / "run"
        begun = self.begin(folder, toy_bank, "plumtree-77", fail)
        assert main(begun) == 1
        fail.unlink()
        seen.clear()
        capsys.readouterr()
        return SimpleNamespace(folder=folder, words=begun, seen=seen)

    def test_without_a_key_one_line_says_what_is_missing(self, stopped, capsys):
        before = (stopped.folder / "journal.jsonl").read_bytes()
        assert main(["run", "--adaptive", "--resume", str(stopped.folder)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "set API_KEY in the environment" in said
        assert "api_key=[hidden:API_KEY]" in said
        assert (stopped.folder / "journal.jsonl").read_bytes() == before

    def test_from_the_environment(self, stopped, monkeypatch):
        monkeypatch.setenv("API_KEY", "plumtree-88")
        assert main(["run", "--adaptive", "--resume", str(stopped.folder)]) == 0
        assert set(stopped.seen) <= {"plumtree-88", None}

    def test_beside_resume(self, stopped):
        given = ["--model_args", "api_key=plumtree-99"]
        assert main(["run", "--adaptive", "--resume", str(stopped.folder), *given]) == 0
        assert set(stopped.seen) <= {"plumtree-99", None}
        journal = (stopped.folder / "journal.jsonl").read_text()
        assert "plumtree" not in journal

    def test_with_the_whole_command_line_and_another_key(self, stopped):
        whole = [each.replace("plumtree-77", "plumtree-55") for each in stopped.words]
        assert main([*whole, "--resume", str(stopped.folder)]) == 0
        assert set(stopped.seen) <= {"plumtree-55", None}

    def test_what_is_no_secret_has_to_be_the_same(self, stopped, capsys):
        whole = [each.replace("share=0.4", "share=0.5") for each in stopped.words]
        assert main([*whole, "--resume", str(stopped.folder)]) == 2
        assert "share was 0.4 when the run began and is 0.5 now" in capsys.readouterr().err


def test_a_key_that_the_environment_held_comes_from_there(monkeypatch):
    monkeypatch.setenv("PLUM_API_KEY", "plumtree-19")
    kept = redact.redact_words(["--model_args", "api_key=plumtree-19,url=http://h/plumtree-19"])
    assert kept[1] == "api_key=[hidden:PLUM_API_KEY],url=http://h/[hidden:PLUM_API_KEY]"
    assert redact.restore_words(kept)[0][1] == "api_key=plumtree-19,url=http://h/plumtree-19"
    monkeypatch.delenv("PLUM_API_KEY")
    assert redact.restore_words(kept)[1] == ["PLUM_API_KEY"]


def test_from_python_keys_are_in_no_error_and_no_file(toy_bank, tmp_path):
    broken = {"model": "toy", "name": "broken", "model_args": {"no_such_token": "plumtree-66"}}
    with pytest.raises(ModelError) as caught:
        simple_evaluate(
            [broken],
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, items_per_model=4),
            output_path=str(tmp_path),
        )
    for text in (str(caught.value), repr(caught.value), (tmp_path / "journal.jsonl").read_text()):
        assert "plumtree" not in text
        assert "no_such_token" in text


def test_warnings_stand_on_the_terminal_in_the_ranking_and_on_the_page_alike(told):
    (ranking,) = [json.loads(t) for name, t in told.texts.items() if name.startswith("ranking_")]
    page = " ".join(html.unescape(told.texts["report.html"]).split())
    terminal = " ".join(told.texts["stdout"].split())
    assert ranking["warnings"]
    for warning in ranking["warnings"]:
        assert warning in terminal
        assert warning in page
    (lost,) = ranking["set_aside"]
    assert lost["reason"] in page
    assert " ".join(lost["reason"].split()) in terminal
