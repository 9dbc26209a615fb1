"""An answer that a state machine gives through a callback: at once, or when something has come to pass."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class CompletableResult(Generic[T]):
    """What a machine gives to `give` is what `now_or_later` returns, or the result of the future that it returned.

    It is given once. The future completes in a turn of its own of the loop, and may be cancelled by a client that is
    gone: then the answer is dropped.
    """

    __slots__ = ("_future", "_given")

    def __init__(self) -> None:
        self._given: list[T] = []
        self._future: asyncio.Future[T] | None = None

    def complete(self, value: T) -> None:
        if self._future is None:
            self._given.append(value)
        elif not self._future.done():  # cancelled: the client is gone
            self._future.set_result(value)

    def value_or_future(self) -> T | asyncio.Future[T]:
        """The value, or a future of it."""
        if self._given:
            return self._given[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future

    async def wait(self) -> T:
        """The value, when it is there."""
        found = self.value_or_future()
        return await found if isinstance(found, asyncio.Future) else found
