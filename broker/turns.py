"""Long work on the loop in short turns.

A large request is handled in pieces, each in a turn of `Turns`. Each iteration of the loop has one turn, for all
requests together. As all such requests share one queue, many at a time take longer, but hold the loop no longer than
one does.

Work on thousands of partitions, groups or offsets would block the loop; it iterates over them with `in_turns`, and
between two turns requests are served. So an item may be gone when its turn comes, and changes that belong together are
made for one item, without an await.
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
"""The most items of a turn."""
TURN_S = 0.003
"""The longest duration of a turn, not counting its last item."""


async def in_turns(items: Iterable[T], most: int = MOST) -> AsyncIterator[T]:
    """Yield the current items, one by one. After `most` items or `TURN_S` the loop serves other work."""
    count, end = 0, perf_counter() + TURN_S
    for item in list(items):
        yield item
        count += 1
        if count >= most or perf_counter() >= end:
            await asyncio.sleep(0)
            count, end = 0, perf_counter() + TURN_S


class Turns:
    """The queue of work that waits for its turn."""

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
    """Background tasks that no caller awaits: failures are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work in the next iteration. On the loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed", exc_info=error)
