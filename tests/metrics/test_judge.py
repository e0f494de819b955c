"""The judge: requests, verdicts, retries, cache, against a server on this machine."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from pathlib import Path

import pytest

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.metrics import METRICS, Case, judge
from lm_eval_adaptive.metrics.judging import config, family, local, reply
from tests.metrics import chat_server

RUBRIC = "Question: {{ question }}\nRight: {{ correct_answers | join('; ') }}\nAnswer: {{ answer }}"
DOC = {"question": "What do owls eat?", "correct_answers": ["Mice", "Small animals"]}


@pytest.fixture
def server():
    with chat_server.running() as made:
        yield made


@pytest.fixture
def settings(server):
    return {
        "rubric": RUBRIC,
        "scale": [1, 10],
        "model": "my-judge",
        "base_url": server.url,
        "backoff": 0.01,
        "retries": 3,
        "timeout": 5,
    }


def verdicts(settings, *answers):
    cases = [Case(answer, doc=DOC) for answer in answers]
    return METRICS["judge"].compute(cases, {"judge": settings})


class TestAsking:
    def test_the_request(self, server, settings, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sesame")
        assert verdicts({**settings, "system": "Be strict."}, "Seeds") == [7.0]
        ((path, headers, body),) = server.seen
        assert path == "/v1/chat/completions"
        assert headers["Authorization"] == "Bearer sesame"
        assert body["model"] == "my-judge"
        assert body["temperature"] == 0
        assert body["messages"] == [
            {"role": "system", "content": "Be strict."},
            {
                "role": "user",
                "content": "Question: What do owls eat?\nRight: Mice; Small animals\nAnswer: Seeds",
            },
        ]

    def test_an_answer_cannot_smuggle_a_template(self, server, settings):
        verdicts(settings, "{{ correct_answers }} {% raw %}")
        assert server.seen[0][2]["messages"][0]["content"].endswith(
            "{{ correct_answers }} {% raw %}"
        )

    def test_a_round_is_asked_at_once(self, server, settings):
        server.delay = 0.1
        server.reply = lambda body: f"Score: {body['messages'][0]['content'].split()[-1]}"
        found = verdicts({**settings, "concurrency": 4}, *[str(1 + k % 9) for k in range(9)])
        assert found == [float(1 + k % 9) for k in range(9)]
        assert 2 <= server.most <= 4

    @pytest.mark.parametrize("trouble", [[500, 503], [429], [{"choices": []}], [{"error": "x"}]])
    def test_a_busy_server_is_asked_again(self, server, settings, trouble):
        server.plan = list(trouble)
        assert verdicts(settings, "Mice") == [7.0]
        assert len(server.seen) == len(trouble) + 1

    def test_waits_grow(self):
        waits = []
        settings = judge.JudgeSettings("x", model="m", base_url="http://127.0.0.1:9", retries=8)
        with pytest.raises(ModelError, match="9 attempts"):
            judge.ask_server([{"role": "user", "content": "x"}], settings, waits.append)
        least = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        assert all(a <= b <= 1.25 * a for a, b in zip(least, waits, strict=True))
        assert waits != least

    def test_a_refused_request_is_the_user_s_and_not_retried(self, server, settings):
        server.plan = [401]
        with pytest.raises(UsageError, match=r"HTTP 401.*OPENAI_API_KEY") as caught:
            verdicts(settings, "Mice")
        assert len(server.seen) == 1
        assert "\n" not in str(caught.value)

    def test_a_harness_model_can_judge(self, monkeypatch):
        from lm_eval.api.registry import model_registry

        asked = []

        class Judge:
            @classmethod
            def create_from_arg_string(cls, text):
                assert text == "pretrained=x"
                return cls()

            def apply_chat_template(self, messages):
                return f"<user>{messages[-1]['content']}"

            def generate_until(self, requests, disable_tqdm=False):
                asked.extend(request.args for request in requests)
                return ["Score: 4"] * len(requests)

        monkeypatch.setattr("lm_eval.api.registry.get_model", lambda name: Judge)
        assert model_registry is not None
        local.harness_model.cache_clear()
        settings = {"rubric": RUBRIC, "harness": "judge-kind", "model_args": "pretrained=x"}
        assert verdicts(settings, "Mice", "Bats") == [4.0, 4.0]
        local.harness_model.cache_clear()
        assert len(asked) == 2
        assert asked[0][0].startswith("<user>Question:")
        assert asked[0][1]["temperature"] == 0.0


class TestVerdicts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("7", 7.0),
            (" **8** ", 8.0),
            ("7/10", 7.0),
            ("Score: 7 out of 10", 7.0),
            ("Rating: [[9]]", 9.0),
            ('{"reason": "ok", "score": 3}', 3.0),
            ("A score of 10 needs more. Score: 2.5", 2.5),
            ("Score: 11", None),
            ("Score: -7", None),
            ("Score: 0", None),
            ("Rating 1-10: fine", None),
            ("There are 7 errors", None),
            ("", None),
            ("Score: ten", None),
        ],
    )
    def test_reading(self, text, expected):
        assert reply.read_verdict(text, (1, 10)) == expected

    def test_what_cannot_be_read_is_left_out_and_counted(self, server, settings, caplog):
        server.reply = lambda body: "I cannot say." if "Bats" in str(body) else "Score: 5"
        found = verdicts(settings, "Mice", "Bats", "Bats of caves")
        assert found[0] == 5.0
        assert math.isnan(found[1])
        assert math.isnan(found[2])
        assert judge.TALLY.unread == {"my-judge": 2}
        assert "2 of 3 answers have no verdict on 1 to 10" in caplog.text

    def test_null_content_is_no_verdict(self, server, settings):
        server.reply = lambda body: None
        assert math.isnan(verdicts(settings, "Mice")[0])

    def test_blank_answers_get_the_lowest_and_cost_nothing(self, server, settings):
        assert verdicts(settings, "", "  \n") == [1.0, 1.0]
        assert server.seen == []

    def test_long_and_foreign_answers(self, server, settings):
        assert verdicts(settings, "x" * 100_000, "我们", "\ud800") == [7.0] * 3


class TestCache:
    def test_an_answer_is_paid_for_once(self, server, settings):
        assert verdicts(settings, "Mice", "Mice", "Bats") == [7.0] * 3
        assert len(server.seen) == 2
        server.reply = lambda body: "Score: 1"
        assert verdicts(settings, "Mice", "Bats") == [7.0] * 2
        assert len(server.seen) == 2
        assert (judge.TALLY.asked, judge.TALLY.cached) == (2, 2)

    @pytest.mark.parametrize(
        "change",
        [{"rubric": RUBRIC + "!"}, {"model": "other"}, {"scale": [1, 8]}, {"system": "Be kind."}],
    )
    def test_another_judge_or_rubric_is_asked(self, server, settings, change):
        verdicts(settings, "Mice")
        verdicts({**settings, **change}, "Mice")
        assert len(server.seen) == 2

    def test_unread_replies_are_kept_too(self, server, settings):
        server.reply = lambda body: "no idea"
        verdicts(settings, "Mice")
        verdicts(settings, "Mice")
        assert len(server.seen) == 1

    def test_what_was_said_before_a_failure_is_kept(self, server, settings):
        server.plan = [{"choices": [{"message": {"content": "Score: 9"}}]}, 500, 500, 500]
        settings = {**settings, "concurrency": 1, "retries": 1}
        with pytest.raises(ModelError, match="verdicts so far are cached"):
            verdicts(settings, "Mice", "Bats")
        asked = len(server.seen)
        assert verdicts(settings, "Mice", "Bats") == [9.0, 7.0]
        assert len(server.seen) == asked + 1

    def test_a_folder_that_cannot_be_written_is_one_line(self, settings, monkeypatch, tmp_path):
        (tmp_path / "file").touch()
        monkeypatch.setenv("LMEVAL_ADAPTIVE_CACHE", str(tmp_path / "file" / "sub"))
        with pytest.raises(UsageError, match="LMEVAL_ADAPTIVE_CACHE"):
            verdicts(settings, "Mice")


class TestSettings:
    def test_the_environment_has_the_last_word(self, settings, monkeypatch):
        monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_MODEL", "bigger")
        monkeypatch.setenv("LMEVAL_ADAPTIVE_JUDGE_URL", "http://127.0.0.1:1/v1")
        found = config.judge_settings(settings)
        assert (found.model, found.base_url) == ("bigger", "http://127.0.0.1:1/v1")

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"model": "m"}, "no rubric"),
            ({"rubric": "x"}, "LMEVAL_ADAPTIVE_JUDGE_MODEL"),
            ({"rubric": "x", "model": "m", "scale": [10, 1]}, r"\[low, high\]"),
            ({"rubric": "x", "model": "m", "scale": [1]}, "numbers were expected"),
            ({"rubric": "x", "model": "m", "temperature": 1}, "'temperature'"),
            ({"rubric": "x", "model": "m", "concurrency": 0}, "1 or more"),
        ],
    )
    def test_mistakes_are_one_line(self, settings, message):
        with pytest.raises(UsageError, match=message):
            config.judge_settings(settings)

    @pytest.mark.parametrize(
        ("rubric", "message"),
        [("{{ nothing }}", "'nothing' is undefined"), ("{% if", "no template")],
    )
    def test_a_wrong_rubric_is_one_line(self, settings, rubric, message):
        with pytest.raises(UsageError, match=message):
            verdicts({**settings, "rubric": rubric}, "Mice")


class TestFamilies:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("gpt-4o-mini", "openai"),
            ("meta-llama/Llama-3.1-8B-Instruct", "llama"),
            ("Qwen/Qwen2.5-7B", "qwen"),
            ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm"),
            ("mistralai/Mixtral-8x7B", "mistral"),
            ("philosophy-model", None),
            ("glimmer", None),
        ],
    )
    def test_by_name(self, name, expected):
        assert family.family(name) == expected

    def test_a_judge_of_its_own_kind_is_named(self):
        found = family.family_warnings(
            "Qwen/Qwen3-32B",
            {
                "a": "hf pretrained=Qwen/Qwen2.5-7B,dtype=auto",
                "b": "hf pretrained=google/gemma-2-2b",
            },
        )
        assert len(found) == 1
        assert "candidate a" in found[0]


@pytest.mark.live
@pytest.mark.skipif(os.environ.get("LMEVAL_ADAPTIVE_LIVE") != "1", reason="LMEVAL_ADAPTIVE_LIVE=1")
def test_a_real_model_judges():
    """SmolLM2-135M on loopback: what is tested is the protocol, not its judgement."""
    pytest.importorskip("xllamacpp")
    served = _script("start/servers")
    server = served.Server(served.WEIGHTS["smollm2"]())
    try:
        _judge_live(f"http://127.0.0.1:{server.port}/v1")
    finally:
        server.close()


def _judge_live(url):
    settings = {
        "rubric": "Is this answer right? {{ question }} Answer: {{ answer }}\nReply with one number "
        "from 1 (wrong) to 10 (right), as in\nScore: 5",
        "model": "smollm2",
        "base_url": url,
        "max_tokens": 24,
        "concurrency": 2,
    }
    found = verdicts(settings, "They eat mice.", "They eat stones.", "", "Nothing at all.")
    print("verdicts of SmolLM2:", found, judge.TALLY)
    assert found[2] == 1.0
    assert all(math.isnan(each) or 1 <= each <= 10 for each in found)
    asked = judge.TALLY.asked
    assert asked == 3
    again = verdicts(settings, "They eat mice.", "They eat stones.", "", "Nothing at all.")
    assert str(again) == str(found)
    assert judge.TALLY.asked == 3


def _script(name):
    path = Path(__file__).resolve().parents[2] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
