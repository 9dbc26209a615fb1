"""One timer of the loop for all deadlines of a coordinator.

A tick does what was due when it began, and no longer than `TURN_MS`. What is left, and what became due meanwhile, waits
until the loop has seen to everybody else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now

log = logging.getLogger(__name__)

K = TypeVar("K", bound=tuple[str, ...])

TURN_MS = 10
RETRY_MS = 1_000
"""How long to wait before something that failed is tried again."""


class CoordinatorTimer(Generic[K]):
    """Calls `due(key, now)` when the time of a key in `timers` has come."""

    def __init__(self, timers: TimerQueue[K], now: Callable[[], Now], due: Callable[[K, Now], None]) -> None:
        self._timers = timers
        self._now = now
        self._due = due
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0
        self._closed = False

    def arm(self, now: Now) -> None:
        """See to it that the loop wakes us for the next deadline. After everything that may have set one."""
        next_ms = self._timers.next_ms()
        if next_ms is None or self._closed or (self._handle is not None and self._handle_ms <= next_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle_ms = next_ms
        self._handle = asyncio.get_running_loop().call_later(max(0, next_ms - now.ms) / 1000, self.tick)

    def tick(self) -> None:
        """Do what is due, for at most a turn."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        began = now = self._now()
        while now.ms - began.ms < TURN_MS and (key := self._timers.pop(began.ms)) is not None:
            try:
                self._due(key, now)
            except Exception:
                log.exception("what was due failed, the next try is in %d ms: %s", RETRY_MS, key)
                if key not in self._timers:
                    self._timers.set(key, now.ms + RETRY_MS)
            now = self._now()
        self.arm(now)

    def close(self) -> None:
        """No more ticks."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
