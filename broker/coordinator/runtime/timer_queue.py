"""Deadlines of many members and groups in one heap.

A key has at most one deadline. Moving a deadline further away, which every heartbeat does, costs one dict store: the
entry in the heap stays where it is, and is put back with the true deadline when its turn comes. Cancelled entries
leave the heap in the same way, or all at once when they are most of it.

A deadline that is not after the last look counts as one millisecond after it. So who does all that is due always comes
to an end, whatever is set meanwhile.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...])

SLACK = 64  # entries of the heap that may be out of date before it is worth making anew


class TimerQueue(Generic[K]):
    """Keys with deadlines in milliseconds; the caller says what time it is."""

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the deadline that the heap has for a key; never later than the true one
        self._heap: list[tuple[int, K]] = []
        self._looked_ms: int | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        """Set the deadline of a key, or move it. At the earliest it is just after the last look (`pop`)."""
        if self._looked_ms is not None and deadline_ms <= self._looked_ms:
            deadline_ms = self._looked_ms + 1
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queue(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Forget the deadline of a key, if it has one."""
        if self._deadlines.pop(key, None) is not None and len(self._heap) > 2 * len(self._deadlines) + SLACK:
            self._rebuild()

    def next_ms(self) -> int | None:
        """When to look again: the next deadline or, at worst, somewhat before it. None: nothing is set."""
        return self._heap[0][0] if self._heap and self._deadlines else None

    def pop(self, now_ms: int) -> K | None:
        """The key whose deadline came first, and is forgotten; None: nothing is due yet.

        One at a time, because what is done about one may cancel the next.
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
