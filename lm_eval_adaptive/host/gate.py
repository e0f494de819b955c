"""How many requests are out at a server: as many as it takes, never more than the user allows.

This module owns that number; it imports nothing of the harness. It grows by one in the time of as
many answers and is halved where the server says that it is busy or does not answer in time
(additive increase, multiplicative decrease: Chiu and Jain 1989, Comput. Netw. ISDN Syst. 17:1-14).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Gate:
    """Lets through as many requests as a server takes at once; others wait in their order.

    Args:
        most: Most requests at once, the user's ``num_concurrent``.

    Attributes:
        limit: Requests at once as the server takes them now, a fraction counting towards the next.
    """

    def __init__(self, most: int) -> None:
        self.most = max(most, 1)
        self.limit = float(self.most)
        self._out = 0
        self._cut = float("-inf")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> Self:
        """Wait for a place."""
        while self._out >= int(self.limit):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._wake()  # another takes the place that was given
                raise
        self._out += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave the place to another."""
        self._out -= 1
        self._wake()

    def answered(self) -> None:
        """Take in that the server answered."""
        before = int(self.limit)
        self.limit = min(self.limit + 1.0 / self.limit, float(self.most))
        if int(self.limit) > before:
            self._wake()

    def busy(self, sent: float) -> bool:
        """Take in that the server is busy; requests sent before the last cut tell nothing new.

        Args:
            sent: When the request was sent, by ``time.monotonic``.

        Returns:
            Whether fewer requests are let through now.
        """
        if sent < self._cut or self.limit <= 1.0:
            return False
        self.limit = max(self.limit / 2.0, 1.0)
        self._cut = time.monotonic()
        return True

    def _wake(self) -> None:
        for _ in range(int(self.limit) - self._out):
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    break
