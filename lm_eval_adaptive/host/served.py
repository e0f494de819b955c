"""Asking a model behind an API: every request by itself, whatever becomes of its neighbours.

This module owns the hooks on the harness's API models: requests are built, sent and read by the
harness's own methods, and what comes back, an answer or a fault, is told the moment it came. It
owns also what is done about faults: which are worth a second try, after how long, and when enough
is enough. It imports the harness inside functions. Four kinds are told apart:

refused   The server will not answer this document (too long, content policy): not asked again.
empty     An answer without content (null, no choices): one more try.
broken    Something went wrong on the way (500, a cut stream, a reset): a few tries.
away      The server is not there or is busy (no connection, 429, 503): the run waits for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from lm_eval_adaptive.errors import first_line
from lm_eval_adaptive.host.environment import NULL_ANSWER
from lm_eval_adaptive.host.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from lm_eval_adaptive.host.stop import Stop

    Kind = Literal["refused", "empty", "broken", "away"]

# What stands in the harness's lists where there is no answer; never taken for one.
NO_ANSWER = "\ufdd0none"

AWAY = frozenset({429, 502, 503, 504, 529})
AGAIN = frozenset({408, 425})
# What servers write into an error that has no number.
_AWAY_WORDS = re.compile(r"rate.?limit|overload|unavailable|capacity|busy|too.?many", re.IGNORECASE)
_REFUSED_WORDS = re.compile(r"invalid|context|content|policy|filter|not.?found", re.IGNORECASE)
# Lines of the harness about single requests; what matters of them is told here.
_NOISE = ("API request failed", "Exception:", "API returned null", "Could not parse generations")
LONGEST_REASON = 300
POLL = 0.1


@dataclass(frozen=True)
class Patience:
    """How long a server's faults are borne.

    Attributes:
        attempts: Tries of a request that goes wrong.
        empty_attempts: Tries of one that is answered with nothing.
        first_pause: Seconds before the second try; the pause doubles with each, give or take a
            quarter, so that requests that failed together do not come back together.
        longest_pause: Most seconds between two tries, unless the server asks for more.
        limit: Seconds that a server may be away before its model is set aside.
        told_after: Seconds after which waiting is told.
    """

    attempts: int = 5
    empty_attempts: int = 2
    first_pause: float = 1.0
    longest_pause: float = 60.0
    limit: float = 3600.0
    told_after: float = 5.0

    def pause(self, tries: int, asked: float | None) -> float:
        """Seconds to wait after so many tries; ``asked`` is what the server said."""
        plain = min(self.first_pause * 2.0 ** min(tries - 1, 30), self.longest_pause)
        jitter = random.SystemRandom().uniform(0.75, 1.25)  # no draw from what models draw from
        return max(plain * jitter, asked or 0.0)


PATIENCE = Patience()


class Fault(Exception):  # noqa: N818  not raised to anybody but this module
    """Why a request has no answer.

    Args:
        what: In a line.
        kind: See the module.
        wait: Seconds that the server asked to wait, None where it did not.
    """

    def __init__(self, what: str, kind: Kind = "broken", wait: float | None = None) -> None:
        super().__init__(what)
        self.what, self.kind, self.wait = what, kind, wait


def kind_of_status(status: int) -> Kind:
    """What an HTTP status means for a second try.

    >>> [kind_of_status(each) for each in (400, 401, 408, 429, 500, 503)]
    ['refused', 'refused', 'broken', 'away', 'broken', 'away']
    """
    if status in AWAY:
        return "away"
    if status in AGAIN or status >= 500:
        return "broken"
    return "refused"


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds that a ``Retry-After`` asks for: a number, or a date.

    >>> retry_after("7"), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=0.0), retry_after("soon")
    (7.0, 60.0, None)
    """
    if not value:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError):
        return None
    return max(at - (time.time() if now is None else now), 0.0)


def fault_of(error: BaseException, text: str = "", wait: str | None = None) -> Fault:
    """What an exception of a client means."""
    if isinstance(error, Fault):
        return error
    status = getattr(error, "status", None)
    response = getattr(error, "response", None)
    if response is not None:
        status, text = response.status_code, response.text
        wait = response.headers.get("Retry-After")
    if isinstance(status, int) and status >= 400:
        return Fault(f"HTTP {status}: {_said(text)}", kind_of_status(status), retry_after(wait))
    kinds = {each.__name__ for each in type(error).__mro__}
    unreached = {"ClientConnectorError", "ConnectTimeout", "ConnectionTimeoutError"}
    refused = isinstance(error, ConnectionRefusedError) or "NewConnectionError" in repr(error)
    away = refused or kinds & unreached or "NameResolutionError" in repr(error)
    return Fault(first_line(error), "away" if away else "broken")


def _said(text: str) -> str:
    """What a server says in an error's body, in a line."""
    try:
        data = json.loads(text)
        error = data.get("error", data) if isinstance(data, dict) else data
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except ValueError:
        pass
    return " ".join(text.split())[:LONGEST_REASON] or "no reason given"


def check_body(body: Any, *, choices: bool) -> None:
    """Refuse a body that holds no answer.

    Args:
        body: What came.
        choices: Whether it is to hold OpenAI's ``choices``.

    Raises:
        Fault: It tells of an error, or is of another shape.
    """
    if not isinstance(body, dict):
        raise Fault(f"a {type(body).__name__} instead of an answer")
    error = body.get("error")
    if error and not body.get("choices"):
        raise _fault_in(body, error)
    if not choices:
        return
    found = body.get("choices")
    if not isinstance(found, list) or not found:
        raise Fault("an answer without choices", "empty")
    for choice in found:
        whole = isinstance(choice, dict) and isinstance(choice.get("index"), int)
        message = choice.get("message") if whole else None
        if not whole or not ("text" in choice or (message and "content" in message)):
            raise Fault("an answer of which a choice has no text", "empty")


def _fault_in(body: Mapping[str, Any], error: Any) -> Fault:
    """What an error in a body of status 200 means."""
    told = error if isinstance(error, dict) else {"message": error}
    what = f"an error instead of an answer: {_said(json.dumps({'error': told}))}"
    for value in (told.get("code"), told.get("status"), body.get("code"), body.get("status")):
        if str(value).isdecimal() and int(str(value)) >= 400:
            return Fault(what, kind_of_status(int(str(value))))
    words = " ".join(str(told.get(key) or "") for key in ("type", "code", "message"))
    if _AWAY_WORDS.search(words):
        return Fault(what, "away")
    return Fault(what, "refused" if _REFUSED_WORDS.search(words) else "broken")


class Session:
    """What becomes of the requests of one call of a back end.

    Args:
        requests: The harness's requests, in the order they are handed over.
        stop: Whether the run is to stop.
        enough: Whether the model failed so often that it is asked nothing more.
        told: Called with (place of the request, answer or fault), in whichever thread.
        waits: Called with what is waited for when the server is away, "" when it is back.
        retries: Tries of a request that the user asked for, where these are more.
    """

    def __init__(
        self,
        requests: Sequence[Any],
        stop: Stop,
        enough: Callable[[], bool],
        told: Callable[[int, str | Fault], None],
        waits: Callable[[str], None],
        retries: int = 0,
    ) -> None:
        self.patience = replace(PATIENCE, attempts=max(PATIENCE.attempts, retries))
        self.lost = ""  # why the model is to be set aside
        self.closed = False  # nobody wants answers any more; those that are out are still told
        self.stop = stop
        self._enough, self._told, self._waits = enough, told, waits
        self._lock = threading.Lock()
        self._away_since: float | None = None
        self._waiting = False
        # The prompt's own object comes back from the harness, beside its answer.
        self._places: dict[int, deque[int]] = defaultdict(deque)
        for place, request in enumerate(requests):
            self._places[id(request.args[0])].append(place)

    @property
    def over(self) -> bool:
        """Whether nothing more is sent."""
        return self.closed or self.stop.wanted or bool(self.lost) or self._enough()

    async def asleep(self, seconds: float) -> None:
        """Wait, but not once nothing more is sent."""
        until = time.monotonic() + seconds
        while not self.over and time.monotonic() < until:  # noqa: ASYNC110  set by other threads
            await asyncio.sleep(POLL)

    def settle(self, context: Any, what: str | Fault | None) -> None:
        """Tell what became of the request of a prompt; None where it was not sent."""
        with self._lock:
            places = self._places[id(context)]
            place = places.popleft() if places else None
        if place is not None and what is not None:
            self._told(place, what)

    def alive(self) -> None:
        """The server said something."""
        with self._lock:
            self._away_since = None
            waiting, self._waiting = self._waiting, False
        if waiting:
            self._waits("")

    def away(self, fault: Fault, wait: float) -> bool:
        """Whether to wait for a server that is not there; tells of it."""
        now = time.monotonic()
        with self._lock:
            if self._away_since is None:
                self._away_since = now
            waited = now - self._away_since
            if waited + wait > self.patience.limit:
                self.lost = self.lost or (
                    f"{fault.what}; waited {waited:.0f} s of at most {self.patience.limit:.0f} s"
                )
                return False
            tell = not self._waiting and waited + wait >= self.patience.told_after
            self._waiting = self._waiting or tell
        if tell:
            self._waits(
                f"{fault.what}; waiting for the server, at most {self.patience.limit / 60:.3g} min"
            )
        return True


class _Tries:
    """The tries of one request."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tries = 0
        # An answer without content is worth another try whatever went wrong on the way before.
        self._faults: Counter[Kind] = Counter()
        self._since: float | None = None

    def pause_after(self, fault: Fault) -> float | None:
        """Seconds before the next try, None where there is none."""
        session, patience = self._session, self._session.patience
        self._tries += 1
        wait = patience.pause(self._tries, fault.wait)
        if fault.kind == "away":
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            # A server that answers others may keep one request waiting for ever.
            own = now + wait - self._since <= patience.limit
            return wait if session.away(fault, wait) and own else None
        session.alive()
        self._faults[fault.kind] += 1
        most = {"refused": 1, "empty": patience.empty_attempts}.get(fault.kind, patience.attempts)
        enough = self._faults[fault.kind] >= most or self._faults.total() >= patience.attempts
        return None if enough else wait


@dataclass(frozen=True)
class _Settled:
    """Answers on their way through the harness's own reading of a body."""

    texts: tuple[str | Fault | None, ...]


class Served:
    """Hooks on an API model of the harness; without a session it is as it was.

    Args:
        lm: The model, of the harness's ``TemplateAPI``.
    """

    def __init__(self, lm: Any) -> None:
        from lm_eval.models.openai_completions import LocalCompletionsAPI

        self._lm = lm
        self._call, self._acall = lm.model_call, lm.amodel_call
        self._parse = lm.parse_generations
        self._choices = isinstance(lm, LocalCompletionsAPI)
        self.session: Session | None = None
        self._gate: tuple[Any, Gate] | None = None
        self.retries, lm.max_retries = int(lm.max_retries), 1  # tries are counted here
        lm.model_call, lm.amodel_call = self._model_call, self._amodel_call
        lm.parse_generations = self._parse_generations
        logging.getLogger("lm_eval.models.api_models").addFilter(_without_noise)
        logging.getLogger("lm_eval.models.openai_completions").addFilter(_without_noise)

    def _parse_generations(self, outputs: Any, contexts: Any = None, **kwargs: Any) -> list[Any]:
        """The harness's own reading, of bodies that hold an answer."""
        if isinstance(outputs, _Settled):
            assert self.session is not None
            for context, what in zip(contexts, outputs.texts, strict=True):
                self.session.settle(context, what)
            return [each if isinstance(each, str) else NO_ANSWER for each in outputs.texts]
        if self.session is not None:
            for body in outputs if isinstance(outputs, list) else [outputs]:
                check_body(body, choices=self._choices)
        if contexts is not None:
            kwargs["contexts"] = contexts
        found: list[Any] = self._parse(outputs=outputs, **kwargs)
        return found

    # One request after another.

    def _model_call(self, messages: Any, *, generate: bool = True, **kwargs: Any) -> Any:
        session = self.session
        if session is None or not generate:
            return self._call(messages, generate=generate, **kwargs)

        from lm_eval.models import api_models

        def send(part: Any) -> list[str]:
            null = api_models.LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER  # ours, or the user's
            try:
                outputs = self._call(part, generate=True, **kwargs)
                texts = [
                    null if each is None else each
                    for each in self._parse_generations(outputs=outputs)
                ]
            except Exception as error:
                raise fault_of(error) from error
            return _whole(texts, len(part))

        found = self._settled(session, lambda: send(messages), len(messages))
        if len(messages) > 1 and _refused(found):
            found = [
                self._settled(session, lambda each=each: send([each]), 1)[0]  # type: ignore[misc]
                for each in messages
            ]
        return _Settled(tuple(found))

    @staticmethod
    def _settled(
        session: Session, send: Callable[[], list[str]], count: int
    ) -> Sequence[str | Fault | None]:
        tries = _Tries(session)
        while not session.over:
            try:
                found = send()
            except Fault as fault:
                pause = tries.pause_after(fault)
                if pause is None:
                    return [None if session.lost else fault] * count
                session.stop.sleep(pause)
            else:
                session.alive()
                return found
        return [None] * count

    # Several at a time.

    async def _amodel_call(
        self,
        session: Any,
        sem: Any,
        messages: Any,
        *,
        generate: bool = True,
        cache_keys: Any = None,
        **kwargs: Any,
    ) -> Any:
        mine = self.session
        if mine is None or not generate or not cache_keys:
            return await self._acall(
                session, sem, messages, generate=generate, cache_keys=cache_keys, **kwargs
            )

        async def send(part: Any, keys: Any) -> list[str]:
            heard = _Heard(session)
            try:
                texts = await self._acall(
                    heard, sem, part, generate=True, cache_keys=keys, **kwargs
                )
            except Exception as error:
                raise fault_of(error, heard.text, heard.wait) from error
            return _whole(list(texts), len(part))

        gate = self._one_of_many()
        found = await self._asettled(mine, lambda: send(messages, cache_keys), len(messages), gate)
        if len(messages) > 1 and _refused(found):
            found = [
                (await self._asettled(mine, lambda m=m, k=k: send([m], [k]), 1, gate))[0]  # type: ignore[misc]
                for m, k in zip(messages, cache_keys, strict=True)
            ]
        for (context, _), what in zip(cache_keys, found, strict=True):
            mine.settle(context, what)
        return [each if isinstance(each, str) else NO_ANSWER for each in found]

    def _one_of_many(self) -> Gate:
        """Lets through as many requests as the server takes; the others can still be kept back."""
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            gate = Gate(int(self._lm._concurrent))  # noqa: SLF001
            if self._gate is not None:  # what the server took in the last round
                gate.limit = min(max(self._gate[1].limit, 1.0), gate.limit)
            self._gate = loop, gate
        return self._gate[1]

    @staticmethod
    async def _asettled(
        session: Session,
        send: Callable[[], Coroutine[Any, Any, list[str]]],
        count: int,
        gate: Gate,
    ) -> Sequence[str | Fault | None]:
        tries = _Tries(session)
        while not session.over:
            async with gate:  # left while a second try waits, so that others have their turn
                if session.over:
                    break
                began = time.monotonic()
                sent = asyncio.ensure_future(send())
                while not sent.done():
                    await asyncio.wait({sent}, timeout=POLL)
                    if session.stop.overdue and not sent.done():
                        sent.cancel()
                        await asyncio.wait({sent}, timeout=POLL)
                        return [None] * count
            try:
                found = sent.result()
            except Fault as fault:
                if fault.kind == "away" or "timeout" in str(fault).lower():
                    gate.busy(began)
                pause = tries.pause_after(fault)
                if pause is None:
                    return [None if session.lost else fault] * count
                await session.asleep(pause)
            else:
                gate.answered()
                session.alive()
                return found
        return [None] * count


def _whole(texts: list[Any], count: int) -> list[str]:
    """Answers to so many prompts.

    Raises:
        Fault: One is null, or their number is another.
    """
    if len(texts) != count:
        raise Fault(f"{len(texts)} answers to {count} prompts")
    for text in texts:
        if not isinstance(text, str) or text == NULL_ANSWER:
            what = "null" if text in (None, NULL_ANSWER) else repr(text)
            raise Fault(f"{what} instead of text", "empty")
    return texts


def _refused(found: Sequence[str | Fault | None]) -> bool:
    """Whether a batch failed as a whole for what may be wrong with one prompt of it."""
    return any(isinstance(each, Fault) and each.kind != "away" for each in found)


def _without_noise(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOISE)


class _Heard:
    """A client's session that keeps what the server said of an error; the harness drops it."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.text = ""
        self.wait: str | None = None

    def post(self, *args: Any, **kwargs: Any) -> Any:
        return _HeardResponse(self, self._session.post(*args, **kwargs))


class _HeardResponse:
    def __init__(self, heard: _Heard, response: Any) -> None:
        self._heard, self._response = heard, response

    async def __aenter__(self) -> Any:
        response = await self._response.__aenter__()
        if not response.ok:
            self._heard.wait = response.headers.get("Retry-After")
            self._heard.text = await response.text(errors="replace")
        return response

    async def __aexit__(self, *args: object) -> Any:
        return await self._response.__aexit__(*args)
