"""Turns of the loop for work that takes long: one turn in each iteration, whoever asks.

A large request is handled in pieces, and between two of them everybody else is served. As all such work shares one
queue, many large requests at a time take longer, but keep the loop no longer than one does.
"""

from __future__ import annotations

import asyncio
from collections import deque

TURN_S = 0.01  # how long work that can stop anywhere may keep the loop


class Turns:
    """The queue of those that wait for their turn."""

    __slots__ = ("_waiting", "taken")

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def next(self) -> None:
        """Wait for a turn: at least until the next iteration of the loop."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        turn = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)
        if not turn.done():
            self.taken += 1
            turn.set_result(None)
