"""A server of the chat protocol on this machine, which does what a plan says."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """``plan`` holds what goes wrong first, ``reply`` what is said to a request's body.

    An entry of the plan is a status, a body (status 200), (status, body) or (status, body,
    headers); bytes are sent as they are; ``None`` closes the connection without an answer. What
    ``reply`` gives is the content, or such an entry.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen, self.plan, self.delay = [], [], 0.0
        self.reply = lambda body: "Fine.\nScore: 7"
        self.now = self.most = 0
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.seen.append((self.path, dict(self.headers), body))
            server.now += 1
            server.most = max(server.most, server.now)
            planned = bool(server.plan)
            entry = server.plan.pop(0) if planned else None
        time.sleep(server.delay)
        with server.lock:
            server.now -= 1
        if not planned:
            entry = server.reply(body)
            if entry is None or isinstance(entry, str):
                entry = said(entry)
        if entry is None:
            self.close_connection = True
            return
        if isinstance(entry, int):
            entry = entry, {"error": "no"}
        elif not isinstance(entry, tuple):
            entry = 200, entry
        status, content, *headers = entry
        self.answer(status, content, *headers)

    def answer(self, status, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def said(content, finish="stop", **message):
    """The body of a reply."""
    message = {"role": "assistant", "content": content, **message}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


@contextmanager
def running():
    made = Server()
    thread = threading.Thread(
        target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
