"""An answer that a state machine gives through a callback: at once, or when a record is in the log."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Answer(Generic[T]):
    """`give` is the callback; `now_or_later` is what a handler returns."""

    __slots__ = ("_future", "_given")

    def __init__(self) -> None:
        self._given: list[T] = []
        self._future: asyncio.Future[T] | None = None

    def give(self, value: T) -> None:
        if self._future is None:
            self._given.append(value)
        elif not self._future.done():  # cancelled: nobody waits any more
            self._future.set_result(value)

    def now_or_later(self) -> T | asyncio.Future[T]:
        """The value, or a future of it."""
        if self._given:
            return self._given[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    async def wait(self) -> T:
        """The value, when it is there."""
        found = self.now_or_later()
        return await found if isinstance(found, asyncio.Future) else found
