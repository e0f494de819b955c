"""Banks that grow lose nothing: kills, two runs at once, files that are damaged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lm_eval_adaptive.banks import answers as answers_module
from lm_eval_adaptive.banks.answers import read_answers
from lm_eval_adaptive.banks.grow import grow_from
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import BankError, UsageError
from lm_eval_adaptive.records.journal import read_journal
from tests.banks.test_grow import THREE, TWO, bank_now, journal_scores, mine, row_of, store, tasks
from tests.support import stored
from tests.support.bad_input import attempt

__all__ = ["mine", "store", "tasks"]
ROOT = Path(__file__).resolve().parents[2]


# --- nothing is lost


_GROW = """
import sys
sys.path.insert(0, sys.argv[1])
from lm_eval_adaptive.banks.grow import grow_from
from pathlib import Path
print(grow_from(Path(sys.argv[2])))
"""


def process(folder, code=_GROW):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT), str(folder)],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


@pytest.mark.parametrize("kind", ["bank", "nothing"])
def test_two_runs_that_grow_one_bank_at_once_lose_nothing(store, tasks, toy_bank, tmp_path, kind):
    if kind == "bank":
        path = stored.bank_for(tmp_path / "b.parquet", toy_bank)
        store.add(ItemBank.load(path), stored.NAME)
    options = {} if kind == "bank" else {"bank": "none"}
    stored.rank(tasks, tmp_path / "one", {"a": 0.3, "b": 0.7}, **options)
    stored.rank(tasks, tmp_path / "two", {"c": 0.5, "d": 0.6}, **options)
    both = [process(tmp_path / "one"), process(tmp_path / "two")]
    assert [each.wait(120) for each in both] == [0, 0]
    names = stored.models_of()
    assert sorted(names[-4:]) == ["a", "b", "c", "d"]
    assert len(names) == (12 if kind == "bank" else 4)
    for name, folder in (("a", "one"), ("d", "two")):
        assert row_of(bank_now(store), name) == pytest.approx(
            journal_scores(tmp_path / folder, name)
        )


_DIE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.banks.grow import grow_from
from lm_eval_adaptive.core.bank import ItemBank
def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
setattr({"put": Store, "save": ItemBank}[os.environ["DIE_AT"]], os.environ["DIE_AT"], die)
grow_from(Path(sys.argv[2]))
"""


@pytest.mark.parametrize("at", ["put", "save"])
@pytest.mark.parametrize("kind", ["bank", "nothing"])
def test_what_was_killed_while_growing_is_done_again(
    store, tasks, toy_bank, tmp_path, kind, at, monkeypatch
):
    if kind == "bank":
        path = stored.bank_for(tmp_path / "b.parquet", toy_bank)
        store.add(ItemBank.load(path), stored.NAME)
    stored.rank(tasks, tmp_path / "out", THREE, **({} if kind == "bank" else {"bank": "none"}))
    monkeypatch.setenv("DIE_AT", at)
    assert process(tmp_path / "out", _DIE).wait(120) == -signal.SIGKILL
    if kind == "bank":
        assert len(stored.models_of()) == 8
    found = attempt(["bank", "grow", "--from", tmp_path / "out"])
    assert found.code == 0, found
    assert stored.models_of()[-3:] == ["a", "b", "c"]
    assert store.entries()[1] == []


def test_a_resumed_run_grows_what_it_did_not(store, tasks, mine, tmp_path, monkeypatch):
    from lm_eval_adaptive.banks import grow

    def fail(*args, **kwargs):
        raise RuntimeError("the power went")

    with monkeypatch.context() as patch:
        patch.setattr(grow, "extend", fail)
        found = stored.rank(tasks, tmp_path / "out", TWO, grow=True)
    assert found["ranking"][stored.TASK]["ranking"], "the run keeps its result"
    assert len(stored.models_of()) == 8
    stored.rank(tasks, tmp_path / "out", TWO, grow=True, resume=str(tmp_path / "out"))
    assert stored.models_of()[8:] == ["a", "b"]


def test_a_store_that_cannot_be_written_to_is_told_before_anything_is_asked(
    tasks, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(UsageError, match="cannot be written to"):
        stored.rank(tasks, tmp_path / "out", TWO, bank="none", grow=True)
    assert not (tmp_path / "out").exists()


# --- what a bank is made of


def test_answers_of_a_newer_version_or_damaged_are_refused_in_one_line(store, tasks, tmp_path):
    stored.rank(tasks, tmp_path / "out", TWO, bank="none", grow=True)
    path = store.answers_of(stored.NAME)
    whole = path.read_bytes()
    held = read_answers(path)
    assert answers_module.write_answers(held) == whole
    for content, said in (
        (whole.replace(b'"schema":1', b'"schema":2'), "has schema 2, this version reads 1"),
        (whole[:-40], "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"schema":1}', "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(BankError, match=said) as caught:
            read_answers(path)
        assert "\n" not in str(caught.value)
        found = attempt(["bank", "grow", "--from", tmp_path / "out"])
        assert (found.code, found.faults()) == (2, []), found


def test_a_folder_without_samples_is_told(store, tasks, mine, tmp_path):
    stored.rank(tasks, tmp_path / "out", TWO)
    shutil.rmtree(tmp_path / "out" / "a")
    lines = grow_from(tmp_path / "out", store)
    assert any("the samples of a are not there: --resume" in line for line in lines)
    assert stored.models_of()[8:] == ["b"]
    assert read_journal(tmp_path / "out" / "journal.jsonl").header.config.models.keys() == {
        "a",
        "b",
    }
