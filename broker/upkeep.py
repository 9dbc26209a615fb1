"""What a broker does on its own, by the clock: checkpoints, flushes by time, retention,
compaction, expiry of idle producers.

Everything that may block runs in the disk thread; a failure is logged and tried again at the next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klamm.broker.broker import Broker

log = logging.getLogger(__name__)

MIN_FLUSH_TICK_MS = 10
MIN_CLEANER_PAUSE_MS = 100
SWEEP_TICK_MS = 1000
"""How often to look for deleted files whose delay has passed."""


class Upkeep:
    """Starts the periodic jobs of ``broker``, and stops them."""

    def __init__(self, broker: Broker, disk: Executor) -> None:
        self._broker = broker
        self._disk = disk
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        config = self._broker.config
        checkpoint_ms = min(
            config.integer("log.flush.offset.checkpoint.interval.ms"),
            config.integer("log.flush.start.offset.checkpoint.interval.ms"),
        )
        self._every(lambda: checkpoint_ms, self._checkpoint)
        self._every(self._flush_tick_ms, self._flush_due)
        self._every(lambda: config.integer("log.retention.check.interval.ms"), self._broker.retention.check)
        self._every(lambda: SWEEP_TICK_MS, self._broker.retention.sweep)
        self._every(self._cleaner_pause_ms, self._broker.compaction.round)
        self._every(
            lambda: self._broker.config.integer("producer.id.expiration.check.interval.ms"), self._expire_producers
        )

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _every(self, period_ms: Callable[[], int], job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(period_ms() / 1000)
                try:
                    await job()
                except Exception:
                    log.exception("upkeep: %s failed", job.__name__)

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _checkpoint(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk, self._broker.partitions.checkpoint)

    def _cleaner_pause_ms(self) -> int:
        return max(MIN_CLEANER_PAUSE_MS, self._broker.config.integer("log.cleaner.backoff.ms"))

    def _flush_tick_ms(self) -> int:
        """How often to look for logs that ``flush.ms`` wants on the disk: as often as the shortest of them."""
        shortest = min((partition.flush_ms for partition in self._broker.partitions), default=1000)
        return max(MIN_FLUSH_TICK_MS, min(shortest, 1000))

    async def _flush_due(self) -> None:
        broker = self._broker
        now_ms = broker.clock.wall_ms()
        waits = [
            broker.flusher.flush(partition)
            for partition in broker.partitions
            if partition.log is not None and partition.log.flush_due(now_ms)
        ]
        await asyncio.gather(*waits, return_exceptions=True)

    async def _expire_producers(self) -> None:
        now_ms = self._broker.clock.wall_ms()
        for partition in self._broker.partitions:
            if partition.log is not None:
                partition.log.producers.remove_expired(now_ms)
