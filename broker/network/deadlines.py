"""Deadlines of a connection: how long it may be quiet, and how long a frame may take. No I/O; callers pass in the time.

The network's sweep checks three deadlines. A connection without a request in progress may be idle as long as its
listener or the node allows. A frame that has begun may take the frame timeout, and that long again for every
`RENEWAL_BYTES` received. A peer that reads none of its last responses gets no longer than a frame does.
"""

from __future__ import annotations

from klamm.broker.network.close_reason import CloseReason

NO_MARK = (-1, 0)
RENEWAL_BYTES = 64 * 1024  # a half frame that grew by this much gets a new deadline


class Deadlines:
    """The state of one connection at the last sweeps."""

    __slots__ = ("_active_at", "_frame_mark", "_frame_since")

    def __init__(self, now: float) -> None:
        self._active_at = now
        self._frame_mark = NO_MARK
        self._frame_since = now

    def note_active(self, now: float) -> None:
        """Note that something was read, answered or sent since the last sweep."""
        self._active_at = now

    @property
    def active_at(self) -> float:
        return self._active_at

    def is_quiet(self, now: float, limit_s: float) -> bool:
        return now - self._active_at >= limit_s

    def check_quiet(self, now: float, idle_s: float, frame_s: float, *, is_ending: bool) -> CloseReason | None:
        """Check an inactive connection without a request in progress."""
        if self.is_quiet(now, idle_s):
            return CloseReason("idle", f"idle for {now - self._active_at:.0f} s")
        if is_ending and self.is_quiet(now, frame_s):
            return CloseReason("idle", "the peer does not read its last responses")
        return None

    def check_frame(self, now: float, frame_s: float, frames_seen: int, buffered_bytes: int) -> CloseReason | None:
        """Check the frame that is being received: `buffered_bytes` of it are there; 0 if there is none."""
        if not buffered_bytes:
            self._frame_mark = NO_MARK
            return None
        seen, size = self._frame_mark
        if seen != frames_seen or buffered_bytes >= size + RENEWAL_BYTES:
            self._frame_mark = (frames_seen, buffered_bytes)
            self._frame_since = now
        elif now - self._frame_since >= frame_s:
            return CloseReason("frame_timeout", f"{buffered_bytes} bytes of a frame, then silence")
        return None
