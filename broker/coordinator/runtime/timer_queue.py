"""Deadlines of many members and groups in one heap.

A key has at most one deadline. Every heartbeat moves a deadline further away; that costs one dict store. The heap entry
stays where it is, and is put back with the true deadline when it comes up. Cancelled entries leave the heap in the same
way, or all at once when most entries are cancelled.

A deadline not later than the time of the last `pop` is set to one millisecond after it. A loop that pops all due
deadlines therefore ends, whatever is set meanwhile.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])

SLACK = 64  # stale heap entries that are tolerated before the heap is rebuilt


class TimerQueue(Generic[K]):
    """Keys with deadlines in milliseconds; the caller supplies the time."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the deadline in the heap for a key; never later than the true one
        self._heap: list[tuple[int, K]] = []
        self._looked_ms: int | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        """Set or move the deadline of a key. It is at least one millisecond after the last `pop`."""
        if self._looked_ms is not None and deadline_ms <= self._looked_ms:
            deadline_ms = self._looked_ms + 1
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queue(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of a key, if it has one."""
        if self._deadlines.pop(key, None) is not None and len(self._heap) > 2 * len(self._deadlines) + SLACK:
            self._rebuild()

    def next_ms(self) -> int | None:
        """Return when to look again: the time of the next deadline, or somewhat before it. None: nothing is set."""
        return self._heap[0][0] if self._heap and self._deadlines else None

    def pop(self, now_ms: int) -> K | None:
        """Remove and return the key with the earliest due deadline; None: nothing is due.

        One key at a time, because the handling of one may cancel the next.
        """
        heap = self._heap
        self._looked_ms = now_ms
        while heap and heap[0][0] <= now_ms:
            queued_ms, key = heapq.heappop(heap)
            if self._queued.get(key) != queued_ms:
                continue  # an earlier deadline was queued after it
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms == queued_ms:
                del self._deadlines[key]
                return key
            self._queue(key, deadline_ms)
        return None

    def _queue(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, key))

    def _rebuild(self) -> None:
        self._queued = dict(self._deadlines)
        self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
        heapq.heapify(self._heap)
