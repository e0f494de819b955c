"""`--schedule async`: models do not wait for each other, and the journal keeps the order."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.records.journal import read_journal
from lm_eval_adaptive.run import asking
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.ranking import ranking_document
from lm_eval_adaptive.run.standing import contest_of_journal
from tests.support import toy

RULES = {"min_items": 6, "confidence": 0.999, "round_size": 2, "schedule": "async"}


@pytest.fixture(autouse=True)
def side_by_side(monkeypatch):
    toy.register()
    monkeypatch.setattr(toy.ToyLM, "side_by_side", True, raising=False)


def run(bank, output, resume=None, models=None, **options):
    return simple_evaluate(
        models or toy.models(),
        [toy.TASK],
        AdaptiveConfig(bank=bank, **{**RULES, **options}),
        resume=resume,
        **({} if resume else {"output_path": str(output)}),
    )


@pytest.fixture
def waits(monkeypatch):
    """Models that take their time: weak the longest."""
    plain, pause = toy.ToyLM.generate_until, {"weak": 0.12, "middle": 0.03, "strong": 0.01}

    def slow(self, requests, **_):
        time.sleep(pause[self.name] * len(requests))
        return plain(self, requests)

    monkeypatch.setattr(toy.ToyLM, "generate_until", slow)


def numbers(ranking):
    """A ranking without what says when it was made."""
    plain = {key: value for key, value in ranking.items() if key not in ("date", "versions")}
    return json.loads(json.dumps(plain, default=str))


@pytest.mark.usefixtures("waits")
def test_the_order_is_right_and_the_journal_gives_the_ranking_again(toy_bank, tmp_path):
    found = run(toy_bank, tmp_path)["ranking"][toy.TASK]
    assert [entry["model"] for entry in found["ranking"]] == ["strong", "middle", "weak"]
    assert found["stop_reason"] == "decided"
    assert "|schedule:async" in found["signature"]
    journal = read_journal(next(tmp_path.rglob("journal.jsonl")))
    taken = journal.taken(toy.TASK)
    rounds = [r.round for r in journal.records if type(r).__name__ == "RoundRecord"]
    assert sorted(taken) == sorted(rounds) == list(range(1, len(rounds) + 1))
    assert list(taken) != sorted(taken)  # a slow model's first set comes after fast ones' later
    contest = contest_of_journal(ItemBank.load(toy_bank), journal, toy.TASK)
    contest.replay(journal.answers(toy.TASK), "decided", taken)
    again = numbers(ranking_document(contest).plain())
    for key in ("ranking", "pairs", "trace", "items_total"):
        assert again[key] == numbers(found)[key], key


def test_a_fast_model_goes_on_while_a_slow_one_is_at_work(toy_bank, tmp_path, monkeypatch):
    plain, hold, calls = toy.ToyLM.generate_until, threading.Event(), {}

    def held(self, requests, **_):
        calls[self.name] = calls.get(self.name, 0) + 1
        if self.name == "weak" and calls["weak"] == 1:
            hold.wait(30)  # let go by the other's third set
        if self.name == "strong" and calls["strong"] == 3:
            hold.set()
        return plain(self, requests)

    monkeypatch.setattr(toy.ToyLM, "generate_until", held)
    found = run(toy_bank, tmp_path, items_per_model=12, min_items=6)["ranking"][toy.TASK]
    assert hold.is_set()
    assert [entry["items"] for entry in found["ranking"]] == [12, 12, 12]


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("share", [0.15, 0.4, 0.7, 0.95])
def test_cut_off_anywhere_it_goes_on_by_its_journal(toy_bank, tmp_path, share):
    run(toy_bank, tmp_path, items_per_model=10)
    path = tmp_path / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = lines[: max(int(share * len(lines)), 2)]
    path.write_text("".join(kept))
    toy.ToyLM.calls.clear()
    found = run(toy_bank, tmp_path, resume=tmp_path, items_per_model=10)["ranking"][toy.TASK]
    before = [json.loads(line) for line in kept]
    answered = {(r["model"], r["doc_id"]) for r in before if r["type"] == "answer"}
    assert not answered & set(toy.ToyLM.calls)
    assert len(toy.ToyLM.calls) == len(set(toy.ToyLM.calls))
    assert [entry["items"] for entry in found["ranking"]] == [10, 10, 10]
    journal = read_journal(path)
    begun = [r["round"] for r in before if r["type"] == "taken"]
    assert list(journal.taken(toy.TASK))[: len(begun)] == begun
    asked = [(r["model"], r["doc_id"]) for r in toy.journal(tmp_path) if r["type"] == "answer"]
    assert len(asked) == len(set(asked)) == 30


def test_a_model_that_fails_is_set_aside_and_the_others_end(toy_bank, tmp_path):
    models = toy.models()
    models[0]["model_args"]["fail_after"] = 3
    found = run(toy_bank, tmp_path, models=models)["ranking"][toy.TASK]
    assert [each["model"] for each in found["set_aside"]] == [models[0]["name"]]
    assert len(found["ranking"]) == 2


def test_a_model_that_was_mended_goes_on_however_often_the_run_does(toy_bank, tmp_path):
    """A set that was taken in without its answers is taken in again, and has one place."""
    models, away, place = toy.models(), tmp_path / "away", tmp_path / "out"
    models[2]["model_args"]["fail_file"] = str(away)
    away.touch()
    found = run(toy_bank, place, models=models, items_per_model=10)["ranking"][toy.TASK]
    assert [each["model"] for each in found["set_aside"]] == ["strong"]
    away.unlink()
    mended = run(toy_bank, place, models=models, resume=place, items_per_model=10)
    again = run(toy_bank, place, models=models, resume=place, items_per_model=10)
    first, second = (numbers(each["ranking"][toy.TASK]) for each in (mended, again))
    assert [entry["items"] for entry in first["ranking"]] == [10, 10, 10]
    assert not first["set_aside"]
    for key in ("ranking", "pairs", "trace", "items_total"):
        assert second[key] == first[key], key
    taken = read_journal(place / "journal.jsonl").taken(toy.TASK)
    assert len(taken) == len(set(taken))


def test_an_error_ends_the_asking_of_all_and_what_came_is_kept(toy_bank, tmp_path, monkeypatch):
    plain, under_way = toy.ToyLM.generate_until, threading.Event()

    def slow(self, requests, **_):
        under_way.set()
        time.sleep(0.3)
        return plain(self, requests)

    ask_one = asking.Asker._ask_one

    def broken(self, candidate, *more):
        if candidate.name == "strong":
            under_way.wait(10)
            raise DataError("the disk is full")
        return ask_one(self, candidate, *more)

    monkeypatch.setattr(toy.ToyLM, "generate_until", slow)
    monkeypatch.setattr(asking.Asker, "_ask_one", broken)
    toy.ToyLM.calls.clear()
    with pytest.raises(DataError, match="the disk is full"):
        run(toy_bank, tmp_path, items_per_model=10)
    asked = len(toy.ToyLM.calls)
    time.sleep(0.8)
    assert len(toy.ToyLM.calls) == asked
    answered = {(r["model"], r["doc_id"]) for r in toy.journal(tmp_path) if r["type"] == "answer"}
    assert answered == set(toy.ToyLM.calls)


def test_without_a_bank_too(tmp_path):
    found = run(
        "none", tmp_path, metric="rougeL", round_size="auto", confidence=0.95, min_items=10
    )["ranking"][toy.TASK]
    assert [entry["model"] for entry in found["ranking"]] == ["strong", "middle", "weak"]


def test_what_does_not_go_together_is_refused(toy_bank, tmp_path):
    for options, part in (
        ({"schedule": "now"}, "--schedule must be lockstep or async, got 'now'"),
        ({"budget": 10.0}, "--schedule async does not go with a budget"),
        ({"budget_items": 100}, "--schedule async does not go with a budget"),
    ):
        with pytest.raises(UsageError, match=part):
            AdaptiveConfig(**{**RULES, **options})
    run(toy_bank, tmp_path, items_per_model=8, schedule="lockstep")
    path = Path(tmp_path) / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) // 2]))
    with pytest.raises(DataError, match="schedule"):
        run(toy_bank, tmp_path, resume=tmp_path, items_per_model=8)
