"""A judge on bad days: cut replies, servers of another dialect, errors, secrets in messages."""

from __future__ import annotations

import base64
import json
import logging
import math
import sqlite3
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.metrics import METRICS, Case, base, document_metrics, judge
from lm_eval_adaptive.metrics.judging import reply
from lm_eval_adaptive.metrics.judging import server as asking
from lm_eval_adaptive.redact import hide
from tests.metrics import chat_server
from tests.metrics.chat_server import said

# A trace that names numbers of the scale, as reasoning does.
TRACE = "<think>They want a grade. A grade of 2 would be harsh, a score: 10 too kind. The facts"


@pytest.fixture
def server():
    with chat_server.running() as made:
        yield made


@pytest.fixture
def settings(server):
    return {
        "rubric": "{{ question }} ANSWER: {{ answer }}",
        "model": "j",
        "base_url": server.url,
        "backoff": 0.01,
        "retries": 3,
        "timeout": 5,
    }


def verdicts(settings, *answers):
    cases = [Case(answer, doc={"question": "Which bird?"}) for answer in answers]
    return METRICS["judge"].compute(cases, {"judge": settings})


def limits(server):
    return [body.get("max_tokens") for _, _, body in server.seen]


class TestCutReplies:
    @pytest.mark.parametrize(
        "cut",
        [
            said(TRACE, "length"),
            said(TRACE),  # servers that do not say why they ended
            said("A score: 3 for facts, a score: 9 for", "length"),
            said("Score: 1", "length"),  # of 10, perhaps
            said(None, "length", reasoning_content="A score: 2"),
        ],
    )
    def test_a_cut_reply_is_no_verdict_and_is_asked_for_again_with_more_tokens(
        self, server, settings, cut
    ):
        server.plan = [cut, said(TRACE + "…</think>\nScore: 8")]
        assert verdicts({**settings, "max_tokens": 100}, "Owls") == [8.0]
        assert limits(server) == [100, 4096]

    def test_cut_again_is_missing_with_the_reason(self, server, settings, caplog):
        server.reply = lambda body: said(TRACE, "length")
        found = verdicts({**settings, "max_tokens_again": 512}, "Owls", "Bats")
        assert all(math.isnan(each) for each in found)
        assert found[0].reason == "the judge's reply was cut at 512 tokens before its verdict"
        assert judge.TALLY.missing == {"j": {found[0].reason: 2}}
        assert "2 x the judge's reply was cut" in caplog.text
        assert any("2 of 2 answers have no verdict" in each for each in base.take_notices())

    def test_one_attempt_where_that_is_asked_for(self, server, settings):
        server.reply = lambda body: said(TRACE, "length")
        assert math.isnan(verdicts({**settings, "max_tokens_again": 0}, "Owls")[0])
        assert limits(server) == [256]

    def test_a_judge_that_needs_more_is_given_more_at_once(self, server, settings):
        server.reply = lambda body: (
            said(TRACE, "length") if body["max_tokens"] < 500 else said("<think>x</think>Score: 5")
        )
        assert verdicts({**settings, "concurrency": 1}, "a", "b", "c") == [5.0] * 3
        assert limits(server) == [256, 4096, 4096, 4096]

    def test_no_room_for_more_tokens_leaves_the_cut_reply(self, server, settings):
        server.reply = lambda body: (
            (400, {"error": {"message": "This model's maximum context length is 512 tokens."}})
            if body["max_tokens"] > 500
            else said(TRACE, "length")
        )
        (found,) = verdicts(settings, "Owls")
        assert "cut at 256 tokens" in found.reason

    def test_a_cut_reply_of_an_older_cache_is_asked_for_again(self, server, settings, tmp_path):
        verdicts(settings, "Owls")
        path = tmp_path / "cache" / "judge.sqlite"
        with sqlite3.connect(path) as file:
            file.execute('UPDATE replies SET reply = ?, finish = "", "limit" = 0', (TRACE,))
        server.reply = lambda body: "Score: 6"
        assert verdicts(settings, "Owls") == [6.0]

    def test_a_cache_without_the_new_columns_is_read(self, server, settings, tmp_path):
        folder = tmp_path / "cache"
        folder.mkdir()
        with sqlite3.connect(folder / "judge.sqlite") as file:
            file.execute("CREATE TABLE replies (key TEXT PRIMARY KEY, judge TEXT, reply TEXT)")
        assert verdicts(settings, "Owls") == [7.0]
        assert verdicts(settings, "Owls") == [7.0]
        assert len(server.seen) == 1

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (TRACE + ".</think>\n\n**Score: 4**", 4.0),
            ("A score: 2?</think>Score: 9", 9.0),
            ("<THINK>\nscore: 2\n</THINK>\n6", 6.0),
            ("[THINK]score: 2[/THINK]Score: 3", 3.0),
            ("<think>a</think><think>score: 2</think> Score: 3", 3.0),
            ("<think>Score: 5</think>", None),
            ("<thinking>Score: 5", None),
            (
                "<|channel|>analysis<|message|>score: 2<|end|><|channel|>final<|message|>Score: 8",
                8.0,
            ),
        ],
    )
    def test_reasoning_is_no_verdict(self, text, expected):
        assert reply.read_verdict(text, (1, 10)) == expected

    @given(st.text(alphabet="score:= 19[]*_<think/>.-\n", max_size=200))
    def test_any_reply_is_read(self, text):
        found = reply.read_verdict(text, (1, 10))
        assert found is None or 1 <= found <= 10

    def test_a_huge_reply_is_read_quickly(self):
        start = time.process_time()
        for unit in ("score ", "9", "score: 9.", "<think>", " ", "[("):
            reply.read_verdict(unit * (10_000_000 // len(unit)) + "\nScore: 4", (1, 10))
        assert time.process_time() - start < 20


class TestDialects:
    def strict(self, body):
        """Refuses max_tokens, and temperature 0 under the same words, as some servers do."""
        if "max_tokens" in body or "temperature" in body:
            return 400, {
                "error": {
                    "message": "Unsupported parameter: 'max_tokens' is not supported with this "
                    "model. Use 'max_completion_tokens' instead.",
                    "code": "unsupported_parameter",
                }
            }
        return said(f"Score: {body['max_completion_tokens'] // 32}")

    def test_what_a_server_refuses_is_left_out_and_remembered(self, server, settings):
        server.reply = self.strict
        one = {**settings, "retries": 0, "concurrency": 1}
        assert verdicts(one, "a", "b") == [8.0, 8.0]
        assert len(server.seen) == 4
        assert any("takes no temperature" in each for each in base.take_notices())

    def test_many_at_once_learn_it_too(self, server, settings):
        server.reply, server.delay = self.strict, 0.02
        assert verdicts({**settings, "retries": 0}, *"abcdefgh") == [8.0] * 8

    def test_temperature_alone(self, server, settings):
        server.reply = lambda body: (
            (400, {"error": {"message": "Unsupported value: 'temperature' does not support 0 with "
                             "this model. Only the default (1) value is supported."}})
            if "temperature" in body
            else said("Score: 3")
        )  # fmt: skip
        assert verdicts(settings, "a") == [3.0]
        assert server.seen[-1][2]["max_tokens"] == 256

    def test_reasoning_effort_is_sent_where_it_is_set(self, server, settings, monkeypatch):
        verdicts(settings, "a")
        verdicts({**settings, "reasoning_effort": "high"}, "a")
        monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_REASONING_EFFORT", "low")
        verdicts(settings, "a")
        sent = [body.get("reasoning_effort") for _, _, body in server.seen]
        assert sent == [None, "high", "low"]
        monkeypatch.delenv("LMEVAL_ADAPTIVE_JUDGE_REASONING_EFFORT")
        assert METRICS["judge"].signature({"judge": settings}) != METRICS["judge"].signature(
            {"judge": {**settings, "reasoning_effort": "high"}}
        )

    def test_a_refused_effort_is_one_line_that_names_it(self, server, settings):
        server.reply = lambda body: (
            (400, {"error": {"message": "Unsupported parameter: 'reasoning_effort'"}})
            if "reasoning_effort" in body
            else said("Score: 3")
        )
        with pytest.raises(UsageError, match="reasoning_effort"):
            verdicts({**settings, "reasoning_effort": "low"}, "a")


class TestOneDocument:
    """What fails for one document is that document's missing score, once tried again."""

    def only(self, problem):
        return lambda body: problem if "Bats" in str(body["messages"]) else "Score: 7"

    @pytest.mark.parametrize(
        ("problem", "attempts", "reason"),
        [
            ({"error": {"message": "engine died", "code": 500}}, 4, "engine died"),
            ({"error": "overloaded"}, 4, "overloaded"),
            ((500, b"<html>oops</html>"), 4, "HTTP 500"),
            ((200, b"<html>a proxy's page</html>"), 4, "a proxy's page"),
            ((200, b""), 4, "no choices"),
            (said(None), 3, "no content"),
            (said("  "), 3, "no content"),
            ({"choices": []}, 3, "no choices"),
            ({"choices": [{"text": "7"}]}, 3, "no content"),
            ({}, 3, "no choices"),
            ([], 3, "no choices"),
            (said(None, "content_filter"), 1, "declined"),
            (said(None, refusal="I cannot help with that."), 1, "I cannot help with that."),
            ((400, {"error": {"message": "prompt is too long"}}), 1, "prompt is too long"),
            ((413, {"detail": "too large"}), 1, "HTTP 413 too large"),
            ((403, {"error": {"message": "flagged by moderation"}}), 1, "flagged"),
        ],
    )
    def test_is_missing_and_the_others_are_not(self, server, settings, problem, attempts, reason):
        server.reply = self.only(problem)
        found = verdicts({**settings, "concurrency": 1}, "Mice", "Bats", "Owls")
        assert (found[0], found[2]) == (7.0, 7.0)
        assert math.isnan(found[1])
        assert reason in found[1].reason
        asked = [body for _, _, body in server.seen if "Bats" in str(body["messages"])]
        assert len(asked) == attempts

    def test_a_connection_cut_off_counts_as_busy(self, server, settings):
        server.plan = [None, None]
        assert verdicts(settings, "Mice") == [7.0]

    def test_it_is_not_cached(self, server, settings):
        server.reply = self.only(said(None))
        assert math.isnan(verdicts(settings, "Mice", "Bats")[1])
        server.reply = lambda body: "Score: 4"
        assert verdicts(settings, "Mice", "Bats") == [7.0, 4.0]

    def test_a_rubric_that_a_document_does_not_fit(self, server, settings):
        wanted = {**settings, "rubric": "{{ answers | join(', ') }} {{ answer }}"}
        cases = [Case("x", doc={"answers": ["a"]}), Case("x", doc={"answers": None})]
        found = METRICS["judge"].compute(cases, {"judge": wanted})
        assert found[0] == 7.0
        assert "cannot be filled in" in found[1].reason

    def test_the_reason_goes_with_the_value(self, server, settings):
        server.reply = lambda body: "No idea."
        score = document_metrics("judge", settings={"judge": settings})
        (found,) = score({"question": "?"}, ["Mice"]).values()
        assert math.isnan(found)
        assert found.reason == "the judge's reply holds no verdict on 1 to 10"
        assert any("1 of 1 answers have no verdict" in each for each in score.notices())
        assert score.notices() == []


class TestWaiting:
    def ask(self, server, waits, **more):
        own = judge.JudgeSettings("x", model="j", base_url=server.url, backoff=0.5, **more)
        return judge.ask_server([{"role": "user", "content": "x"}], own, waits.append)

    @pytest.mark.parametrize("status", [429, 503, 529])
    def test_retry_after_is_obeyed(self, server, status):
        then = datetime.now(timezone.utc) + timedelta(seconds=40)
        for value, least, most in (
            ("7", 7, 7.2),
            ("2.5", 2.5, 2.7),
            (format_datetime(then), 35, 41),
        ):
            waits = []
            server.plan = [(status, {"error": "slow down"}, {"Retry-After": value})]
            assert self.ask(server, waits).text.endswith("7")
            assert least <= waits[0] <= most

    def test_an_error_in_a_good_answer_is_waited_for(self, server):
        waits = []
        body = {"error": {"message": "busy", "code": 429}}
        server.plan = [(200, body, {"Retry-After": "3"}), (200, body)]
        self.ask(server, waits)
        assert waits[0] >= 3
        assert 1 <= waits[1] <= 1.25

    def test_a_wait_beyond_the_limit_is_not_begun(self, server):
        waits = []
        server.reply = lambda body: (429, {"error": "tomorrow"}, {"Retry-After": "86400"})
        with pytest.raises(ModelError, match=r"asks to wait 86400 s\); verdicts so far"):
            self.ask(server, waits)
        assert waits == []

    def test_ten_minutes_at_most_by_itself(self, server):
        waits = []
        server.reply = lambda body: 503
        with pytest.raises(ModelError, match="attempts"):
            self.ask(server, waits)
        assert 400 < sum(waits) <= 600

    def test_an_account_without_money_is_not_asked_again(self, server):
        for plan in (402, (429, {"error": {"code": "insufficient_quota"}})):
            server.plan = [plan]
            with pytest.raises(ModelError, match="verdicts so far are cached"):
                self.ask(server, [])
        assert len(server.seen) == 2

    def test_stopping_does_not_wait_for_the_patient(self, server, settings):
        server.reply = lambda body: 401 if "Bats" in str(body) else 503
        start = time.monotonic()
        with pytest.raises(UsageError, match="HTTP 401"):
            verdicts({**settings, "backoff": 30}, "Bats", "Mice")
        assert time.monotonic() - start < 10


KEY, PASSWORD, SIGNED = "sk-judge-0123456789abcdef", "open:Sesame/7", "sig=Zm9vYmFyYmF6&se=2027"


class TestSecrets:
    """Neither key, password nor signed query is in a message, a log, a notice or the cache."""

    def problems(self, server):
        def echo():
            path, headers, _ = server.seen[-1]
            kind, _, value = headers["Authorization"].partition(" ")
            plain = base64.b64decode(value).decode() if kind == "Basic" else ""
            return f"Incorrect key {value} {plain}: {path} {headers}"

        yield lambda body: (400, {"error": {"message": echo()}})
        yield lambda body: (401, {"error": {"message": echo()}})
        yield lambda body: (500, echo().encode())
        yield lambda body: (302, {}, {"Location": f"http://127.0.0.1/?{SIGNED}"})
        yield lambda body: {"error": {"message": echo(), "code": 400}}
        yield lambda body: said(None, refusal=echo())
        yield lambda body: f"{echo()} Score: 4"

    def urls(self, server):
        host = server.url.removeprefix("http://")
        quoted = "open%3ASesame%2F7"
        yield server.url
        yield f"http://me:{quoted}@{host}"
        yield f"{server.url}?{SIGNED}"
        yield f"http://me:{quoted}@127.0.0.1:1/v1?{SIGNED}"
        yield f"http://me:{PASSWORD}@{host}"  # not quoted: no address at all
        yield f"ftp://me:{quoted}@{host}"

    def test_nowhere(self, server, settings, monkeypatch, caplog, tmp_path):
        caplog.set_level(logging.DEBUG)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        texts = []
        for count, problem in enumerate(self.problems(server)):
            for url in self.urls(server):
                server.reply = problem
                own = {**settings, "base_url": url, "retries": 0, "timeout": 2}
                try:
                    (found,) = verdicts(own, f"answer {count} {url.count('@')}{url[-3:]}")
                    texts.append(getattr(found, "reason", ""))
                except (UsageError, ModelError) as error:
                    texts += [str(error), repr(error)]
        texts += [*base.take_notices(), caplog.text]
        texts.append((tmp_path / "cache" / "judge.sqlite").read_bytes().decode("latin1"))
        assert len(texts) > 30
        coded = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        assert not any("\n" in text for text in texts[:-2])
        for text in texts:
            for secret in (KEY, "Sesame", "Zm9vYmFy", coded):
                assert secret not in text

    def test_user_and_query_reach_the_server(self, server, settings):
        host = server.url.removeprefix("http://")
        verdicts({**settings, "base_url": f"http://me:open%3Ait@{host}/?api-version=3"}, "a")
        path, headers, _ = server.seen[0]
        assert path == "/v1/chat/completions?api-version=3"
        assert base64.b64decode(headers["Authorization"].split()[1]) == b"me:open:it"

    def test_a_redirect_takes_the_key_nowhere(self, server, settings, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        with chat_server.running() as other:
            server.reply = lambda body: (302, {}, {"Location": f"{other.url}/x"})
            with pytest.raises(UsageError, match="HTTP 302"):
                verdicts(settings, "a")
            assert other.seen == []

    @pytest.mark.parametrize(
        "url", ["file:///etc/passwd", "127.0.0.1:8000", "http://", "http://a:b"]
    )
    def test_what_is_no_address_is_one_line(self, settings, url):
        with pytest.raises(UsageError, match="must be as http://127"):
            verdicts({**settings, "base_url": url}, "a")

    def test_a_key_that_no_header_can_hold(self, settings, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-line\nbreak")
        with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
            verdicts(settings, "a")
        assert "sk-line" not in str(caught.value)

    def test_arguments_of_a_harness_judge(self, monkeypatch, tmp_path):
        from lm_eval_adaptive.metrics.judging import local

        text = f"model=m,api_key={KEY},base_url=http://me:Sesame7@host/v1,max_tokens=9"

        class Judge:
            def generate_until(self, requests, disable_tqdm=False):
                return ["Score: 4"] * len(requests)

        monkeypatch.setattr(local, "harness_model", lambda name, args: Judge())
        own = {"rubric": "{{ answer }}", "harness": "local-chat-completions", "model_args": text}
        assert verdicts(own, "a") == [4.0]
        stored = (tmp_path / "cache" / "judge.sqlite").read_bytes().decode("latin1")
        shown = METRICS["judge"].signature({"judge": own})
        assert "max_tokens=9" in shown
        for each in (stored, shown):
            assert KEY not in each
            assert "Sesame7" not in each

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("tokenizer=gpt2,max_length=5", "tokenizer=gpt2,max_length=5"),
            ('{"X-Auth": "a b c"}', '{"X-Auth": "[hidden]"}'),
            ("hf_abcdefghij and AKIAABCDEFGHIJKLMNOP", "[hidden] and [hidden]"),
            ("the token limit: 5", "the token limit: 5"),
        ],
    )
    def test_forms(self, text, expected):
        assert hide(text) == expected


class TestHarnessJudge:
    def test_cut_replies_get_a_second_call(self, monkeypatch):
        from lm_eval_adaptive.metrics.judging import local

        seen = []

        class Judge:
            def generate_until(self, requests, disable_tqdm=False):
                seen.append([each.args[1]["max_gen_toks"] for each in requests])
                long = requests[0].args[1]["max_gen_toks"] > 1000
                return [
                    "Score: 2"
                    if "b" in each.args[0]
                    else TRACE + ("</think>Score: 9" if long else "")
                    for each in requests
                ]

        monkeypatch.setattr(local, "harness_model", lambda name, args: Judge())
        own = {"rubric": "{{ answer }}", "harness": "x"}
        assert verdicts(own, "a", "b", "c") == [9.0, 2.0, 9.0]
        assert seen == [[256] * 3, [4096] * 2]

    def test_a_model_that_does_not_load_or_fails_is_one_line(self, monkeypatch):
        from lm_eval_adaptive.metrics.judging import local

        own = {"rubric": "{{ answer }}", "harness": "no-such-model", "model_args": f"api_key={KEY}"}
        with pytest.raises(UsageError, match="does not load") as caught:
            verdicts(own, "a")
        assert KEY not in str(caught.value)
        assert "\n" not in str(caught.value)

        class Judge:
            def generate_until(self, requests, disable_tqdm=False):
                raise RuntimeError("out of memory\nTraceback")

        monkeypatch.setattr(local, "harness_model", lambda name, args: Judge())
        with pytest.raises(ModelError, match="RuntimeError: out of memory; verdicts so far"):
            verdicts(own, "a")


class TestAgreement:
    def test_two_calls_are_compared_and_told(self, server, settings, monkeypatch):
        monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_AGREEMENT", "4")
        counts = {}

        def unsteady(body):
            text = body["messages"][0]["content"]
            counts[text] = counts.get(text, 0) + 1
            return f"Score: {5 + (counts[text] == 2 and text.endswith(('b', 'c'))) * 2}"

        server.reply = unsteady
        score = document_metrics("judge", settings={"judge": settings})
        docs = [{"question": "?"}] * 3
        assert score.batch(docs, [["a"], ["b"], ["a"]]) == [{"judge": 5.0}] * 3
        assert score.batch(docs, [["c"], ["d"], ["e"]]) == [{"judge": 5.0}] * 3
        assert counts == {f"? ANSWER: {each}": 2 - (each == "e") for each in "abcde"}
        (found,) = score.notices()
        assert found == (
            "judge j, asked twice on 4 documents: the same verdict on 2 of 4, 1 apart on average "
            "and 2 at most"
        )

    def test_second_verdicts_are_paid_for_once(self, server, settings, monkeypatch):
        own = {**settings, "agreement": 2}
        verdicts(own, "a", "b", "c")
        monkeypatch.setattr(judge, "TALLY", judge.Tally())
        verdicts(own, "a", "b", "c")
        assert len(server.seen) == 5
        assert "on 2 of 2, 0 apart" in judge.notices()[0]

    def test_missing_ones_are_counted_apart(self, server, settings):
        server.plan = [said("Score: 3"), said("no idea")]
        verdicts({**settings, "agreement": 20}, "a")
        assert judge.notices() == [
            "judge j, asked twice on 1 documents: one verdict or both missing on 1"
        ]


def test_surrogates_nul_and_ten_megabytes(server, settings):
    server.reply = lambda body: (200, json.dumps(said("\x00 \ud83d Score: 5")).encode())
    answers = ["\ud83d", "a\x00b", "x" * 10_000_000]
    assert verdicts({**settings, "timeout": 60}, *answers) == [5.0] * 3
    assert verdicts(settings, *answers) == [5.0] * 3
    assert len(server.seen) == 3


def test_an_answer_without_an_end_is_refused(server, settings, monkeypatch):
    monkeypatch.setattr(asking, "_LARGEST", 1000)
    server.reply = lambda body: "x" * 5000 if "Bats" in str(body) else "Score: 3"
    found = verdicts(settings, "Mice", "Bats")
    assert found[0] == 3.0
    assert "an answer of more than" in found[1].reason
