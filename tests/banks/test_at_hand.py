"""Which bank a run takes where nobody names one, and what it says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lm_eval_adaptive.banks import at_hand
from lm_eval_adaptive.banks.shipped import ShippedBank
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import PromptFacts, Provenance
from lm_eval_adaptive.errors import BankError
from tests.support import stored, toy
from tests.support.bad_input import attempt

RANKED = {"low": 0.35, "high": 0.7}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("LM_EVAL_ADAPTIVE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def tasks(tmp_path):
    toy.register()
    return stored.make_task(tmp_path / "tasks")


@pytest.fixture
def shipped(toy_bank, tmp_path, monkeypatch):
    """The package ships these; a test adds to the list."""
    found = []

    def ship(name="shipped", tasks=(stored.TASK,), filters=("none",), prompt="", bank=None):
        path = bank or stored.bank_for(tmp_path / f"{name}.bank.parquet", toy_bank, task="other")
        found.append(
            ShippedBank(
                name,
                tasks,
                "rougeL",
                filters,
                str(path),
                ItemBank.load(path).sha256,
                8,
                312,
                "a paper",
                "MIT",
                "by hand",
                "2026-01-02",
                prompt,
            )
        )

    monkeypatch.setattr(at_hand, "shipped_banks", lambda: found)
    return ship


def dated(bank, date):
    return {"provenance": replace(bank.info.provenance or Provenance(), date=date)}


def run(tasks, tmp_path, models=RANKED, **options):
    return stored.rank(tasks, tmp_path / "out", models, **options)["ranking"][stored.TASK]


def told(ranking, word="no bank was named"):
    return [line for line in ranking["warnings"] if word in line]


def test_the_store_s_bank_is_taken_and_told(store, tasks, toy_bank, tmp_path):
    entry = store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
    found = run(tasks, tmp_path)
    assert found["bank"]["sha256"] == entry.sha256
    (line,) = told(found)
    assert "took mine of the store (rougeL, 8 models, of " in line
    assert "312 of its 312 items are among the 312 documents of task records_stored" in line
    assert [each["model"] for each in found["ranking"]] == ["high", "low"]


def test_a_shipped_bank_is_taken_for_each_task_that_it_serves(store, tasks, shipped, tmp_path):
    shipped(tasks=("something", stored.TASK))
    (line,) = told(run(tasks, tmp_path))
    assert "took shipped of the package (rougeL, 8 models, of 2026-01-02)" in line


def test_what_a_shipped_bank_says_of_its_prompts_is_told(store, tasks, shipped, tmp_path):
    shipped(prompt="its models answered as JSON")
    assert told(run(tasks, tmp_path), "as JSON") == [
        "bank shipped: its models answered as JSON; the run tests whether it holds here"
    ]


def test_the_store_goes_before_the_package(store, tasks, shipped, toy_bank, tmp_path):
    shipped()
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
    found = run(tasks, tmp_path)
    assert "took mine of the store" in told(found)[0]
    assert (
        len(told(found, "shipped of the package (rougeL, 8 models, of 2026-01-02) fits as well"))
        == 1
    )


def test_of_two_that_fit_the_newer_is_taken_and_the_other_named(store, tasks, toy_bank, tmp_path):
    bank = ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank))
    for name, date in (("a", "2026-03-01"), ("b", "2026-05-01"), ("c", "2026-04-01")):
        store.add(replace(bank, info=replace(bank.info, **dated(bank, date))), name)
    found = run(tasks, tmp_path)
    assert "took b of the store (rougeL, 8 models, of 2026-05-01)" in told(found)[0]
    others = told(found, "fits as well")
    assert ["bank c" in others[0], "bank a" in others[1]] == [True, True]
    named = run(tasks, tmp_path / "named", bank=str(store.file_of("a")))
    assert named["bank"]["sha256"] == ItemBank.load(store.file_of("a")).sha256
    assert told(named) == []


def test_a_bank_can_be_named_as_the_list_has_it(store, tasks, shipped, toy_bank, tmp_path):
    """Of the store, or of the package for any task that it serves."""
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
    found = run(tasks, tmp_path, bank="mine")
    assert found["bank"]["sha256"] == ItemBank.load(store.file_of("mine")).sha256
    assert told(found) == []
    shipped(tasks=("something", stored.TASK))
    found = run(tasks, tmp_path / "package", bank="shipped")
    assert found["bank"]["sha256"] == at_hand.shipped_banks()[0].sha256
    with pytest.raises(BankError, match="no bank at nowhere"):
        run(tasks, tmp_path / "none", bank="nowhere")


def only(bank, items, names=None):
    """A bank of some of its items, or with other names for them."""
    fields = ("doc_id", "kept", "n_scores", "mean_score", "item_rest_correlation", "input_tokens", "output_tokens")  # fmt: skip
    texts = ("doc_hash", "prompt_hash", "reason")
    return replace(
        bank,
        parameters=bank.parameters.take(items),
        content_hash=tuple((names or bank.content_hash)[item] for item in items),
        scores=bank.scores[:, items],
        part_hash=(),
        sight_hash=(),
        **{name: getattr(bank, name)[items] for name in fields},
        **{name: tuple(getattr(bank, name)[item] for item in items) for name in texts},
    )


def test_a_bank_of_which_a_tenth_is_there_is_not_taken_and_told(store, tasks, toy_bank, tmp_path):
    bank = ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank))
    names = [key if row % 10 == 0 else f"x{key[1:]}" for row, key in enumerate(bank.content_hash)]
    store.add(only(bank, np.arange(len(bank)), names), "tenth")
    with pytest.raises(BankError, match="bank tenth of the store is not taken: 280 of the 312"):
        run(tasks, tmp_path)
    store.add(bank, "whole")
    found = run(tasks, tmp_path / "again")
    assert "took whole of the store" in told(found)[0]
    assert len(told(found, "bank tenth of the store is not taken")) == 1


@pytest.mark.parametrize(
    ("change", "fits"),
    [({"task": "another"}, False), ({"filter": "strict"}, False), ({"metric": "other"}, False)],
)
def test_banks_of_something_else_are_passed_over(store, tasks, toy_bank, tmp_path, change, fits):
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank, **change)), "mine")
    with pytest.raises(BankError, match="no bank for task records_stored") as caught:
        run(tasks, tmp_path, metric="rougeL")
    assert "--bank none" in str(caught.value)
    assert "calibrate" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bank_of_another_version_of_the_task_is_told(store, tasks, toy_bank, tmp_path):
    path = stored.bank_for(tmp_path / "b.parquet", toy_bank, task_version="9")
    store.add(ItemBank.load(path), "old")
    with pytest.raises(BankError, match="made for version 9 of task records_stored"):
        run(tasks, tmp_path)


def test_a_broken_file_in_the_store_stops_no_run(store, tasks, toy_bank, tmp_path):
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
    store.file_of("cut").write_bytes(b"PAR1")
    found = run(tasks, tmp_path)
    assert "took mine" in told(found)[0]
    assert len(told(found, "cut.bank.parquet is left out")) == 1


def test_the_bank_of_the_run_s_prompts_goes_first(store, tasks, toy_bank, tmp_path):
    bank = ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank))
    store.add(bank, "same")
    other = replace(bank.info, prompts=PromptFacts(system_instruction="0" * 64), num_fewshot=7)
    other = replace(other, **dated(bank, "2099-01-01"))
    store.add(replace(bank, info=other), "other")
    assert "took same of the store" in told(run(tasks, tmp_path))[0]


def test_a_young_bank_comes_after_a_shipped_one(store, tasks, shipped, tmp_path):
    """Three models on 20 documents know less than eight on 312; by themselves they are taken."""
    stored.rank(tasks, tmp_path / "first", toy.RANKED, bank="none", grow=True)
    assert len(stored.models_of()) == 3
    alone = run(tasks, tmp_path)
    assert f"took {stored.NAME} of the store (rougeL, 3 models" in told(alone)[0]
    shipped()
    found = run(tasks, tmp_path / "again")
    assert "took shipped of the package" in told(found)[0]
    assert len(told(found, f"bank {stored.NAME} of the store")) == 1


class TestResumed:
    def test_a_run_goes_on_with_the_bank_it_began_with(self, store, tasks, toy_bank, tmp_path):
        bank = ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank))
        first = store.add(bank, "mine")
        begun = run(tasks, tmp_path)
        notice = replace(bank.info, notices=("another",))
        second = store.add(replace(bank, info=notice), "mine", overwrite=True)
        assert second.sha256 != first.sha256
        again = run(tasks, tmp_path, resume=str(tmp_path / "out"))
        assert again["bank"]["sha256"] == first.sha256 == begun["bank"]["sha256"]
        assert again["ranking"] == begun["ranking"]

    def test_a_bank_that_is_gone_is_told(self, store, tasks, toy_bank, tmp_path):
        store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
        run(tasks, tmp_path)
        store.remove("mine")
        for file in store.former.iterdir():
            file.unlink()
        with pytest.raises(BankError, match="is not in the store any more"):
            run(tasks, tmp_path, resume=str(tmp_path / "out"))

    def test_its_report_finds_the_bank(self, store, tasks, toy_bank, tmp_path):
        store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
        run(tasks, tmp_path)
        store.remove("mine")
        assert attempt(["report", tmp_path / "out", "--output", tmp_path / "page.html"]).code == 0
        assert "was not found" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_list_shows_store_and_package_by_task(store, shipped, toy_bank, tmp_path, monkeypatch):
    import lm_eval_adaptive.banks.shipped as module

    shipped()
    shipped("second", tasks=("gsm8k", "gsm8k_cot"), filters=("strict-match",))
    monkeypatch.setattr(module, "shipped_banks", at_hand.shipped_banks)
    store.add(ItemBank.load(stored.bank_for(tmp_path / "b.parquet", toy_bank)), "mine")
    out = attempt(["bank", "list"]).out
    for part in (
        "mine: records_stored, rougeL, 8 models x 312",
        "second: gsm8k, gsm8k_cot, rougeL",
    ):
        assert part in out
    assert "(strict-match)" in out
    out = attempt(["bank", "list", "--tasks", "gsm8k*"]).out
    assert "mine" not in out
    assert "second" in out
