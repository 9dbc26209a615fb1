"""An answer that may have to wait: what a machine's ``reply`` is, outside of it."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Parked(Generic[T]):
    """Call it with the answer; `answer` is that, or a future of it. A client that has gone is not missed."""

    __slots__ = ("_future", "_response")

    def __init__(self) -> None:
        self._response: T | None = None
        self._future: asyncio.Future[T] | None = None

    def __call__(self, response: T) -> None:
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def answer(self) -> T | asyncio.Future[T]:
        if self._response is not None:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future
