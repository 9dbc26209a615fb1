"""A result that a state machine delivers through a callback, at once or later."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class CompletableResult(Generic[T]):
    """The result of one call. The machine passes it to `complete`; `value_or_future` returns it, or a future of it.

    `complete` is called once. The future's callbacks run in a later loop iteration. A client that disconnects cancels
    the future; the result is then dropped.
    """

    __slots__ = ("_future", "_given")

    def __init__(self) -> None:
        self._given: list[T] = []
        self._future: asyncio.Future[T] | None = None

    def complete(self, value: T) -> None:
        if self._future is None:
            self._given.append(value)
        elif not self._future.done():  # cancelled: the client has disconnected
            self._future.set_result(value)

    def value_or_future(self) -> T | asyncio.Future[T]:
        """Return the value, or a future of it."""
        if self._given:
            return self._given[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    async def wait(self) -> T:
        """Wait for the value and return it."""
        found = self.value_or_future()
        return await found if isinstance(found, asyncio.Future) else found
