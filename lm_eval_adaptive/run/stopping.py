"""SIGINT, SIGTERM and SIGHUP: stop asking, wait for what is out, write, say how to go on.

This module owns the handlers of signals while a run goes on; it imports the wish to stop alone.
"""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from lm_eval_adaptive.host.stop import Stop

log = logging.getLogger(__name__)

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
# Exit codes: those of shells, and a hang-up ends a run as a request to terminate does.
EXIT_CODES = {int(signal.SIGINT): 130}
TERMINATED = 143


@contextmanager
def heeding_signals(stop: Stop) -> Iterator[None]:
    """Have signals stop a run in good order; a second one, or the end of patience, at once.

    Signals reach the main thread alone: elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main = threading.get_ident()
    over = threading.Event()

    def watch(name: str) -> None:
        log.warning(
            "%s: asking nothing more, waiting at most %g s for what is out; again to stop at once",
            name,
            stop.grace,
        )
        if not over.wait(stop.grace + 1.0):
            signal.pthread_kill(main, signal.SIGINT)  # wakes what a thread's event does not

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.wanted:
            raise KeyboardInterrupt
        stop.ask(number)
        if stop.at_once:
            raise KeyboardInterrupt
        name = signal.Signals(number).name
        threading.Thread(target=watch, args=(name,), daemon=True).start()

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(stop: Stop) -> int:
    """The exit code of a run that was stopped."""
    return EXIT_CODES.get(stop.signal, TERMINATED) if stop.signal else 130


def cause(stop: Stop) -> str:
    """Who stopped a run, in words."""
    if stop.signal in (0, int(signal.SIGINT)):
        return "stopped by you"
    return f"stopped by {signal.Signals(stop.signal).name}"
