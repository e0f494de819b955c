"""Faults by plan: a server that does what a table says, under both of OpenAI's dialects."""

from __future__ import annotations

import json
import logging
import threading
import time

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.host import served
from lm_eval_adaptive.host.served import Fault, Patience
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import quiz, toy

pytest.importorskip("aiohttp")

# All documents of all models, and nothing that clocks or draws could change.
RULES = {"bank": "none", "metric": "score", "range": (0.0, 1.0)}
ALL = {**RULES, "items_per_model": quiz.DOCUMENTS, "round_size": quiz.DOCUMENTS}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return quiz.make_task(tmp_path_factory.mktemp("quiz"))


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    patience = Patience(first_pause=0.01, longest_pause=0.05, limit=20.0, told_after=0.05)
    monkeypatch.setattr(served, "PATIENCE", patience)


def run(task, output, models, resume=None, **adaptive):
    return simple_evaluate(
        models,
        [quiz.TASK],
        AdaptiveConfig(**{**ALL, **adaptive}),
        resume=resume,
        **({} if resume else {"output_path": str(output)}),
        include_path=task,
    )


def answers_of(folder, model):
    """The journal's last line of each document, by its number."""
    return {
        record["doc_id"]: record
        for record in toy.journal(folder)
        if record["type"] == "answer" and record["model"] == model
    }


# What the server does to a document, by how often it was asked before.
CURED = {  # after a wait or another try there is an answer
    0: ["429:0.2", "429:0.1"],
    1: ["error:429"],
    2: ["error:503", "503"],
    3: ["cut"],
    4: ["reset", "reset"],
    5: ["silence:3"],
    6: ["500", "500"],
    7: ["null"],
    8: ["bodyless"],
    9: ["html"],
}
LOST = {  # what stays wrong is that document's missing answer
    11: ("400", 1, "HTTP 400: no 400"),
    12: ("null", 2, "null instead of text"),
    13: ("bodyless", 2, "an answer without choices"),
    14: ("error:400", 1, "an error instead of an answer: error 400"),
    15: ("500", 5, "HTTP 500: no 500"),
    16: ("cut", 5, ""),
}
KEPT = {20: "surrogate", 21: "nul", 22: "order"}


def by_table(model, number, times):
    if model != "odd-0.8":
        return ""
    if number in CURED:
        return CURED[number][times] if times < len(CURED[number]) else ""
    return LOST[number][0] if number in LOST else KEPT.get(number, "")


@pytest.mark.parametrize(("chat", "concurrent"), [(True, 8), (False, 8), (True, 1), (False, 1)])
def test_every_fault_costs_its_own_document_at_most(task, tmp_path, chat, concurrent):
    with quiz.Server(by_table) as server:
        models = quiz.served(
            server.port, ["odd-0.8", "sound-0.5"], chat=chat, concurrent=concurrent, timeout=1
        )
        found = run(task, tmp_path, models)
    ranking = found["ranking"][quiz.TASK]
    assert not ranking["set_aside"]
    assert [entry["model"] for entry in ranking["ranking"]] == ["odd-0.8", "sound-0.5"]
    odd, sound = answers_of(tmp_path, "odd-0.8"), answers_of(tmp_path, "sound-0.5")
    for number in range(quiz.DOCUMENTS):
        assert sound[number]["score"] == quiz.score_of("sound-0.5", number)
        times = server.asked.count(("odd-0.8", number))
        if number in LOST:
            _, tries, reason = LOST[number]
            assert odd[number]["score"] is None
            assert odd[number]["resps"] == [], "an error is no answer"
            assert odd[number]["cost"] == 0.0
            assert reason in odd[number]["problem"], number
            assert times == tries, number
        else:
            assert odd[number]["score"] == quiz.score_of("odd-0.8", number), number
            assert times == 1 + len(CURED.get(number, [])), number
    assert odd[20]["resps"][0].endswith("\ud83d")
    assert odd[21]["resps"][0].endswith(" \x00\x1b[31m\u2028")
    assert not ranking["excluded"], "the other model answered them"
    (lost,) = [each for each in ranking["warnings"] if each.startswith("odd-0.8: 6 of 40")]
    assert "15 %" in lost
    (pair,) = ranking["pairs"]
    assert "odd-0.8 lost 15 % of its answers" in pair["note"]


def test_answers_in_another_order_reach_their_documents(task, tmp_path):
    def table(model, number, times):
        return "order" if number % 3 == 0 else "400" if number == 7 else ""

    for concurrent in (8, 1):
        folder = tmp_path / str(concurrent)
        with quiz.Server(table) as server:
            models = quiz.served(server.port, ["m-0.7", "n-0.5"], chat=False, concurrent=concurrent)
            for model in models:
                model["batch_size"] = 4
            run(task, folder, models)
        for name in ("m-0.7", "n-0.5"):
            found = answers_of(folder, name)
            # Of a batch that is refused, each prompt is asked by itself.
            assert [n for n in found if found[n]["score"] is None] == [7]
            assert all(found[n]["score"] == quiz.score_of(name, n) for n in found if n != 7)


def test_a_wait_that_a_server_asks_for_is_kept(task, tmp_path):
    seen = []

    def table(model, number, times):
        if number == 5:
            seen.append(time.monotonic())
        return "429:1" if number == 5 and times == 0 else ""

    with quiz.Server(table) as server:
        run(task, tmp_path, quiz.served(server.port, ["m-0.7"]))
    assert len(seen) == 2
    assert seen[1] - seen[0] >= 1.0


@pytest.mark.parametrize(
    ("fails", "aside"),
    [
        (lambda asked, number: True, "no answer to any of its first 5 documents"),
        (lambda asked, number: asked >= 6, "no answer to 10 documents in a row"),
        (lambda asked, number: 6 <= asked < 15, ""),  # nine in a row
        (lambda asked, number: asked < 4, ""),
    ],
)
def test_a_model_is_set_aside_when_it_goes_on_failing(task, tmp_path, fails, aside):
    count = {}

    def table(model, number, times):
        if model != "odd-0.8":
            return ""
        place = count.setdefault(number, len(count))
        return "401" if fails(place, number) else ""

    with quiz.Server(table) as server:
        models = quiz.served(server.port, ["odd-0.8", "a-0.6", "b-0.4"], concurrent=1)
        found = run(task, tmp_path, models)
    ranking = found["ranking"][quiz.TASK]
    assert [each["model"] for each in ranking["set_aside"]] == (["odd-0.8"] if aside else [])
    if aside:
        assert aside in ranking["set_aside"][0]["reason"]
        assert "HTTP 401: no 401" in ranking["set_aside"][0]["reason"]
        assert len(count) < 20, "it is asked nothing more"


def test_what_a_model_was_set_aside_for_is_asked_again_once_it_is_mended(task, tmp_path):
    broken = [True]

    def table(model, number, times):
        return "401" if broken[0] and model == "odd-0.8" else ""

    with quiz.Server(table) as server:
        models = quiz.served(server.port, ["odd-0.8", "a-0.6", "b-0.4"])
        unbroken_models = models
        found = run(task, tmp_path / "a", models)
        assert found["ranking"][quiz.TASK]["set_aside"]
        broken[0] = False
        before = list(server.answered)
        mended = run(task, None, models, resume=tmp_path / "a")["ranking"][quiz.TASK]
        assert not set(before) & set(server.answered[len(before) :])
        unbroken = run(task, tmp_path / "b", unbroken_models)["ranking"][quiz.TASK]
    assert toy.undated(mended) == toy.undated(unbroken)


def test_a_server_that_is_gone_pauses_the_run_and_does_not_end_it(task, tmp_path, caplog):
    first = quiz.Server(wait=0.05)

    def away():
        first.__exit__()
        first.fault = lambda *_: "reset"  # connections that are kept alive
        time.sleep(1.5)
        second.append(quiz.Server(port=first.port).__enter__())

    second = []
    first.__enter__()
    gone = threading.Timer(0.01, away)
    original = first.serve

    def serve(handler, body):
        original(handler, body)
        if len(first.answered) == 10:
            gone.start()

    first.serve = serve
    with caplog.at_level(logging.WARNING, logger="lm_eval_adaptive"):
        ranking = run(task, tmp_path, quiz.served(first.port, ["m-0.7", "n-0.4"], concurrent=2))
    ranking = ranking["ranking"][quiz.TASK]
    gone.join()
    second[0].__exit__()
    assert not ranking["set_aside"]
    found = answers_of(tmp_path, "m-0.7")
    assert len(found) == quiz.DOCUMENTS
    assert all(each["score"] is not None for each in found.values())
    said = [record.getMessage() for record in caplog.records]
    assert any("waiting for the server, at most" in each for each in said), said
    assert any(each.endswith("going on") for each in said)


def test_a_server_that_stays_away_is_set_aside_after_the_stated_limit(task, tmp_path, monkeypatch):
    patience = Patience(first_pause=0.01, longest_pause=0.05, limit=0.4, told_after=0.1)
    monkeypatch.setattr(served, "PATIENCE", patience)
    with quiz.Server() as server:
        gone = quiz.Server()
        gone.http.server_close()
        models = [
            *quiz.served(server.port, ["a-0.7", "b-0.4"]),
            *quiz.served(gone.port, ["c-0.5"]),
        ]
        ranking = run(task, tmp_path, models)["ranking"][quiz.TASK]
    (lost,) = ranking["set_aside"]
    assert lost["model"] == "c-0.5"
    assert "of at most 0 s" in lost["reason"]
    assert [entry["model"] for entry in ranking["ranking"]] == ["a-0.7", "b-0.4"]


def test_pauses_grow_with_jitter_up_to_a_limit_and_never_below_what_was_asked():
    patience = Patience(first_pause=1.0, longest_pause=30.0)
    for tries in range(1, 40):
        plain = min(2.0 ** (tries - 1), 30.0)
        drawn = [patience.pause(tries, None) for _ in range(50)]
        assert all(0.75 * plain <= each <= 1.25 * plain for each in drawn)
        assert len(set(drawn)) > 1, "requests that failed together do not come back together"
    assert patience.pause(1, 100.0) == 100.0


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "Rate limit reached", "type": "requests"}}, "away"),
        ({"error": {"message": "x", "code": "502"}}, "away"),
        ({"error": "the model is overloaded"}, "away"),
        ({"error": {"message": "x", "code": 500}}, "broken"),
        ({"error": {"message": "maximum context length is 4096"}}, "refused"),
        ({"error": {"message": "odd"}}, "broken"),
        ({"error": {"message": "x"}, "status": 403}, "refused"),
        ({"choices": []}, "empty"),
        ({"choices": [{"index": 0, "message": {}}]}, "empty"),
        (["no"], "broken"),
    ],
)
def test_a_body_that_holds_no_answer_is_a_fault(body, kind):
    with pytest.raises(Fault) as caught:
        served.check_body(body, choices=True)
    assert caught.value.kind == kind
    assert "\n" not in caught.value.what


def test_a_body_with_an_answer_is_none():
    served.check_body({"choices": [{"index": 0, "text": ""}], "error": None}, choices=True)
    served.check_body({"content": [{"text": "another dialect"}]}, choices=False)


def test_each_answer_is_in_the_journal_the_moment_it_came(task, tmp_path):
    """One document is silent for long: its neighbours' answers do not wait for it."""
    with quiz.Server(lambda model, number, times: "silence:4" if number == 9 else "") as server:
        models = quiz.served(server.port, ["m-0.7"], timeout=3)
        thread = threading.Thread(target=run, args=(task, tmp_path, models))
        thread.start()
        journal = tmp_path / "journal.jsonl"
        deadline = time.monotonic() + 30
        while len(server.answered) < quiz.DOCUMENTS - 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.4)
        lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
        came = {line["doc_id"] for line in lines if line["type"] == "response"}
        scored = {line["doc_id"] for line in lines if line["type"] == "answer"}
        assert thread.is_alive(), "the silent one is still out"
        assert came == set(range(quiz.DOCUMENTS)) - {9}
        assert scored == came
        server.fault = lambda model, number, times: "400"
        thread.join(60)
