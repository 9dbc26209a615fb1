"""A clock that moves only by calls."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class ManualClock:
    """Wall and monotonic time advance together; the wall may also jump, as clocks do."""

    def __init__(self, wall_ms: int = START_MS) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def advance(self, ms: int) -> None:
        assert ms >= 0
        self._wall_ms += ms
        self._monotonic_ms += ms

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock, as an operator or NTP does; negative goes back."""
        self._wall_ms += ms
