"""Time limits on writes that a client waits for. After the timeout the outcome is unknown to the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.broker.coordinator.runtime.types import Now, TimerKey
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime

WRITE = "write"

Outcome = ErrorCode | asyncio.Future[ErrorCode]
"""An error code, now or later."""


class WriteTimeouts:
    """Results that wait for a durable write, and their deadlines."""

    def __init__(self, runtime: CoordinatorRuntime[Any], timeout_ms: Callable[[], int]) -> None:
        self._runtime = runtime
        self._timeout_ms = timeout_ms
        self._waiting: dict[TimerKey, asyncio.Future[ErrorCode]] = {}
        self._number = 0
        runtime.when((WRITE,), self._due)

    def limited(self, answer: CompletableResult[ErrorCode], now: Now) -> Outcome:
        """Return the result; after the timeout it becomes COORDINATOR_NOT_AVAILABLE."""
        outcome = answer.value_or_future()
        if isinstance(outcome, asyncio.Future):
            self._number += 1
            key = (WRITE, str(self._number))
            self._waiting[key] = outcome
            self._runtime.timers.set(key, now.ms + self._timeout_ms())
            outcome.add_done_callback(lambda _: self._forget(key))
            self._runtime.arm(now)
        return outcome

    def _forget(self, key: TimerKey) -> None:
        self._waiting.pop(key, None)
        self._runtime.timers.cancel(key)

    def _due(self, key: TimerKey, now: Now) -> None:
        future = self._waiting.pop(key, None)
        if future is not None and not future.done():
            future.set_result(ErrorCode.COORDINATOR_NOT_AVAILABLE)
