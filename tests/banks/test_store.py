"""The store: banks by name, an index that may be lost, writers that lose nothing."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from dataclasses import replace

import pytest

from lm_eval_adaptive.banks.store import ENDING, HOME, Store, check_name, home
from lm_eval_adaptive.cli.main import main
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import UsageError
from tests.core.helpers import make_bank, make_items


@pytest.fixture
def bank():
    return make_bank(make_items("robust-2pl", [-1.0, 0.0, 1.0, 0.5]))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    return Store()


def said(capsys, *words):
    code = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out + err


def test_the_folder_is_the_environment_s_else_the_platform_s(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME, str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv(HOME)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "lm-eval-adaptive" in str(home())


def test_banks_come_back_as_they_were_added(store, bank):
    assert store.entries() == ((), [])
    store.add(bank, "one")
    (entry,), broken = store.entries()
    assert (entry.name, entry.n_docs, entry.n_models, entry.task, broken) == (
        "one", 4, 12, "toy", []
    )  # fmt: skip
    again = ItemBank.load(store.path(entry))
    assert again.content_hash == bank.content_hash
    assert again.sha256 == entry.sha256
    assert store.of_hash(entry.sha256) == store.path(entry)


def test_a_name_is_taken_once_and_a_replaced_bank_can_still_be_resumed_with(store, bank):
    first = store.add(bank, "one")
    with pytest.raises(UsageError, match="has a bank one already; add --overwrite"):
        store.add(bank, "one")
    other = replace(bank, info=replace(bank.info, task="another"))
    second = store.add(other, "one", overwrite=True)
    assert second.sha256 != first.sha256
    former = store.of_hash(first.sha256)
    assert former is not None
    assert ItemBank.load(former).info.task == "toy"
    store.remove("one")
    assert store.entries()[0] == ()
    assert store.of_hash(second.sha256) is not None
    with pytest.raises(UsageError, match="has no bank 'one'; it has none"):
        store.remove("one")


@pytest.mark.parametrize("damage", ["missing", "broken", "half", "of another file", "a list"])
def test_the_index_is_made_anew_from_the_files(store, bank, damage):
    store.add(bank, "one")
    index = store.folder / "index.json"
    if damage == "missing":
        index.unlink()
    elif damage == "broken":
        index.write_text("no json")
    elif damage == "half":
        index.write_bytes(index.read_bytes()[:40])
    elif damage == "a list":
        index.write_text("[]")
    else:
        other = replace(bank, info=replace(bank.info, task="changed"))
        other.save(store.banks / f"one{ENDING}")
    (entry,), _ = store.entries()
    assert entry.task == ("changed" if damage == "of another file" else "toy")
    assert json.loads(index.read_text())["banks"][0]["sha256"] == entry.sha256


def test_a_file_that_is_no_bank_is_told_and_left(store, bank, capsys):
    store.add(bank, "one")
    (store.banks / f"two{ENDING}").write_text("half a file")
    (store.banks / f".three{ENDING}.part").write_text("being written")
    entries, broken = store.entries()
    assert [each.name for each in entries] == ["one"]
    assert len(broken) == 1
    assert "two.bank.parquet is left out of the store" in broken[0]
    code, text = said(capsys, "bank", "list")
    assert code == 0
    assert "left out" in text
    assert "Traceback" not in text


def test_a_store_of_a_newer_version_is_refused(store, bank, capsys):
    store.add(bank, "one")
    (store.folder / "index.json").write_text('{"schema": 99, "banks": []}')
    code, text = said(capsys, "bank", "list")
    assert code == 2
    assert "is of schema 99, this version reads 1" in text
    code, text = said(capsys, "bank", "grow", "on")
    assert code == 2
    assert not store.grows


def test_a_store_that_cannot_be_written_to_can_be_read(store, bank, capsys, monkeypatch):
    store.add(bank, "one")
    (store.folder / "index.json").unlink()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lm_eval_adaptive.core.bank.ItemBank.save", full)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    assert [each.name for each in store.entries()[0]] == ["one"]
    file = store.banks / f"one{ENDING}"
    code, text = said(capsys, "bank", "add", file, "--name", "two")
    assert code == 2
    assert "cannot be written to (No space left on device)" in text
    assert text.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_told_in_one_line(store, bank, tmp_path, capsys):
    file = bank.save(tmp_path / "x.bank.parquet")
    store.folder.mkdir()
    store.folder.chmod(0o500)
    code, text = said(capsys, "bank", "add", file)
    assert code == 2
    assert "cannot be written to" in text


def test_a_store_that_is_a_file_is_told(tmp_path, monkeypatch, capsys, bank):
    (tmp_path / "home").write_text("")
    monkeypatch.setenv(HOME, str(tmp_path / "home"))
    file = bank.save(tmp_path / "x.bank.parquet")
    for words in (("list",), ("add", file), ("grow", "on"), ("rm", "x")):
        code, text = said(capsys, "bank", *words)
        assert code == 2
        assert "is a file; set LM_EVAL_ADAPTIVE_HOME to a folder" in text


@pytest.mark.parametrize("name", ["../x", "a/b", "a\\b", "", ".x", "x" * 200, "a\nb", "..", "-x"])
def test_names_lead_nowhere_else(name, store, bank):
    with pytest.raises(UsageError, match="cannot be named"):
        check_name(name)
    with pytest.raises(UsageError, match="cannot be named"):
        store.add(bank, name)
    assert not store.banks.exists()


def _add_some(folder, file, first):
    store = Store(folder)
    for number in range(first, first + 6):
        store.add(ItemBank.load(file), f"bank{number}")


def test_two_processes_that_write_at_once_lose_nothing(tmp_path, bank):
    file = bank.save(tmp_path / "x.bank.parquet")
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_add_some, args=(tmp_path / "home", file, first)) for first in (0, 6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    store = Store(tmp_path / "home")
    names = {each.name for each in store.entries()[0]}
    assert names == {f"bank{number}" for number in range(12)}
    held = json.loads((store.folder / "index.json").read_text())["banks"]
    assert len(held) == 12


def test_commands_keep_show_and_forget(store, bank, tmp_path, capsys):
    file = bank.save(tmp_path / "x.bank.parquet")
    assert said(capsys, "bank", "add", file) == (
        0, "toy_score is in the store: toy by score, 12 models, 4 documents\n"
    )  # fmt: skip
    code, text = said(capsys, "bank", "list", "--tasks", "toy")
    assert code == 0
    assert "toy_score" in text
    assert "gsm8k" not in text
    code, text = said(capsys, "bank", "list", "--tasks", "nothing")
    assert code == 0
    assert "no bank for nothing" in text
    assert said(capsys, "bank", "show", "toy_score")[0] == 0
    assert said(capsys, "bank", "show", "gsm8k")[0] == 0
    assert said(capsys, "bank", "rm", "toy_score")[0] == 0
    code, text = said(capsys, "bank", "show", "toy_score")
    assert code == 2
    assert "no bank at toy_score" in text
    assert said(capsys, "bank", "grow")[1].endswith("leave the banks as they are\n")
    assert said(capsys, "bank", "grow", "on")[1].endswith("on: runs add their models\n")
    assert store.grows
    said(capsys, "bank", "grow", "off")
    assert not store.grows
    code, text = said(capsys, "bank", "grow", tmp_path / "nowhere")
    assert code == 2
    assert "no ranking in" in text
    shutil.rmtree(store.folder)
