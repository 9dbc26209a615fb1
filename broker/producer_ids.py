"""Producer ids, handed out from durable blocks (KIP-730).

A block of ids is written to the metadata store before its first id is given away, so a crash wastes the rest of a
block and never gives an id twice. Concurrent callers share the allocation of the next block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """``allocate`` makes the next block durable and returns (first id, count)."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """An id that nobody else has or ever had."""
        while self._next >= self._end:
            async with self._lock:
                if self._next >= self._end:
                    first, count = await self._allocate()
                    self._next, self._end = first, first + count
        producer_id = self._next
        self._next += 1
        return producer_id
