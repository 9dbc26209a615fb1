"""Producer ids, allocated in durable blocks (KIP-730).

A block of ids is written to the metadata store before its first id is used. A crash wastes the rest of a block and
never gives an id twice. Concurrent callers share the allocation of the next block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

NO_PRODUCER_ID = -1


class ProducerIds:
    """``allocate`` makes the next block durable and returns (first id, count)."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._filling: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """Return a producer id that was never given out before. Raises what `allocate` raises."""
        while (producer_id := self.take()) == NO_PRODUCER_ID:
            assert self._filling is not None
            await asyncio.shield(self._filling)
        return producer_id

    def take(self) -> int:
        """Return such an id, or NO_PRODUCER_ID while the next block is being allocated: ask again."""
        if self._next >= self._end:
            if self._filling is None:
                self._filling = asyncio.get_running_loop().create_task(self._fill())
                self._filling.add_done_callback(self._filled)
            return NO_PRODUCER_ID
        self._next += 1
        return self._next - 1

    async def _fill(self) -> None:
        first, count = await self._allocate()
        self._next, self._end = first, first + count

    def _filled(self, task: asyncio.Task[None]) -> None:
        self._filling = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("allocation of a block of producer ids failed: %s", error)
