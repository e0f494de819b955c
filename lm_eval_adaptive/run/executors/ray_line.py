"""The wire to a model's actors: calls, responses as they come, and what becomes of lost actors.

This module owns the actors of one model; it imports Ray inside functions.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError, first_line
from lm_eval_adaptive.host.remote import PlaceLostError, Said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lm_eval_adaptive.host.remote import Bite, Facts
    from lm_eval_adaptive.host.stop import Stop

POLL = 0.1
DEATHS = 3  # of processes before they have loaded, after Ray's own restarts, that are enough
CALL = 60.0  # seconds that a small call may take of a process that has loaded


class RayLine:
    """See :class:`~lm_eval_adaptive.host.remote.Line`.

    Args:
        name: The model's name.
        kind: The actor's class.
        made_of: What it is made of.
        group: The placement group, a bundle a replica.
        needs: What one replica takes.
        replicas: How many.
        restarts: How often Ray starts a lost one again by itself.
    """

    def __init__(
        self,
        name: str,
        kind: Any,
        made_of: tuple[Any, ...],
        group: Any,
        needs: dict[str, float],
        replicas: int,
        restarts: int,
    ) -> None:
        self.name, self.replicas = name, replicas
        self.facts: Facts | None = None
        self._kind, self._made_of, self._group = kind, made_of, group
        self._needs, self._restarts = needs, restarts
        self._actors = [self._start(number) for number in range(replicas)]
        self._asked: dict[int, Any] = {}
        self._awake: set[int] = set()
        self._where: dict[int, str] = {}
        self._deaths = 0  # of processes that had not loaded yet

    @property
    def seated(self) -> bool:
        """Whether Ray holds the room for all its replicas."""
        from ray.util.placement_group import placement_group_table

        return str(placement_group_table(self._group).get("state")) == "CREATED"

    def ready(self, seconds: float) -> bool:
        """Whether all replicas have loaded the model; waits so long. Lost ones are started anew.

        Raises:
            ModelError: They end again and again before they have loaded.
        """
        import ray
        from ray.exceptions import ActorDiedError, RayError

        for number, actor in enumerate(self._actors):
            if number in self._awake:
                continue
            if number not in self._asked:
                self._asked[number] = actor.facts.remote()
            there, _ = ray.wait([self._asked[number]], timeout=seconds)
            if not there:
                return False
            try:
                self.facts = ray.get(self._asked.pop(number))
                self._where[number] = self.facts.node
            except ActorDiedError as error:  # for good: Ray has started it often enough
                self._deaths += 1
                if self._deaths >= DEATHS:
                    raise ModelError(
                        f"model {self.name}: its process ended {self._deaths} times before it had "
                        f"loaded ({first_line(error)[:200]}); see Ray's logs of the node, and give "
                        "it more in resources: where memory was short"
                    ) from error
                self._actors[number] = self._start(number)
                return False
            except RayError:  # it is being started again
                return False
            self._awake.add(number)
            self._deaths = 0
        return True

    def call(self, name: str, *args: Any) -> Any:
        """One method of the first replica."""
        import ray
        from ray.exceptions import RayError

        try:
            return ray.get(getattr(self._actors[0], name).remote(*args), timeout=CALL)
        except RayError as error:
            self._awake.discard(0)
            raise self._lost(0, error) from error

    def stream(
        self, bites: Sequence[Bite], leave_off: Callable[[], bool], stop: Stop
    ) -> Iterator[Said]:
        """Responses as they come; each bite goes to the replica that is free first."""
        import ray
        from ray.exceptions import RayError

        waiting = deque(bites)
        free = deque(range(self.replicas))
        out: dict[Any, int] = {}
        lost: tuple[int, BaseException] | None = None
        while True:
            while waiting and free and not (stop.wanted or leave_off()):
                number = free.popleft()
                streaming = self._actors[number].answer.options(num_returns="streaming")
                out[streaming.remote(waiting.popleft())] = number
            if not out or stop.overdue:
                break
            there, _ = ray.wait(list(out), timeout=POLL, fetch_local=True)
            for stream in there:
                try:
                    said = ray.get(next(stream))
                except StopIteration:
                    free.append(out.pop(stream))
                except RayError as error:  # the others answer on
                    number = out.pop(stream)
                    self._awake.discard(number)
                    lost = number, error
                else:
                    yield Said(*said)
        if lost is not None:
            raise self._lost(*lost) from lost[1]

    def restart(self) -> None:
        """Have every replica start anew, with nothing left in its memory."""
        import ray

        self._awake.clear()
        self._asked.clear()
        for number, actor in enumerate(self._actors):
            with contextlib.suppress(Exception):  # it may be gone already
                ray.kill(actor)
            self._actors[number] = self._start(number)

    def close(self) -> None:
        """Give the room back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        remove_placement_group(self._group)

    def _start(self, number: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        own = {key: value for key, value in self._needs.items() if key not in ("CPU", "GPU")}
        return self._kind.options(
            num_cpus=self._needs.get("CPU", 0.0),
            num_gpus=self._needs.get("GPU", 0.0),
            resources=own,
            max_restarts=self._restarts,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=number
            ),
        ).remote(*self._made_of)

    def _lost(self, number: int, error: BaseException) -> PlaceLostError:
        where = self._where.get(number, "of the cluster")
        return PlaceLostError(
            f"model {self.name}: its process on node {where} is gone, or the node is "
            f"({first_line(error)[:200]})"
        )
