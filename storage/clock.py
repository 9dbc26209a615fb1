"""Time as a seam: storage never reads the system clock itself, so a test can let a week pass in a millisecond.

`wall_ms` may jump in both directions (NTP, an operator); `monotonic` never goes back. Timestamps of records and ages of
segments are wall time, because they must survive a restart; waits and intervals are monotonic.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""


class SystemClock:
    """The clock of the machine."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
