"""One event-loop timer for all deadlines of a coordinator.

A tick handles only deadlines that were due when it began, for at most `TURN_MS`. The rest, and deadlines that came due
meanwhile, wait until the loop has served its other events.
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
"""The pause before a failed deadline callback is tried again."""


class CoordinatorTimer(Generic[K]):
    """Calls `due(key, now)` when the deadline of a key in `timers` comes."""

    def __init__(self, timers: TimerQueue[K], now: Callable[[], Now], due: Callable[[K, Now], None]) -> None:
        self._timers = timers
        self._now = now
        self._due = due
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0
        self._closed = False

    def arm(self, now: Now) -> None:
        """Set the loop timer for the next deadline. Call this after anything that may have set one."""
        next_ms = self._timers.next_ms()
        if next_ms is None or self._closed or (self._handle is not None and self._handle_ms <= next_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle_ms = next_ms
        self._handle = asyncio.get_running_loop().call_later(max(0, next_ms - now.ms) / 1000, self.tick)

    def tick(self) -> None:
        """Handle due deadlines for at most `TURN_MS`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        began = now = self._now()
        while now.ms - began.ms < TURN_MS and (key := self._timers.pop(began.ms)) is not None:
            try:
                self._due(key, now)
            except Exception:
                log.exception("a deadline's callback failed, the next try is in %d ms: %s", RETRY_MS, key)
                if key not in self._timers:
                    self._timers.set(key, now.ms + RETRY_MS)
            now = self._now()
        self.arm(now)

    def close(self) -> None:
        """Cancel the timer for good."""
        self._closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
