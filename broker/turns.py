"""Long work on the loop in short turns.

A large request is handled in pieces, each in a turn of `Turns`: one in each iteration of the loop, whichever request
asks. As all such requests share one queue, many at a time take longer, but keep the loop no longer than one does.

What looks at thousands of partitions, groups or offsets would keep the loop from everybody else: it goes over them with
`in_turns`, and between two turns requests are served. So nothing that is looked at need be there any more when its turn
comes, and what must change together is done for one item, without an await.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from time import perf_counter
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST = 100
"""Items of a turn, at most."""
TURN_S = 0.003
"""How long a turn takes, at most, but for its last item."""


async def in_turns(items: Iterable[T], most: int = MOST) -> AsyncIterator[T]:
    """Give the items that are there now, one by one; others have their turn on the loop after `most` or `TURN_S`."""
    count, end = 0, perf_counter() + TURN_S
    for item in list(items):
        yield item
        count += 1
        if count >= most or perf_counter() >= end:
            await asyncio.sleep(0)
            count, end = 0, perf_counter() + TURN_S


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


class Tasks:
    """Work under way that nobody waits for: a failure of it is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin with it in the next turn. On the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop all of it."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work in the background failed", exc_info=error)
