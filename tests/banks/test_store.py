"""The store of banks: what is in it is found again, whoever writes and whatever is broken."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lm_eval_adaptive.banks import store as module
from lm_eval_adaptive.banks.store import Store, check_name, home, usual_name
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import UsageError
from tests.support.bad_input import attempt

ROOT = Path(__file__).resolve().parents[2]


def small_bank(seed=0, models=5, task="mine"):
    rng = np.random.default_rng(seed)
    level = np.linspace(0.2, 0.8, models)[:, None]
    scores = np.clip(level + rng.normal(0.0, 0.2, (models, 30)), 0.0, 1.0)
    matrix = ScoreMatrix(
        tuple(f"m{row}" for row in range(models)), tuple(f"doc{n:02d}" for n in range(30)), scores
    )
    return calibrate(matrix, task=task, metric="score", score_range=(0.0, 1.0))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def file(tmp_path):
    return small_bank().save(tmp_path / "mine.bank.parquet")


def names(store):
    return [each.name for each in store.entries()[0]]


# --- where it is, and what is in it


def test_the_folder_is_the_variable_s_else_the_platform_s(tmp_path, monkeypatch):
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("LM_EVAL_ADAPTIVE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home().name == "lm-eval-adaptive"


def test_looking_makes_nothing(store):
    assert store.entries() == ((), [])
    assert not store.folder.exists()


def test_what_is_added_is_found_with_what_it_is(store):
    bank = small_bank()
    entry = store.add(bank, "mine_score")
    (found,) = store.entries()[0]
    assert found == entry
    assert (found.task, found.metric, found.n_models, found.n_docs) == ("mine", "score", 5, 30)
    loaded = ItemBank.load(store.path(found))
    assert loaded.sha256 == found.sha256
    np.testing.assert_allclose(loaded.scores, bank.scores, atol=1e-6)


def test_a_bank_is_not_written_over_unless_asked_and_stays_for_runs_that_began_with_it(store):
    first = store.add(small_bank(), "mine")
    with pytest.raises(UsageError, match="has a bank mine already"):
        store.add(small_bank(1), "mine")
    store.add(small_bank(1), "mine", overwrite=True)
    assert store.of_hash(first.sha256).parent == store.former
    assert store.name_of_hash(first.sha256) == "mine"
    store.remove("mine")
    assert names(store) == []
    assert store.of_hash(first.sha256) is not None


def test_former_banks_go_when_there_are_too_many(store, monkeypatch):
    monkeypatch.setattr(module, "MOST_FORMER", 2)
    hashes = [store.add(small_bank(seed), "mine", overwrite=True).sha256 for seed in range(5)]
    assert [store.of_hash(each) is not None for each in hashes] == [False, False, True, True, True]


# --- the index is only a help


@pytest.mark.parametrize("what", ["lost", "broken", "of another shape", "stale", "empty"])
def test_the_index_is_made_anew(store, what):
    store.add(small_bank(), "one")
    store.add(small_bank(1), "two")
    index = store.folder / "index.json"
    before = json.loads(index.read_text())
    if what == "lost":
        index.unlink()
    elif what == "stale":  # a file that nobody told the index of, and one that is another now
        small_bank(2, models=7).save(store.file_of("two"))
        small_bank(3).save(store.file_of("three"))
    else:
        texts = {"broken": '{"schema": 1, "ba', "of another shape": "[1]", "empty": ""}
        index.write_text(texts[what])
    found = {each.name: each.n_models for each in store.entries()[0]}
    assert found == ({"one": 5, "two": 7, "three": 5} if what == "stale" else {"one": 5, "two": 5})
    again = json.loads(index.read_text())
    assert again["schema"] == before["schema"]
    assert [each["name"] for each in again["banks"]] == sorted(found)


def test_a_store_that_is_read_only_is_read(store, monkeypatch):
    store.add(small_bank(), "one")
    (store.folder / "index.json").unlink()

    def refuse(self, *args, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert names(store) == ["one"]


def test_a_file_that_is_no_bank_is_told_and_the_others_are_there(store):
    store.add(small_bank(), "good")
    whole = store.file_of("good").read_bytes()
    store.file_of("cut").write_bytes(whole[: len(whole) // 2])
    (store.banks / ".next.bank.parquet.part").write_bytes(whole[:100])  # a writer that died
    banks, broken = store.entries()
    assert [each.name for each in banks] == ["good"]
    (line,) = broken
    assert "cut.bank.parquet is left out of the store" in line
    assert "\n" not in line


# --- several at once

_ADD = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.banks.test_store import small_bank
from lm_eval_adaptive.banks.store import Store
for seed in range(3):
    Store().add(small_bank(seed), f"{sys.argv[2]}{seed}")
"""


def test_two_processes_write_and_a_third_reads_meanwhile(store):
    """No bank is lost, and no reader sees half of one."""
    writers = [
        subprocess.Popen([sys.executable, "-c", _ADD, str(ROOT), name], env={**os.environ})
        for name in ("a", "b")
    ]
    seen = []
    while any(each.poll() is None for each in writers):
        banks, broken = store.entries()
        assert broken == []
        seen.append(len(banks))
        for each in banks:
            assert ItemBank.load(store.path(each)).info.task == "mine"
    assert [each.returncode for each in writers] == [0, 0]
    assert seen == sorted(seen)
    assert names(store) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    (store.folder / "index.json").unlink()
    assert len(names(store)) == 6


def test_who_holds_the_lock_for_too_long_is_told(store, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    store.add(small_bank(), "mine")
    with store.writing(), ThreadPoolExecutor(1) as other:
        line = other.submit(attempt, ["bank", "rm", "mine"]).result()
    assert line.code == 2
    assert "written to by another process" in line.said[0]
    assert names(store) == ["mine"]


# --- what is refused, in one line each


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "..", ".hidden", "", "a\\b", "x" * 121, "a\nb", "~"]
)
@pytest.mark.parametrize(
    "words", [["add", "FILE", "--name"], ["rm"], ["export"]], ids=lambda words: words[0]
)
def test_names_that_lead_elsewhere_are_refused(store, file, tmp_path, name, words):
    store.add(small_bank(), "mine")
    before = sorted(tmp_path.rglob("*"))
    line = ["bank", *[str(file) if word == "FILE" else word for word in words]]
    line += ["--name=" + name] if words[-1] == "--name" else [name]
    line = [word for word in line if word != "--name"]
    found = attempt([*line, *([str(tmp_path / "out")] if words == ["export"] else [])])
    if words[0] == "add" and name == "":
        assert found.code == 0  # no name was given
        return
    assert (found.code, found.faults()) == (2, []), found
    assert [each for each in sorted(tmp_path.rglob("*")) if each not in before] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rm", "other"], "has no bank 'other'; it has mine"),
        (["show", "other"], "no bank 'other'"),
        (["check", "other"], "no bank 'other'"),
        (["add", "nowhere.parquet"], "no bank at nowhere.parquet"),
        (["add", "FILE", "--name", "mine"], "has a bank mine already"),
        (["grow", "maybe"], "invalid choice: 'maybe'"),
        (["grow", "on", "--from", "x"], "not both"),
        (["grow", "--from", "x"], "no journal.jsonl in x"),
        (["export", "mine"], "takes one place"),
        (["export", "mine", "a", "--to", "b"], "takes one place"),
        (["export", "mine", "FILE"], "like a file, expected a folder"),
        (["export", "mine", "hf://org"], "expected hf://org/dataset/path"),
        (["export", "mine", "hf://org/data/../x"], "expected hf://org/dataset/path"),
    ],
)
def test_mistakes_are_one_line(store, file, words, said):
    store.add(small_bank(), "mine")
    found = attempt(["bank", *[str(file) if word == "FILE" else word for word in words]])
    assert (found.code, found.faults()) == (2, []), found
    assert said in found.said[0]


@pytest.mark.parametrize(
    "words", [["list"], ["add", "FILE"], ["rm", "mine"], ["grow", "on"], ["show", "mine"]],
    ids=lambda words: words[0],
)  # fmt: skip
@pytest.mark.parametrize("what", ["newer", "a file"])
def test_a_store_of_a_newer_version_or_none_is_refused(store, file, tmp_path, words, what):
    store.add(small_bank(), "mine")
    if what == "newer":
        (store.folder / "index.json").write_text('{"schema": 2, "banks": []}')
        said = "has schema 2, this version reads 1"
    else:
        store.folder.rename(tmp_path / "elsewhere")
        store.folder.write_text("a note")
        said = "is a file; set LM_EVAL_ADAPTIVE_HOME to a folder"
    found = attempt(["bank", *[str(file) if word == "FILE" else word for word in words]])
    assert (found.code, found.faults()) == (2, []), found
    assert said in found.said[0]


@pytest.mark.parametrize("words", [["add", "FILE"], ["rm", "mine"], ["grow", "on"]])
@pytest.mark.parametrize(
    ("number", "text"), [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only")]
)
def test_a_full_or_read_only_store_is_one_line_and_stays_as_it_was(
    store, file, words, number, text, monkeypatch
):
    store.add(small_bank(1), "mine")
    content = store.file_of("mine").read_bytes()

    def refuse(self, *args, **kwargs):
        raise OSError(number, text)

    def half(table, where, **kwargs):
        open(where, "wb").write(b"PAR1")  # noqa: PTH123, SIM115
        raise OSError(number, text)

    monkeypatch.setattr(pq, "write_table", half)
    for name in ("replace", "touch", "write_bytes"):
        monkeypatch.setattr(Path, name, refuse)
    found = attempt(["bank", *[str(file) if word == "FILE" else word for word in words]])
    monkeypatch.undo()
    assert (found.code, found.faults()) == (2, []), found
    assert "cannot be written to" in found.said[0]
    assert text in found.said[0]
    kept = Store(store.folder)
    assert names(kept) == ["mine"]
    assert kept.file_of("mine").read_bytes() == content
    assert [each.name for each in kept.banks.iterdir()] == ["mine.bank.parquet"]


# --- names


def test_usual_names_are_names():
    for task in ("gsm8k", "truthfulqa-multi_gen_en", "a/b", "..", "x" * 200, "ja:quiz", "日本"):
        for filter_name in ("none", "strict-match"):
            name = usual_name(task, "exact_match", filter_name, "0123abcd")
            assert check_name(name) == name
    assert usual_name("x" * 200, "m", "none") != usual_name("x" * 200, "m", "none", "0123abcd")
