"""Models behind a server that misbehaves: 500s, time-outs, null content, dropped connections."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy


class Faulty:
    """A chat server that answers like a toy model and misbehaves by a script.

    Args:
        fault: From the number of a request (0, 1, …) to what goes wrong with it, or "".
    """

    def __init__(self, fault):
        targets = {}
        for line in (toy.ROOT / "tasks" / "records" / "test.jsonl").read_text().splitlines():
            doc = json.loads(line)
            record = "; ".join(f"{each['field']} = {each['value']}" for each in doc["record"])
            targets[record] = doc["target"]
        self.requests, self.seen = 0, []
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                record = prompt.split("Record: ")[1].split("\nSentence")[0]
                with lock:
                    number = outer.requests
                    outer.requests += 1
                    outer.seen.append((body["model"], record))
                wrong = fault(number)
                if wrong == "500":
                    self.send_error(500)
                    return
                if wrong == "drop":
                    self.connection.close()
                    return
                if wrong == "slow":
                    time.sleep(0.2)
                if wrong == "timeout":
                    time.sleep(2.5)
                words = targets[record].split()
                share = float(body["model"])
                draws = hashlib.sha256(f"{body['model']}{record}".encode()).digest()
                content = " ".join(
                    word if draws[i % 32] / 255 < share else "um" for i, word in enumerate(words)
                )
                message = {"role": "assistant", "content": None if wrong == "null" else content}
                reply = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(reply)))
                    self.end_headers()
                    self.wfile.write(reply)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client did not wait

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # connections dropped on purpose

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1/chat/completions"

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def models(url, shares=(0.35, 0.6, 0.8), **extra):
    return [
        {
            "name": f"share-{share}",
            "model": "local-chat-completions",
            "model_args": {
                "model": str(share),
                "base_url": url,
                "num_concurrent": 3,
                "max_retries": 2,
                "timeout": 2,
                **extra,
            },
            "apply_chat_template": True,
        }
        for share in shares
    ]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    pytest.importorskip("aiohttp")
    from lm_eval_adaptive.host import served

    monkeypatch.setattr(served, "PATIENCE", served.Patience(first_pause=0.05))
    monkeypatch.setenv("OPENAI_API_KEY", "none")


RULES = {"min_items": 5, "items_per_model": 8}


def test_a_misbehaving_server_does_not_stop_a_run_or_lose_an_answer(
    toy_bank, tmp_path, monkeypatch
):
    faults = {2: "500", 5: "drop", 9: "null", 14: "slow", 17: "timeout", 23: "drop", 26: "null"}
    clean = tmp_path / "clean"
    with Faulty(lambda number: "") as url:
        expected = simple_evaluate(
            models(url),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, **RULES),
            output_path=str(clean),
        )
    with Faulty(lambda number: faults.get(number, "")) as url:
        found = simple_evaluate(
            models(url),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, **RULES),
            output_path=str(tmp_path / "faulty"),
        )
    one, two = expected["ranking"][toy.TASK], found["ranking"][toy.TASK]
    assert not two["set_aside"]
    # The servers' ports differ, and with them the models' arguments; all else is equal.
    same = ("ranking", "pairs", "trace", "stop_reason", "items_total", "signature", "excluded")
    assert [one[key] for key in same] == [two[key] for key in same]
    assert [entry["model"] for entry in two["ranking"]] == ["share-0.8", "share-0.6", "share-0.35"]


def test_null_content_is_asked_again_alone_and_is_no_empty_answer(toy_bank, tmp_path, monkeypatch):
    server = Faulty(lambda number: "null" if number == 1 else "")
    with server as url:
        found = simple_evaluate(
            models(url, shares=(0.6,)),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, items_per_model=6, min_items=6, round_size=3),
            output_path=str(tmp_path),
        )
    ranking = found["ranking"][toy.TASK]
    assert ranking["items_total"] == 6
    assert not any("empty" in warning for warning in ranking["warnings"])
    assert server.requests == 7, "only the document without an answer is asked again"


@pytest.mark.parametrize("first", ["drop", "500"])
def test_what_went_wrong_on_the_way_takes_no_try_of_an_answer_without_content(
    toy_bank, tmp_path, monkeypatch, first
):
    faults = {1: first, 2: "null"}
    server = Faulty(lambda number: faults.get(number, ""))
    with server as url:
        found = simple_evaluate(
            models(url, shares=(0.6,), num_concurrent=1),
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, items_per_model=6, min_items=6, round_size=3),
            output_path=str(tmp_path),
        )
    assert all(each["score"] is not None for each in found["ranking"][toy.TASK]["trace"])
    assert server.seen[1] == server.seen[2] == server.seen[3], "one document met both"
    assert server.requests == 8


def test_a_server_that_stays_down_is_set_aside_with_its_reason(toy_bank, tmp_path, monkeypatch):
    with Faulty(lambda number: "") as good, Faulty(lambda number: "500") as bad:
        entries = [*models(good, shares=(0.4, 0.8)), *models(bad, shares=(0.6,))]
        found = simple_evaluate(
            entries,
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, min_items=5),
            output_path=str(tmp_path),
        )
    ranking = found["ranking"][toy.TASK]
    assert [entry["model"] for entry in ranking["ranking"]] == ["share-0.8", "share-0.4"]
    (lost,) = ranking["set_aside"]
    assert lost["model"] == "share-0.6"
    assert "500" in lost["reason"]
    records = toy.journal(tmp_path)
    assert any(r["type"] == "failed" and r["model"] == "share-0.6" for r in records)


def test_two_servers_are_asked_at_the_same_time(toy_bank, tmp_path):
    times = {}
    for count in (1, 2):
        servers = [Faulty(lambda number: "slow") for _ in range(count)]
        urls = [server.__enter__() for server in servers]
        entries = [
            *models(urls[0], shares=(0.4,), num_concurrent=1),
            *models(urls[-1], shares=(0.8,), num_concurrent=1),
        ][: 2 if count == 2 else 1]
        started = time.perf_counter()
        simple_evaluate(
            entries,
            [toy.TASK],
            AdaptiveConfig(bank=toy_bank, items_per_model=8, min_items=8),
            output_path=str(tmp_path / str(count)),
        )
        times[count] = time.perf_counter() - started
        for server in servers:
            server.__exit__()
    # 8 answers of 0.2 s each: two models side by side take about the time of one, not twice.
    assert times[2] < times[1] + 1.2
