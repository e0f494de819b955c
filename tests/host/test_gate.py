"""Requests at once: as many as a server takes, found while it is asked."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.host import served
from lm_eval_adaptive.host.gate import Gate
from lm_eval_adaptive.host.served import Patience
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import quiz


def test_no_more_are_out_than_allowed_and_all_get_through_in_order():
    out, most, done = 0, 0, []

    async def one(gate, number):
        nonlocal out, most
        async with gate:
            out += 1
            most = max(most, out)
            await asyncio.sleep(0.001)
            out -= 1
            done.append(number)

    async def play():
        gate = Gate(5)
        await asyncio.gather(*(one(gate, number) for number in range(40)))

    asyncio.run(play())
    assert most == 5
    assert sorted(done) == list(range(40))
    assert done[:5] == [0, 1, 2, 3, 4]


def test_a_busy_server_is_asked_half_as_much_once_for_each_round_of_requests():
    gate = Gate(16)
    sent = time.monotonic()
    assert gate.busy(sent)
    assert not gate.busy(sent)  # sent before the cut: nothing new
    assert gate.limit == 8.0
    assert gate.busy(time.monotonic())
    assert gate.limit == 4.0
    for _ in range(10):
        gate.busy(time.monotonic())
    assert gate.limit == 1.0
    for _ in range(1000):
        gate.answered()
    assert gate.limit == 16.0


def test_a_request_that_is_called_off_while_it_waits_takes_no_place():
    async def play():
        gate = Gate(1)
        async with gate:
            waiting = asyncio.ensure_future(gate.__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            other = asyncio.ensure_future(gate.__aenter__())
            await asyncio.sleep(0)
        await asyncio.wait_for(other, 1.0)
        await gate.__aexit__()
        async with gate:
            return gate._out

    assert asyncio.run(play()) == 1


class Busy(quiz.Server):
    """Answers 429 to whatever comes while so many are being answered."""

    def __init__(self, takes):
        super().__init__(wait=0.02)
        self.takes, self.now, self.most, self.refused = takes, 0, 0, 0
        self._counting = threading.Lock()

    def serve(self, handler, body):
        with self._counting:
            over = self.now >= self.takes
            self.refused += over
            if not over:
                self.now += 1
                self.most = max(self.most, self.now)
        if over:
            handler.send_response(429)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        try:
            super().serve(handler, body)
        finally:
            with self._counting:
                self.now -= 1


@pytest.mark.parametrize("takes", [3, 100])
def test_concurrency_follows_what_a_server_takes(tmp_path, monkeypatch, takes):
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(
        served,
        "PATIENCE",
        Patience(first_pause=0.01, longest_pause=0.05, limit=30.0, told_after=9.0),
    )
    task = quiz.make_task(tmp_path / "task")
    with Busy(takes) as server:
        url = f"http://127.0.0.1:{server.port}/v1/completions"
        models = [
            {
                "name": f"q{share}",
                "model": "local-completions",
                "model_args": {"model": f"q{share}", "base_url": url, "num_concurrent": 24,
                               "tokenizer_backend": "none", "max_retries": 1},
            }
            for share in (0.4, 0.8)
        ]  # fmt: skip
        found = simple_evaluate(
            models, [quiz.TASK],
            AdaptiveConfig(bank="none", metric="score", range=(0.0, 1.0),
                           items_per_model=quiz.DOCUMENTS, round_size=quiz.DOCUMENTS),
            output_path=str(tmp_path / "out"), include_path=task,
        )  # fmt: skip
    ranking = found["ranking"][quiz.TASK]
    assert [entry["items"] for entry in ranking["ranking"]] == [quiz.DOCUMENTS] * 2
    answered = len(server.answered)
    if takes == 100:
        assert server.refused == 0
        assert server.most > 12
    else:
        # Two models ask at once, 24 requests each: the first burst is refused, then few are.
        assert answered == 2 * quiz.DOCUMENTS
        # (137 at most where this was written; 459 without the gate)
        assert server.refused < 4 * answered, (server.refused, answered)


def test_engines_that_would_be_built_in_every_call_are_refused(tmp_path):
    task = quiz.make_task(tmp_path / "task")
    with pytest.raises(UsageError, match=r"data_parallel_size=4 makes the harness build.*once"):
        simple_evaluate(
            [{"name": "v", "model": "vllm", "model_args": {"pretrained": "x",
                                                           "data_parallel_size": 4}}],
            [quiz.TASK],
            AdaptiveConfig(bank="none", metric="score", range=(0.0, 1.0)),
            output_path=str(tmp_path / "out"),
            include_path=task,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()
