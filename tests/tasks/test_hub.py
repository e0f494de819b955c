"""Banks on the hub: pinned by revision, taken by hash."""

from __future__ import annotations

import hashlib
import json

import pytest

from lm_eval_adaptive.banks import hub
from lm_eval_adaptive.banks.hub import fetch_bank, is_hub_address, parse_address
from lm_eval_adaptive.cli import listing as cli
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.errors import BankError

BYTES = b"PAR1 a bank PAR1"
ZOO = [{"question": f"number {k}", "answer": f"It is {k} and no other"} for k in range(30)]
HASH = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def download(tmp_path):
    def fake(repo, path, revision):
        asked.append((repo, path, revision))
        file = tmp_path / "cached"
        file.write_bytes(BYTES)
        return str(file)

    asked = []
    fake.asked = asked
    return fake


def test_a_bank_is_fetched(download):
    path = fetch_bank(f"hf://org/banks/sub/zoo.bank.parquet@v1.2#{HASH}", download)
    assert path.read_bytes() == BYTES
    assert download.asked == [("org/banks", "sub/zoo.bank.parquet", "v1.2")]


def test_another_file_is_refused(download):
    with pytest.raises(BankError, match=f"has sha256 {HASH}; it is not the bank"):
        fetch_bank(f"hf://org/banks/zoo.bank.parquet@main#{'0' * 64}", download)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://org/banks/x.parquet", "no revision"),
        ("hf://org/banks/x.parquet@main", "no sha256"),
        (f"hf://org/x@main#{HASH}", "not in that order"),
        (f"hf://org/banks/x#{HASH}@main", "not in that order"),
        ("hf://org/banks/x.parquet@main#abc", "64 lower-case hexadecimal"),
        (f"hf://org/banks/x.parquet@main#{HASH.upper()}", "64 lower-case hexadecimal"),
        (f"hf://org/banks/../../x@main#{HASH}", "may not lead out"),
    ],
)
def test_wrong_addresses_are_one_line_and_fetch_nothing(address, message, download):
    with pytest.raises(BankError, match=message) as caught:
        fetch_bank(address, download)
    assert "\n" not in str(caught.value)
    assert download.asked == []


def test_what_the_hub_refuses_is_one_line():
    def refuse(repo, path, revision):
        raise OSError("401 Client Error\nlong advice")

    with pytest.raises(BankError, match=r"OSError: 401 Client Error\); check") as caught:
        fetch_bank(f"hf://org/banks/x.parquet@main#{HASH}", refuse)
    assert "\n" not in str(caught.value)


def test_the_real_client_is_asked_for_a_dataset(monkeypatch, tmp_path):
    import huggingface_hub

    file = tmp_path / "file"
    file.write_bytes(BYTES)
    seen = {}

    def hf_hub_download(repo_id, filename, *, repo_type, revision):
        seen.update(repo=repo_id, file=filename, kind=repo_type, revision=revision)
        return str(file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    assert fetch_bank(f"hf://org/banks/x.parquet@c0ffee#{HASH}") == file
    assert seen == {
        "repo": "org/banks",
        "file": "x.parquet",
        "kind": "dataset",
        "revision": "c0ffee",
    }


def test_offline_is_one_line(monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BankError, match="HF_HUB_OFFLINE") as caught:
        fetch_bank(f"hf://org/banks/x.parquet@main#{HASH}")
    assert "\n" not in str(caught.value)


def test_paths_are_no_addresses():
    assert is_hub_address(f"hf://a/b/c@d#{HASH}")
    assert not is_hub_address("banks/x.bank.parquet")
    assert not is_hub_address(None)
    assert parse_address(f"hf://a/b/c@d#{HASH}") == hub.HubBank("a/b", "c", "d", HASH)


class TestWhereABankIsNamed:
    """On the command line, in a task's YAML and to ``bank check``, an address is as good as a file."""

    @pytest.fixture
    def address(self, monkeypatch, tmp_path, toy_scores):
        import huggingface_hub

        path = toy_scores.save(tmp_path / "hub" / "zoo.bank.parquet")

        def download(repo, name, repo_type, revision):
            assert (repo, name, repo_type, revision) == (
                "org/banks", "zoo.bank.parquet", "dataset", "v1",
            )  # fmt: skip
            return str(path)

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return f"hf://org/banks/zoo.bank.parquet@v1#{digest}"

    @pytest.fixture
    def toy_scores(self):
        """A bank of the task zoo whose documents are the numbers 0 to 29."""
        import numpy as np

        from lm_eval_adaptive import ScoreMatrix, calibrate
        from lm_eval_adaptive.core.identity import content_hash

        rng = np.random.default_rng(0)
        scores = np.clip(np.linspace(0.2, 0.8, 6)[:, None] + rng.normal(0, 0.2, (6, 30)), 0, 1)
        matrix = ScoreMatrix(
            models=tuple("abcdef"),
            items=tuple(content_hash(doc) for doc in ZOO),
            scores=scores,
        )
        return calibrate(
            matrix, task="zoo", metric="rougeL", filter="none", score_range=(0, 1),
            higher_is_better=True,
        )  # fmt: skip

    @pytest.fixture
    def zoo(self, tmp_path, monkeypatch):
        from lm_eval_adaptive.cli.init_task import TaskWish, init_task

        monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
        data = tmp_path / "zoo.jsonl"
        data.write_text("".join(json.dumps(doc) + "\n" for doc in ZOO), encoding="utf-8")
        return init_task(
            TaskWish(name="zoo", dataset=str(data), metric="rougeL", output=str(tmp_path / "tasks"))
        ).yaml

    def test_bank_check(self, address, zoo, capsys):
        words = ["bank", "check", address, "--tasks", "zoo", "--include_path", str(zoo.parent)]
        assert main(words) == 0
        assert "30 of 30 items" in capsys.readouterr().out

    @pytest.mark.parametrize("where", ["option", "yaml"])
    def test_run(self, address, zoo, where, tmp_path):
        from tests.tasks import fakes

        fakes.register()
        words = ["--bank", address]
        if where == "yaml":
            words = []
            text = zoo.read_text(encoding="utf-8")
            assert '"zoo.bank.parquet"' in text
            zoo.write_text(text.replace("zoo.bank.parquet", address), encoding="utf-8")
        for name, share in (("low", 0.3), ("high", 0.9)):
            words += ["--model", "task_toy", "--model_args", f"share={share},name={name}"]
            words += ["--model_name", name]
        code = main(
            ["run", "--adaptive", "--tasks", "zoo", "--include_path", str(zoo.parent), *words,
             "--items_per_model", "8", "--min_items", "8", "--output_path", str(tmp_path / "out")]
        )  # fmt: skip
        assert code == 0
        (file,) = (tmp_path / "out").glob("ranking_zoo_*.json")
        ranking = json.loads(file.read_text(encoding="utf-8"))
        assert [entry["model"] for entry in ranking["ranking"]] == ["high", "low"]

    def test_ls_shows_the_address(self, address, zoo, capsys):
        text = zoo.read_text(encoding="utf-8")
        zoo.write_text(text.replace("zoo.bank.parquet", address), encoding="utf-8")
        cli._list_banks([str(zoo.parent)])
        assert f"zoo: {address} (rougeL)\n" in capsys.readouterr().out
