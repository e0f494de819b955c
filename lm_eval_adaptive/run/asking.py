"""Asks the models of one round: side by side where they can, one after another where they cannot.

This module owns threads, retries and a model's health; where models live is the affair of an
executor (``run/executors/``). What is asked and what an answer is worth is decided elsewhere: the
loop takes a round in whole and in the order of its plan, so nothing here, and no clock, can change
a ranking.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.host.candidate import NoAnswerError, Refusal, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lm_eval_adaptive.host.candidate import Answer, Candidate
    from lm_eval_adaptive.host.stop import Stop
    from lm_eval_adaptive.run.executors.base import Executor

log = logging.getLogger(__name__)

ATTEMPTS = 3
FIRST_PAUSE = 1.0
# Documents without an answer for which a model is set aside: its first ones, or so many in a row.
FIRST = 5
IN_A_ROW = 10

# Names of exceptions that a second attempt may cure, whichever client raised them.
_TRANSIENT = frozenset(
    {
        "APIConnectionError",
        "APITimeoutError",
        "ClientError",
        "InternalServerError",
        "NoAnswerError",
        "RateLimitError",
        "RetryError",
        "ServerDisconnectedError",
    }
)


def is_transient(error: BaseException | None) -> bool:
    """Whether asking again may help: a lost connection, a time-out, a busy server."""
    while error is not None:
        if isinstance(error, ConnectionError | TimeoutError | asyncio.TimeoutError):
            return True
        if any(kind.__name__ in _TRANSIENT for kind in type(error).__mro__):
            return True
        if type(error).__module__.partition(".")[0] in ("requests", "aiohttp", "httpx"):
            return True
        error = error.__cause__ or error.__context__
    return False


class Health:
    """Whether a model goes on failing: its first documents, or many in a row.

    One document without an answer is that document's affair.

    Args:
        answered: Whether it ever answered.
    """

    def __init__(self, *, answered: bool) -> None:
        self._lock = threading.Lock()
        self._answered, self._row, self._reason = answered, 0, ""

    def note(self, problem: str) -> None:
        """Take in why a document has no answer, "" where it has one."""
        with self._lock:
            if problem:
                self._row, self._reason = self._row + 1, problem
            else:
                self._answered, self._row = True, 0

    @property
    def lost(self) -> str:
        """Why the model is to be set aside, "" while it is not."""
        with self._lock:
            if self._row < (IN_A_ROW if self._answered else FIRST):
                return ""
            row = f"{self._row} documents"
            which = f"{row} in a row" if self._answered else f"any of its first {row}"
            return f"no answer to {which}; the last: {self._reason}"


@dataclass(frozen=True)
class Desk:
    """Where an asker's news goes.

    Attributes:
        serve: Gives a candidate's own copy of the task.
        note: Takes (candidate, answer or refusal), in the thread that got it.
        came: Takes (candidate, document, responses) before they are scored.
        waits: Takes (candidate, what it waits for), "" when it goes on.
    """

    serve: Callable[[Candidate], Any]
    note: Callable[[Candidate, Answer | Refusal], None]
    came: Callable[[Candidate, int, tuple[str, ...]], None]
    waits: Callable[[Candidate, str], None]


class Asker:
    """Asks rounds.

    Args:
        executor: Where models live.
        desk: Where news goes.
        stop: Whether the run is to stop.
        pause: Seconds before the second attempt; it doubles with each.
    """

    def __init__(
        self, executor: Executor, desk: Desk, stop: Stop, pause: float = FIRST_PAUSE
    ) -> None:
        self._executor = executor
        self._desk = desk
        self._stop = stop
        self._pause = pause
        self._turn = threading.Lock()
        self.health: dict[str, Health] = {}

    def ask(
        self, plan: Sequence[tuple[Candidate, Sequence[int]]], seed_shift: int
    ) -> dict[str, str]:
        """Ask every model of a round its documents.

        Models that live elsewhere are asked side by side, each in a thread; those that share this
        machine take turns, those in memory first.

        Args:
            plan: Candidates and the document ids each still has to answer.
            seed_shift: See :meth:`~lm_eval_adaptive.host.candidate.Candidate.ask`.

        Returns:
            Why models failed, by name; what they answered before has been noted.
        """
        local = [each for each in plan if self._executor.takes_turns(each[0])]
        remote = [each for each in plan if each not in local]
        local.sort(key=lambda each: each[0].loaded is None)
        failures: dict[str, str] = {}
        if len(plan) == 1:
            self._ask_one(*plan[0], seed_shift, failures)
            return in_plan_order(failures)
        with ThreadPoolExecutor(max_workers=max(len(remote), 1)) as threads:
            waiting = [
                threads.submit(self._ask_one, candidate, doc_ids, seed_shift, failures)
                for candidate, doc_ids in remote
            ]
            try:
                for candidate, doc_ids in local:
                    self._ask_one(candidate, doc_ids, seed_shift, failures)
                for each in waiting:
                    each.result()
            except BaseException:  # the others are not to ask on for a run that is over
                if not self._stop.wanted:
                    self._stop.ask()
                raise
        return in_plan_order(failures)

    def submit(
        self, candidate: Candidate, doc_ids: Sequence[int], seed_shift: int
    ) -> Future[dict[str, str]]:
        """Ask one model some documents, in a thread, while others go on.

        Models that take turns wait for each other here.

        Returns:
            As :meth:`ask`, once all is noted; or what it raises.
        """
        asked: Future[dict[str, str]] = Future()

        def work() -> None:
            failures: dict[str, str] = {}
            try:
                if self._executor.takes_turns(candidate):
                    with self._turn:
                        self._ask_one(candidate, doc_ids, seed_shift, failures)
                else:
                    self._ask_one(candidate, doc_ids, seed_shift, failures)
            except BaseException as error:  # noqa: BLE001  told to whoever waits
                asked.set_exception(error)
            else:
                asked.set_result(failures)

        threading.Thread(target=work, daemon=True, name=f"ask {candidate.name}").start()
        return asked

    def _ask_one(
        self,
        candidate: Candidate,
        doc_ids: Sequence[int],
        seed_shift: int,
        failures: dict[str, str],
    ) -> None:
        health = self.health.setdefault(candidate.name, Health(answered=False))
        left = list(doc_ids)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._ask_left(candidate, left, seed_shift, health)
            except ModelError as error:
                last = attempt == ATTEMPTS
                if last and isinstance(error, NoAnswerError):
                    for doc_id in left:
                        health.note(str(error))
                        self._desk.note(candidate, Refusal(doc_id, "", str(error)))
                    left.clear()
                elif last or not (self._executor.mend(candidate, error) or is_transient(error)):
                    failures[candidate.name] = str(error)
                    return
                else:
                    pause = self._pause * 2 ** (attempt - 1)
                    log.warning("%s; asking again in %g s", error, pause)
                    self._stop.sleep(pause)
            if health.lost:
                failures[candidate.name] = f"model {candidate.name} gave {health.lost}"
                return
            if self._stop.wanted or not left:
                return
        failures[candidate.name] = (
            f"model {candidate.name} gave no answer to {len(left)} document(s), the first is doc "
            f"{left[0]}"
        )

    def _ask_left(
        self, candidate: Candidate, left: list[int], seed_shift: int, health: Health
    ) -> None:
        """Ask what is left; what becomes of it is taken off the list."""
        if self._executor.takes_turns(candidate):
            self._stop.at_once = True
            try:
                self._executor.bring(candidate)
            finally:
                self._stop.at_once = False
        else:
            self._executor.bring(candidate)
        watch = Watch(
            stop=self._stop,
            enough=lambda: bool(health.lost),
            came=lambda doc_id, resps: self._desk.came(candidate, doc_id, resps),
            fate=health.note,
            waits=lambda what: self._desk.waits(candidate, what),
        )
        task = self._desk.serve(candidate)
        try:
            for found in candidate.ask(task, list(left), seed_shift, watch):
                if found.doc_id in left:
                    self._desk.note(candidate, found)
                    left.remove(found.doc_id)
        finally:
            self._desk.waits(candidate, "")
            self._executor.leave(candidate)


def in_plan_order(failures: Mapping[str, str]) -> dict[str, str]:
    """Failures by name, sorted, whichever thread was first."""
    return dict(sorted(failures.items()))
