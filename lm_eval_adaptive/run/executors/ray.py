"""Models as actors of a Ray cluster: placed when needed, put away when others need the room.

This module owns which model has a place; Ray owns where it is: a model is a placement group of one
bundle a replica, its processes are actors that Ray restarts. What is known of the cluster before
anything is asked stands in ``ray_checks``, the wire to a model in ``ray_line``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.host.remote import ModelService, PlaceLostError, RemoteLM, travelling
from lm_eval_adaptive.run.executors.ray_checks import check_cluster, connect, needs_of, replicas_of
from lm_eval_adaptive.run.executors.ray_line import RayLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.host.remote import Facts
    from lm_eval_adaptive.host.stop import Stop

log = logging.getLogger(__name__)

POLL = 0.1  # seconds between two looks at what is awaited
TOLD_AFTER = 30.0
# Seconds that a model waits for a place when no model of this run holds one: others use the
# cluster, or a node is gone that will not come back.
LIMIT = 600.0
RESTARTS = 3


class Fleet:
    """Places models in a cluster; several are asked side by side as far as they fit.

    Served models are asked by the driver itself: they need no place.

    Args:
        address: Of the cluster's head; "" for a cluster of this machine alone, made for the run.
        resident: Most models that have a place at once, None for as many as fit.
    """

    def __init__(self, address: str, resident: int | None = None) -> None:
        self.address, self.resident = address, resident
        self.loads = 0
        self._own = False  # whether the connection is this run's
        self._stop: Stop | None = None
        self._needs: dict[str, dict[str, float]] = {}
        self._replicas: dict[str, int] = {}
        # Who has a place, least recently asked first, and who is being asked.
        self._placed: dict[str, tuple[Candidate, RayLine]] = {}
        self._busy: set[str] = set()
        self._lock = threading.Lock()
        self._door = threading.Lock()  # those without a place get theirs in the order they came

    def open(self, candidates: Sequence[Candidate], stop: Stop) -> None:
        """Join the cluster, and refuse what could not run there.

        Raises:
            UsageError: Ray or the cluster is missing, versions differ, a model fits on no node, or
                replicas of it would not answer alike.
        """
        self._stop = stop
        placed = [each for each in candidates if not each.is_served]
        for each in candidates:
            if each.settings.use_cache is not None and each in placed:
                raise UsageError(
                    f"--use_cache is a database of one process, and --executor ray asks "
                    f"{each.name} in others; leave it out: the journal keeps every answer"
                )
            if each.is_served and (each.spec.resources or each.spec.replicas != 1):
                raise UsageError(
                    f"model {each.name} is served: it has no replicas or resources here; raise its "
                    "num_concurrent, or start more servers behind one address"
                )
            if each in placed and each.spec.replicas != 1 and each.keeps_state:
                raise UsageError(
                    f"model {each.name}: its back end {each.spec.model} keeps state from one "
                    "request to the next, so that replicas would not answer alike; leave replicas "
                    "out"
                )
        self._own = connect(self.address)
        nodes = check_cluster(self.address)
        for each in placed:
            self._needs[each.name] = needs_of(each, nodes)
        for each in placed:
            self._replicas[each.name] = replicas_of(each, self._needs, nodes)
            each.place = self._place

    def takes_turns(self, candidate: Candidate) -> bool:  # noqa: ARG002
        """Nobody does in the caller's thread: those that do not fit wait in their own."""
        return False

    def bring(self, candidate: Candidate) -> None:
        """Give a model a place, and have its processes answer.

        Raises:
            PlaceLostError: The run is to stop.
            ModelError: It does not load, or no place came free.
        """
        if candidate.place is None:
            return
        with self._lock:
            self._busy.add(candidate.name)
            if candidate.name in self._placed:  # as the one used last
                self._placed[candidate.name] = self._placed.pop(candidate.name)
        if candidate.loaded is None:
            _ = candidate.lm
        else:
            self._awaken(candidate, self._placed[candidate.name][1])

    def leave(self, candidate: Candidate) -> None:
        """It keeps its place until another needs the room."""
        with self._lock:
            self._busy.discard(candidate.name)

    def mend(self, candidate: Candidate, error: BaseException) -> bool:
        """A process or node that is gone: Ray starts another, and what is left is asked there."""
        if not isinstance(error, PlaceLostError):
            return False
        if error.spent:  # what ran out of memory may hold some still
            with self._lock:
                _, line = self._placed.get(candidate.name, (None, None))
            if line is not None:
                line.restart()
        return True

    def close(self) -> None:
        """Give every place back, and leave the cluster."""
        for name in list(self._placed):
            self._put_away(name)
        if self._own:
            import ray

            ray.shutdown()
            self._own = False

    def _place(self, candidate: Candidate) -> RemoteLM:
        """A model's processes, in places that Ray found."""
        import ray
        from ray.util.placement_group import placement_group, remove_placement_group

        name = candidate.name
        needs, count = self._needs[name], self._replicas[name]
        with self._door:
            if self.resident is not None:
                self._await(lambda: len(self._placed) < (self.resident or 1), name)
            group = placement_group([dict(needs)] * count, strategy="PACK")
            try:
                self._await(lambda: bool(group.wait(POLL)), name)
            except BaseException:
                remove_placement_group(group)
                raise
            log.info("loading %s (%s)", name, candidate.spec.model)
            line = RayLine(
                name,
                ray.remote(ModelService),
                (candidate.spec, travelling(candidate.settings)),
                group,
                needs,
                count,
                RESTARTS,
            )
            with self._lock:
                self._placed[name] = candidate, line
        try:
            facts = self._awaken(candidate, line)
        except BaseException:
            self._put_away(name)
            raise
        self.loads += count
        return RemoteLM(line, facts)

    def _awaken(self, candidate: Candidate, line: RayLine) -> Facts:
        """Wait until every process of a model has loaded it, after a fault as at first.

        Raises:
            ModelError: It does not load.
        """
        name = candidate.name
        self._await(lambda: line.ready(POLL), name)
        facts = line.facts
        assert facts is not None
        if facts.memory:  # whoever was put away may hold some for a moment still
            raise PlaceLostError(facts.failed, spent=True)
        if facts.failed:
            raise ModelError(facts.failed)
        return facts

    def _await(self, there: Any, name: str) -> None:
        """Wait for room, putting idle models away as long as there are some.

        Raises:
            PlaceLostError: The run is to stop.
            ModelError: No room came free.
        """
        since, patient, told = time.monotonic(), time.monotonic(), False
        while not there():
            if self._stop is not None and self._stop.wanted:
                raise PlaceLostError(f"model {name}: the run is to stop")
            now = time.monotonic()
            with self._lock:
                idle = [each for each in self._placed if each not in self._busy]
                others = [each for each in self._placed if each != name]
                loading = name in self._placed and self._placed[name][1].seated
            if loading:
                since = patient = now
                time.sleep(POLL)
                continue  # it has its place, and loads as long as it takes
            if idle and now - since > 2 * POLL:
                self._put_away(idle[0])
                since = now
            if others:
                patient = now
            if not told and now - since > TOLD_AFTER:
                told = True
                log.warning("%s waits for a place in the cluster", name)
            if now - patient > LIMIT:
                raise ModelError(
                    f"model {name}: no node gave it {_told(self._needs[name])} in {LIMIT:.0f} s; "
                    "see `ray status` for nodes that are gone or used by others"
                )
            time.sleep(POLL)

    def _put_away(self, name: str) -> None:
        with self._lock:
            candidate, line = self._placed.pop(name, (None, None))
        if candidate is not None and line is not None:
            candidate.unload()
            with contextlib.suppress(Exception):  # what is gone need not be put away
                line.close()


def _told(needs: dict[str, float]) -> str:
    return ", ".join(f"{amount:g} {key}" for key, amount in needs.items() if amount)
