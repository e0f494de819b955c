"""Asking a judge: a server of the OpenAI chat protocol, by the standard library.

This module owns the request, its dialect (servers differ in the parameters they take), what a
server's answer means, and how often it is asked again. Four kinds of failure are told apart: the
request is in another dialect (asked again at once), the server is busy or away (asked again after
a wait), it refuses this document (no verdict for it), it refuses everybody (the run ends).
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import os
import random
import re
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.metrics.base import note
from lm_eval_adaptive.metrics.judging.reply import Reply, UnansweredError
from lm_eval_adaptive.redact import hide, without

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lm_eval_adaptive.metrics.judging.config import JudgeSettings

Messages = list[dict[str, str]]

_BUSY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_NEVER = {401, 404, 405, 407}  # key, address: nothing about this document
_PAYMENT = 402
_REFUSES = re.compile(
    r"unsupported|not support|unrecognized|unknown|unexpected|not permitted|not allowed|extra input"
    r"|deprecated|instead|only the default|must be|may only",
    re.IGNORECASE,
)
_LONGEST_WAIT = 60.0
_JITTER = 0.25
# A reply without content has been paid for: it is asked for twice more at most.
_PAID_RETRIES = 2
_LARGEST = 16 * 2**20  # bytes read of an answer
_SHORTEST_SECRET_IN_A_REPLY = 8
_PROBE: Messages = [{"role": "user", "content": "Reply with the number 1."}]
_PROBE_TOKENS = 16

# Its own generator: the harness seeds the global one, and tasks draw from it.
_dice = random.Random()


# --- where


@dataclass(frozen=True)
class Address:
    """Where a judge is asked, and how that is said.

    Attributes:
        url: Address of the chat endpoint, without user and password.
        shown: The same for messages: without query too.
        headers: Of every request.
        secrets: Values that no message may hold.
    """

    url: str = field(repr=False)
    shown: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def address(base_url: str, key: str) -> Address:
    """The chat endpoint of a server.

    Args:
        base_url: As ``https://host/v1``; may hold ``user:password@`` and a signed query.
        key: The server's key, "" for none; user and password in the address go before it.

    Raises:
        UsageError: It is no address of a server, or no header can hold the key.
    """
    try:
        parts = urlsplit(base_url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(
            "the judge's address (LMEVAL_ADAPTIVE_JUDGE_URL, metadata.metrics.judge.base_url) must "
            f"be as http://127.0.0.1:8000/v1, got {hide(base_url.partition('?')[0])[:80]!r}"
        )
    user, _, place = parts.netloc.rpartition("@")
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    headers = {"Content-Type": "application/json"}
    secrets = {key, user, unquote(user), parts.query}
    secrets |= {unquote(each) for each in user.split(":")} | set(user.split(":")[1:])
    secrets |= {value for each in parts.query.split("&") for value in _both(each.partition("=")[2])}
    if user:
        coded = base64.b64encode(unquote(user).encode()).decode()
        secrets.add(coded)
        headers["Authorization"] = f"Basic {coded}"
    elif key:
        headers["Authorization"] = f"Bearer {key}"
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise UsageError(
            "OPENAI_API_KEY holds characters that no header can have (a line break, another "
            "script); set it anew"
        )
    return Address(
        urlunsplit((parts.scheme, place, path, parts.query, "")),
        urlunsplit((parts.scheme, place, path, "", "")),
        headers,
        tuple(sorted(secrets - {""})),
    )


def _both(value: str) -> set[str]:
    return {value, unquote(value)}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects are refused: the key would go with them, to another server perhaps."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the redirect as the answer it is."""


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect)


# --- in which words


@dataclass
class Dialect:
    """How a server wants to be asked, as its refusals have taught.

    Attributes:
        limit_name: What it calls the longest reply.
        temperature: Whether it takes one.
        long: Whether replies at ``max_tokens`` have been cut in their reasoning.
        answered: When it last answered something, by the monotonic clock.
    """

    limit_name: str = "max_tokens"
    temperature: bool = True
    long: bool = False
    answered: float = -1.0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def body(self, messages: Messages, settings: JudgeSettings, limit: int) -> dict[str, Any]:
        """The request in this dialect; temperature 0 where it takes one."""
        body: dict[str, Any] = {"model": settings.model, "messages": messages}
        if self.temperature:
            body["temperature"] = 0
        body[self.limit_name] = limit
        if settings.reasoning_effort:
            body["reasoning_effort"] = settings.reasoning_effort
        return body

    def learn(self, sent: Mapping[str, Any], refusal: str, settings: JudgeSettings) -> bool:
        """Change what a refusal is about; whether there was such a thing.

        ``max_tokens`` gives way to ``max_completion_tokens``; temperature is left out where it is
        named, or where a parameter is refused that was not sent.
        """
        about_length = "too large" in refusal or "context length" in refusal
        about_effort = settings.reasoning_effort and "reasoning" in refusal
        if not _REFUSES.search(refusal) or about_length or about_effort:
            return False
        with self.lock:
            if self.limit_name not in sent or self.temperature != ("temperature" in sent):
                return True  # another request has learnt it meanwhile
            if "max_tokens" in sent and re.search("max_(completion_)?tokens", refusal):
                self.limit_name = "max_completion_tokens"
                return True
            if "temperature" in sent and re.search(
                "temperature|unsupported.(parameter|value)", refusal, re.IGNORECASE
            ):
                self.temperature = False
                note(
                    f"judge {settings.model} takes no temperature: it was left out, and verdicts "
                    "may differ from one call to the next; LMEVAL_ADAPTIVE_JUDGE_AGREEMENT=20 "
                    "measures by how much"
                )
                return True
        return False


@functools.lru_cache(maxsize=32)
def dialect(url: str, model: str) -> Dialect:
    """The dialect of a model at a server, for as long as the process lives."""
    del url, model
    return Dialect()


# --- what an answer means


@dataclass(frozen=True)
class Problem:
    """An answer that is no reply.

    Attributes:
        kind: ``busy``, ``empty`` (paid for, without content), ``filtered``, ``refused`` (this
            request), ``denied`` (every request), ``unpaid``.
        text: What the server said.
        wait: Seconds for which it wants to be left alone, 0 where it does not say.
    """

    kind: str
    text: str
    wait: float = 0.0


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds for which a server wants to be left alone, 0 where it does not say.

    >>> retry_after({"Retry-After": "2.5"}), retry_after({"retry-after-ms": "300"}), retry_after({})
    (2.5, 0.3, 0.0)
    """
    lowered = {name.lower(): value.strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        given = lowered.get(name, "")
        if re.fullmatch(r"\d{1,9}(\.\d{0,9})?", given):
            return float(given) / unit
    try:
        then = parsedate_to_datetime(lowered.get("retry-after", ""))
    except (TypeError, ValueError):
        return 0.0
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    return max(0.0, (then - datetime.now(timezone.utc)).total_seconds())


def read_answer(
    status: int, headers: Mapping[str, str], data: bytes, limit: int
) -> Reply | Problem:
    """What a server's answer means.

    Args:
        status: HTTP's.
        headers: Its headers.
        data: Its body.
        limit: How many tokens the reply was allowed.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    error = _error_of(body, status)
    if status >= 300 or error is not None:
        text = _error_text(error, data)
        return _refusal(status if status >= 300 else _code_of(error), text, retry_after(headers))
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        kind = "busy" if body is None else "empty"
        return Problem(kind, f"no choices in the answer: {_one_line(data[:300])}")
    return _reply(choices[0], limit)


def _reply(choice: Mapping[str, Any], limit: int) -> Reply | Problem:
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    finish = str(choice.get("finish_reason") or "")
    content = message.get("content")
    if isinstance(content, list):  # parts, reasoning among them
        content = "".join(
            str(part.get("text") or "")
            for part in content
            if isinstance(part, dict) and part.get("type", "text") in ("text", "output_text")
        )
    if isinstance(content, str) and content.strip():
        return Reply(content, finish, limit)
    if finish == "length":
        return Reply("", finish, limit)
    if finish == "content_filter" or message.get("refusal"):
        said = str(message.get("refusal") or "content filter")
        return Problem("filtered", f"the judge declined: {_one_line(said.encode())}")
    return Problem("empty", f"no content in the reply (finish_reason {finish or 'not given'})")


def _error_of(body: Any, status: int) -> Any:
    if not isinstance(body, dict):
        return None
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error" or (status >= 300 and not body.get("choices")):
        return body
    return None


def _code_of(error: Any) -> int:
    """The status that an error's body names; 503 where it names none."""
    if isinstance(error, dict):
        for name in ("code", "status", "status_code"):
            value = str(error.get(name) or "")
            if re.fullmatch("[3-5][0-9]{2}", value):
                return int(value)
        text = " ".join(str(error.get(name) or "") for name in ("type", "code", "message"))
        if re.search("invalid_request|unsupported|context_length|content_policy", text):
            return 400
        if re.search("authentication|invalid_api_key|permission", text):
            return 401
    return 503


def _error_text(error: Any, data: bytes) -> str:
    if isinstance(error, dict):
        parts = [error.get(name) for name in ("message", "detail", "code", "param", "type")]
        said = "; ".join(str(each) for each in parts if each not in (None, ""))
        if said:
            return _one_line(said.encode("utf-8", "replace"))
    return _one_line(str(error).encode("utf-8", "replace") if error else data[:600])


def _one_line(data: bytes) -> str:
    text = " ".join(data.decode("utf-8", "replace").split())
    return "".join(char for char in text if char.isprintable())


def _refusal(code: int, text: str, wait: float) -> Problem:
    said = f"HTTP {code} {text}".rstrip()
    if code == _PAYMENT or "insufficient_quota" in text:
        return Problem("unpaid", said)
    if code in _BUSY or code > 500:
        return Problem("busy", said, wait)
    return Problem("denied" if code in _NEVER or code < 400 else "refused", said)


# --- asking


@dataclass(frozen=True)
class _Line:
    """A judge's server, as one request sees it."""

    settings: JudgeSettings
    place: Address
    dialect: Dialect
    sleep: Callable[[float], None]

    @property
    def name(self) -> str:
        return f"judge {self.settings.model} at {self.place.shown}"

    def once(self, messages: Messages, limit: int) -> Reply | Problem:
        """One request, in the server's dialect as far as it is known."""
        for _ in range(4):
            sent = self.dialect.body(messages, self.settings, limit)
            found = self._send(json.dumps(sent).encode(), limit)
            if not isinstance(found, Problem):
                self.dialect.answered = time.monotonic()
                return found
            if found.kind != "refused" or not self.dialect.learn(sent, found.text, self.settings):
                return found
        return found

    def _send(self, body: bytes, limit: int) -> Reply | Problem:
        request = urllib.request.Request(self.place.url, body, dict(self.place.headers))  # noqa: S310  http as configured
        try:
            try:
                with _opener().open(request, timeout=self.settings.timeout) as response:
                    data = response.read(_LARGEST + 1)
                    status, headers = response.status, dict(response.headers)
            except urllib.error.HTTPError as error:
                with error:
                    data, status, headers = error.read(_LARGEST), error.code, dict(error.headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Away, timed out, cut off in the middle.
            return Problem("busy", self.clean(f"{type(error).__name__}: {error}"))
        if len(data) > _LARGEST:
            return Problem("refused", f"an answer of more than {_LARGEST >> 20} MiB")
        found = read_answer(status, headers, data, limit)
        if isinstance(found, Problem):
            return Problem(found.kind, self.clean(found.text), found.wait)
        text = without(found.text, self.place.secrets, _SHORTEST_SECRET_IN_A_REPLY)
        return Reply(text, found.finish, found.limit)

    def clean(self, text: str) -> str:
        """The text without secrets, in one line of bearable length."""
        text = " ".join(hide(text, self.place.secrets).split())
        return text if len(text) <= 300 else f"{text[:299]}…"

    def ask(self, messages: Messages, limit: int) -> Reply:
        """A reply, after as many attempts as the settings allow."""
        begun, waited, paid, attempt = time.monotonic(), 0.0, 0, 0
        while True:
            found = self.once(messages, limit)
            attempt += 1
            if isinstance(found, Reply):
                return found
            if found.kind == "denied":
                raise self._denied(found)
            if found.kind == "unpaid":
                raise ModelError(f"{self.name}: {found.text}; verdicts so far are cached")
            if found.kind == "filtered":
                raise UnansweredError(found.text)
            if found.kind == "refused":
                if self.dialect.answered < begun:
                    self._check(self._denied(found))
                raise UnansweredError(f"the judge refused it: {found.text}")
            paid += found.kind == "empty"
            wait = self._wait(attempt, found.wait)
            if (
                attempt > self.settings.retries
                or paid > _PAID_RETRIES
                or waited + wait > self.settings.patience
            ):
                break
            self.sleep(wait)
            waited += wait
        counted = f"{attempt} attempt{'s' if attempt > 1 else ''}"
        if found.kind == "busy":
            more = f", asks to wait {found.wait:g} s" if found.wait > self.settings.patience else ""
            self._check(
                ModelError(
                    f"{self.name} gave no reply in {counted} ({found.text}{more}); verdicts so far "
                    "are cached"
                ),
            )
        raise UnansweredError(f"no reply in {counted}: {found.text}")

    def _wait(self, attempt: int, asked: float) -> float:
        wait = min(self.settings.backoff * 2.0 ** min(attempt - 1, 30), _LONGEST_WAIT)
        return max(wait, asked) + _JITTER * wait * _dice.random()

    def _denied(self, problem: Problem) -> UsageError:
        return UsageError(
            f"{self.name} refused the request: {problem.text}; check OPENAI_API_KEY, the model's "
            "name and LMEVAL_ADAPTIVE_JUDGE_URL"
        )

    def _check(self, otherwise: Exception) -> None:
        """Make sure that the judge answers others, so that it is this document that fails.

        Raises:
            Exception: ``otherwise``, where it does not.
        """
        found = self.once(_PROBE, _PROBE_TOKENS)
        if isinstance(found, Problem) and found.kind not in ("empty", "filtered"):
            raise otherwise


def _line(settings: JudgeSettings, sleep: Callable[[float], None]) -> _Line:
    place = address(settings.base_url, os.environ.get("OPENAI_API_KEY", "").strip())
    return _Line(settings, place, dialect(place.url, settings.model), sleep)


def ask_server(
    messages: Messages, settings: JudgeSettings, sleep: Callable[[float], None] = time.sleep
) -> Reply:
    """A reply from a server of the OpenAI chat protocol; one that was cut gets a second attempt.

    Raises:
        UnansweredError: There is none for this document; the judge answers others.
        UsageError: The server refuses every request (key, model, address).
        ModelError: It stays busy or away after all attempts.
    """
    line = _line(settings, sleep)
    more = settings.max_tokens_again
    first = more if line.dialect.long and more > settings.max_tokens else settings.max_tokens
    reply = line.ask(messages, first)
    if not reply.cut or first >= more:
        return reply
    try:
        again = line.ask(messages, more)
    except UnansweredError:  # the model has no room for so many, say
        return reply
    line.dialect.long = line.dialect.long or not again.cut
    return again
