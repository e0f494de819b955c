"""The wish to stop, told to whoever asks or waits; it imports the standard library only."""

from __future__ import annotations

import threading
import time

# Seconds that answers which are out are waited for once a run is to stop.
GRACE = 30.0


class Stop:
    """Whether a run is to stop, and until when answers that are out are waited for.

    Args:
        grace: Seconds to wait for them.
    """

    def __init__(self, grace: float | None = None) -> None:
        self.grace = GRACE if grace is None else grace
        self.signal = 0
        self.at_once = False  # nothing is out that could be lost, as while a model loads
        self._event = threading.Event()
        self._until = float("inf")

    @property
    def wanted(self) -> bool:
        """Whether nothing more is to be asked."""
        return self._event.is_set()

    @property
    def overdue(self) -> bool:
        """Whether what is out is not waited for any longer."""
        return self.wanted and time.monotonic() > self._until

    def ask(self, signal: int = 0) -> None:
        """Have the run stop."""
        self.signal = signal
        self._until = time.monotonic() + self.grace
        self._event.set()

    def sleep(self, seconds: float) -> None:
        """Wait, but not once the run is to stop."""
        self._event.wait(seconds)
