"""Fetches that wait: for enough data, for a change, or for their time limit.

A waiting fetch registers with its partitions. Each append reports how much more can be read; a read_committed reader
counts appended bytes only when the last stable offset moves. The first of timer and appends makes the fetch read its
partitions once more and send the response. When the connection closes, the future is cancelled, and the wait ends.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from klamm.broker.network.deferred import Deferred

if TYPE_CHECKING:
    from klamm.broker.apis.fetch import Fetch
    from klamm.broker.broker import Broker
    from klamm.broker.fetch.ready_fetches import SharedReads
    from klamm.broker.partitions.partition import Partition
    from klamm.protocol.messages.fetch import FetchResponse

MAX_WAIT_LIMIT_MS = 0x7FFFFFFF


class DelayedFetch:
    """One fetch, and the future of its response."""

    __slots__ = ("_broker", "_fetch", "_future", "_held_back", "_is_completing", "_ready", "_size_bytes", "_timer")

    def __init__(self, broker: Broker, fetch: Fetch) -> None:
        self._broker = broker
        self._fetch = fetch
        self._size_bytes = 0
        self._held_back: dict[Partition, tuple[int, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False
        self._is_completing = False
        self._future: Deferred[FetchResponse] = Deferred(loop=asyncio.get_running_loop())
        self._future.add_done_callback(self._on_done)

    def wait(self) -> asyncio.Future[FetchResponse]:
        """Return the future of the response: when ``min_bytes`` have come, something changed, or ``max_wait_ms`` are
        over.
        """
        self._start_waiting()
        return self._future

    def answer_in_turns(self) -> asyncio.Future[FetchResponse]:
        """Read many partitions in turns, then respond or wait: for a fetch that would hold the loop for too long."""
        asyncio.ensure_future(self._begin_in_turns()).add_done_callback(self._hand_over)
        return self._future

    def complete(self, found: SharedReads | None = None) -> None:
        """Read once more and respond. Only the first call does so, from the timer or after an append."""
        if self._is_completing or self._future.done():
            return
        self._is_completing = True
        self._stop_waiting()
        fetch = self._fetch
        if fetch.takes_turns():
            asyncio.ensure_future(self._finish_in_turns()).add_done_callback(self._hand_over)
            return
        try:
            started = time.perf_counter() if fetch.charge is not None else 0.0
            fetch.read(found)
            if fetch.charge is not None:
                fetch.charge.waits(time.perf_counter() - started)
            if fetch.is_converted:
                asyncio.ensure_future(fetch.converted_response()).add_done_callback(self._hand_over)
            else:
                self._future.set_result(fetch.response())
        except Exception as error:
            self._future.set_exception(error)

    async def _begin_in_turns(self) -> FetchResponse | None:
        fetch = self._fetch
        await fetch.read_in_turns()
        if fetch.is_complete or fetch.request.max_wait_ms <= 0 or self._broker.is_stopping:
            return await fetch.response_in_turns()
        if not self._future.done():
            self._start_waiting()
        return None

    async def _finish_in_turns(self) -> FetchResponse:
        await self._fetch.read_in_turns()
        return await self._fetch.response_in_turns()

    def _start_waiting(self) -> None:
        fetch = self._fetch
        self._size_bytes = fetch.size_bytes
        if fetch.is_committed:
            self._held_back = {p: (p.last_stable_offset, 0) for p in fetch.partitions}
        for partition in fetch.partitions:
            partition.waiters.add(self._on_append)
        wait_ms = min(fetch.request.max_wait_ms, MAX_WAIT_LIMIT_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.complete)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._fetch.partitions:
            partition.waiters.discard(self._on_append)

    def _on_append(self, partition: Partition, size_bytes: int) -> None:
        """Count appended bytes. A partition calls this: ``size_bytes`` more can be read; 0 means another change."""
        if size_bytes and self._held_back:
            size_bytes = self._now_stable(partition, size_bytes)
            if not size_bytes:
                return
        self._size_bytes += size_bytes
        if not self._ready and (size_bytes == 0 or self._size_bytes >= self._fetch.request.min_bytes):
            self._ready = True
            self._broker.ready_fetches.add(self)

    def _now_stable(self, partition: Partition, size_bytes: int) -> int:
        """Return how many bytes appended since the last stable offset moved can be read now."""
        stable, held_back = self._held_back[partition]
        held_back += size_bytes
        if partition.last_stable_offset == stable:
            self._held_back[partition] = stable, held_back
            return 0
        self._held_back[partition] = partition.last_stable_offset, 0
        return held_back

    def _hand_over(self, task: asyncio.Future[FetchResponse] | asyncio.Future[FetchResponse | None]) -> None:
        error = task.exception()
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        elif (response := task.result()) is not None:
            self._future.set_result(response)

    def _on_done(self, future: asyncio.Future[FetchResponse]) -> None:
        if future.cancelled():
            self._stop_waiting()
