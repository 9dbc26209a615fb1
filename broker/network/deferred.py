"""A future that tells at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class Deferred(asyncio.Future[T]):
    """A future whose callbacks are called by whoever completes it, and not in the next turn of the loop.

    An answer that a thousand wait for is there so much sooner. Complete it with nothing on the stack that a callback
    could meet again: from a callback of the loop. Cancelling tells at once, too; who does it first takes back what it
    has added itself. A task that awaits a promise is woken in its next turn, as by any future.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(loop=loop)
        self._at_once: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        if context is not None or self.done():  # a task, or too late
            super().add_done_callback(callback, context=context)
        else:
            self._at_once.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        count = self._at_once.count(callback)
        if count:
            self._at_once = [each for each in self._at_once if each != callback]
        return count + super().remove_done_callback(callback)

    def set_result(self, result: T, /) -> None:
        super().set_result(result)
        self._tell()

    def set_exception(self, exception: type | BaseException, /) -> None:
        super().set_exception(exception)
        self._tell()

    def cancel(self, msg: Any | None = None) -> bool:
        is_new = super().cancel(msg)
        if is_new:
            self._tell()
        return is_new

    def _tell(self) -> None:
        callbacks, self._at_once = self._at_once, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:
                context = {"message": f"{callback!r} failed", "exception": error, "future": self}
                self.get_loop().call_exception_handler(context)
