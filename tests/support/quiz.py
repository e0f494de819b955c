"""A small task of our own, and a server of its models that does what a table says.

Documents are numbered; a model keeps each word of the answer with a chance that its name tells, so
that its score of every document is known without asking. The server speaks both of OpenAI's
dialects, and writes down every request with what became of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TASK = "quiz"
DOCUMENTS = 40
WORDS = 10

_YAML = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n"], max_gen_toks: 64, do_sample: false}}
process_results: !function util.{scoring}
metric_list:
  - {{metric: score, aggregation: mean, higher_is_better: true}}
{more}metadata: {{version: 1.0}}
"""

_UTIL = """
def share(doc, text):
    want, got = doc["answer"].split(), str(text).split()
    return sum(a == b for a, b in zip(want, got)) / len(want)

def plain(doc, results):
    return {"score": share(doc, results[0])}

def strict(doc, results):
    if "broken" in str(results[0]) or doc["number"] == 3:
        raise ValueError("cannot be parsed")
    return plain(doc, results)

def pairs(doc, results):
    return {"score": share(doc, results[0]), "rare": [doc["number"] == -1, 1.0]}

def rare(items):
    kept = [score for is_rare, score in items if is_rare]
    return sum(kept) / len(kept)
"""


def answer_of(number):
    return " ".join(f"w{number}x{place}" for place in range(WORDS))


def said_by(model, number):
    """What a model says to a document; its name ends in its share of right words."""
    share = float(re.search(r"([\d.]+)$", model.partition("+")[0])[1])
    draws = hashlib.sha256(f"{model}/{number}".encode()).digest()
    words = answer_of(number).split()
    return " ".join(w if draws[i] / 255 < share else "um" for i, w in enumerate(words))


def score_of(model, number):
    pairs = zip(said_by(model, number).split(), answer_of(number).split(), strict=True)
    return sum(a == b for a, b in pairs) / WORDS


def make_task(folder, name=TASK, scoring="plain", more="", file="quiz.yaml"):
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "quiz.jsonl"
    data.write_text(
        "".join(
            json.dumps({"number": n, "question": f"Question {n}?", "answer": answer_of(n)}) + "\n"
            for n in range(DOCUMENTS)
        )
    )
    (folder / "util.py").write_text(_UTIL)
    text = _YAML.format(name=json.dumps(name), data=data, scoring=scoring, more=more)
    (folder / file).write_text(text)
    return str(folder)


class Server:
    """An OpenAI-like server on loopback.

    Args:
        fault: From (model, document, how often it was asked before) to what goes wrong, "" for
            nothing; see ``_misbehave`` for what there is.
        wait: Seconds that an answer takes.
        port: Where; 0 for any.
    """

    def __init__(self, fault=lambda model, number, times: "", wait=0.0, port=0):
        self.fault, self.wait = fault, wait
        self.asked = []  # (model, document) of every request, in order
        self.answered = []  # those whose answer was sent whole
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.send_error(404)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.serve(self, body)

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, client_address):
                pass  # connections dropped on purpose

        self.http = Quiet(("127.0.0.1", port), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()

    def serve(self, handler, body):
        model, chat = body["model"], "messages" in body
        if chat:
            prompts = [body["messages"][-1]["content"]]
        else:
            prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        numbers = [int(re.search(r"Question (\d+)\?", prompt)[1]) for prompt in prompts]
        wrongs = []
        with self._lock:
            for number in numbers:
                times = self.asked.count((model, number))
                self.asked.append((model, number))
                wrongs.append(self.fault(model, number, times))
        time.sleep(self.wait)
        for number, wrong in zip(numbers, wrongs, strict=True):
            if wrong and self._misbehave(handler, wrong, chat=chat, text=said_by(model, number)):
                return
        choices = []
        for index, (number, wrong) in enumerate(zip(numbers, wrongs, strict=True)):
            text = said_by(model, number)
            ends = {"surrogate": " \ud83d", "nul": " \x00\x1b[31m\u2028", "broken": " broken"}
            text = None if wrong == "null" else text + ends.get(wrong, "")
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices.append({"index": index, "finish_reason": "stop", **said})
        if "order" in wrongs:
            choices.reverse()
        if self._reply(handler, 200, {"object": "x", "choices": choices}):
            with self._lock:
                self.answered += [(model, number) for number in numbers]

    def _misbehave(self, handler, wrong, *, chat, text):
        """Do something else than answer; whether that was it."""
        kind, _, more = wrong.partition(":")
        if kind in ("400", "401", "500", "503"):
            self._reply(handler, int(kind), {"error": {"message": f"no {kind}", "code": int(kind)}})
        elif kind == "429":
            self._reply(handler, 429, {"error": {"message": "slow down"}}, {"Retry-After": more})
        elif kind == "error":  # status 200, and an error in the body
            error = {"message": f"error {more}", "code": int(more)} if more else "odd"
            self._reply(handler, 200, {"error": error})
        elif kind == "bodyless":
            self._reply(handler, 200, {"object": "x"})
        elif kind == "html":
            self._reply(handler, 200, "<html>a proxy</html>")
        elif kind == "cut":
            said = {"message": {"content": text}} if chat else {"text": text}
            data = json.dumps({"choices": [{"index": 0, **said}]}).encode()
            self._head(handler, 200, len(data))
            handler.wfile.write(data[: len(data) // 2])
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif kind == "reset":
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            handler.close_connection = True
        elif kind == "silence":
            time.sleep(float(more))
            handler.close_connection = True
        else:
            return False
        return True

    @staticmethod
    def _head(handler, status, length, headers=None):
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(length))
        for key, value in (headers or {}).items():
            handler.send_header(key, value)
        handler.end_headers()

    def _reply(self, handler, status, body, headers=None):
        data = json.dumps(body).encode() if isinstance(body, dict) else body.encode()
        try:
            self._head(handler, status, len(data), headers)
            handler.wfile.write(data)
            handler.wfile.flush()
        except OSError:
            return False  # the client did not wait
        return True


def served(port, names, *, chat=True, concurrent=8, **extra):
    """Candidates of a server, by either of the harness's back ends."""
    path = "chat/completions" if chat else "completions"
    kind = "local-chat-completions" if chat else "local-completions"
    own = {} if chat else {"tokenizer_backend": "None"}
    return [
        {
            "name": name,
            "model": kind,
            "model_args": {
                "model": name,
                "base_url": f"http://127.0.0.1:{port}/v1/{path}",
                "num_concurrent": concurrent,
                "timeout": 20,
                **own,
                **extra,
            },
            "apply_chat_template": chat,
        }
        for name in names
    ]
