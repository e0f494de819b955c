"""Models in this process: local ones take turns in its memory, served ones need none.

This module owns which local models stay loaded; it imports the candidates.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.host.remote import is_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.host.stop import Stop

log = logging.getLogger(__name__)


class Local:
    """Keeps local models loaded, at most ``resident`` of them, least recently used out first.

    Without a bound as many stay as fit: a model that does not load for want of memory is tried
    again after another was put away. Models behind an API hold no memory here and are not counted.

    Args:
        resident: Most local models in memory at once, None for as many as fit.
    """

    def __init__(self, resident: int | None = None) -> None:
        self.resident = resident
        self.loads = 0
        self._loaded: list[Candidate] = []

    def open(self, candidates: Sequence[Candidate], stop: Stop) -> None:  # noqa: ARG002
        """Refuse what only a cluster has.

        Raises:
            UsageError: A model names resources or replicas.
        """
        for candidate in candidates:
            named = [
                name
                for name, given in (
                    ("resources", bool(candidate.spec.resources)),
                    ("replicas", candidate.spec.replicas != 1),
                )
                if given
            ]
            if named:
                raise UsageError(
                    f"model {candidate.name}: {named[0]} are a cluster's, and this run's models "
                    "live in its own process; add --executor ray, or leave them out"
                )

    def takes_turns(self, candidate: Candidate) -> bool:
        """Local models share the machine."""
        return not candidate.side_by_side

    def bring(self, candidate: Candidate) -> None:
        """Load a local model if it is not loaded, putting others away as needed.

        Raises:
            ModelError: It does not load even alone.
        """
        if candidate.side_by_side:
            return
        if candidate in self._loaded:
            self._loaded.remove(candidate)
            self._loaded.append(candidate)
            return
        while self.resident is not None and len(self._loaded) >= self.resident:
            self._put_away()
        while True:
            try:
                _ = candidate.lm
            except ModelError as error:
                if not self._loaded or not is_memory(error):
                    raise
                log.warning(
                    "%s does not fit beside %d loaded model(s); --resident %d would save the "
                    "attempt",
                    candidate.name,
                    len(self._loaded),
                    len(self._loaded),
                )
                self._put_away()
            else:
                self.loads += 1
                self._loaded.append(candidate)
                return

    def leave(self, candidate: Candidate) -> None:
        """It stays loaded until another needs the room."""

    def mend(self, candidate: Candidate, error: BaseException) -> bool:  # noqa: ARG002
        """A failure in this process is the model's own."""
        return False

    def close(self) -> None:
        """The process's end does it."""

    def _put_away(self) -> None:
        self._loaded.pop(0).unload()
