"""Periodic jobs of the broker: checkpoints, flushes by time, retention, compaction, scrubbing, expiry of idle
producers.

All blocking work runs in the disk thread. A failure is logged, and the job runs again in the next period.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.broker.memory import collect_young
from klamm.broker.turns import in_turns
from klamm.protocol.errors import KafkaError
from klamm.storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from klamm.broker.broker import Broker

log = logging.getLogger(__name__)

MIN_PAUSE_MS = 10
FAILURE_PAUSE_MS = 60_000
"""The pause after a failure to compute the period itself."""
FIRST_CHECK_MS = 30_000
"""The first retention check, as in Apache Kafka: without it, a broker that is often restarted would never delete."""
LONGEST_FLUSH_TICK_MS = 1000
ROLLED_TICK_MS = 1000
"""The period of checks for logs that have begun a new segment."""
SWEEP_TICK_MS = 1000
"""The period of checks for deleted files with a delay that has passed."""
RESERVE_TICK_MS = 1000
"""The period of tries to restore the reserve file of a full disk: without it nothing is appended."""
YOUNG_TICK_MS = 1000
"""The period of the cyclic garbage collection of young objects."""
SCRUB_TICK_MS = 30_000
"""The period of checks whether a scrubbing pass is due."""
RETRY_MS = 10_000
"""The period of tries to create partitions that a full disk refused."""


PRODUCERS_AT_ONCE = 1000
"""Idle producers that are removed in one turn."""


class Job(NamedTuple):
    """A periodic job. A failure of either function does not end it."""

    name: str
    period_ms: Callable[[], int]
    run: Callable[[], Coroutine[Any, Any, None]]
    first_ms: float = float("inf")
    """The longest first pause."""


class Scheduler:
    """The periodic jobs of ``broker``: starts and stops them."""

    def __init__(self, broker: Broker, disk: Executor) -> None:
        self._broker = broker
        self._disk = disk
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(repeat(job)) for job in self.jobs()]

    def jobs(self) -> list[Job]:
        """Return all jobs, with their periods in ms."""
        broker = self._broker
        return [
            Job("checkpoints", self._checkpoint_pause_ms, self._checkpoint),
            Job("flushes", self._flush_tick_ms, self._flush_due),
            Job("flushes of rolled segments", lambda: ROLLED_TICK_MS, self._flush_rolled),
            Job(
                "retention",
                lambda: broker.config.integer("log.retention.check.interval.ms"),
                broker.retention.delete_old_segments,
                first_ms=FIRST_CHECK_MS,
            ),
            Job("partitions to be made", lambda: RETRY_MS, broker.partitions.retry),
            Job("reserves for a full disk", lambda: RESERVE_TICK_MS, self._renew_reserves),
            Job("deleted files", lambda: SWEEP_TICK_MS, broker.retention.delete_due_files),
            Job("compaction", lambda: broker.compaction.pause_ms, broker.compaction.round),
            Job("scrubbing", self._scrub_pause_ms, broker.scrubber.round),
            Job(
                "idle producers",
                lambda: broker.config.integer("producer.id.expiration.check.interval.ms"),
                self._expire_producers,
            ),
            Job(
                "delegation tokens",
                lambda: broker.config.integer("delegation.token.expiry.check.interval.ms"),
                self._sweep_tokens,
            ),
            Job("young objects", lambda: YOUNG_TICK_MS, self._collect_young),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _checkpoint(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._disk, self._broker.partitions.logs.checkpoint)

    def _checkpoint_pause_ms(self) -> int:
        config = self._broker.config
        return min(
            config.integer("log.flush.offset.checkpoint.interval.ms"),
            config.integer("log.flush.start.offset.checkpoint.interval.ms"),
        )

    def _scrub_pause_ms(self) -> int:
        return min(SCRUB_TICK_MS, self._broker.config.integer("klamm.scrub.interval.ms") // 10)

    def _flush_tick_ms(self) -> int:
        """Return the period of checks for logs with ``flush.ms``: a quarter of the shortest ``flush.ms``."""
        waiting = self._broker.partitions.with_flush_rule()
        shortest = min((partition.flush_ms for partition in waiting), default=LONG_MAX)
        return min(max(shortest // 4, MIN_PAUSE_MS), LONGEST_FLUSH_TICK_MS)

    async def _flush_due(self) -> None:
        """Flush logs that would be due before the next check, so no record stays in memory for longer than
        ``flush.ms``.
        """
        broker = self._broker
        next_look_ms = broker.clock.wall_ms() + self._flush_tick_ms()
        waits = [
            broker.flusher.flush(partition)
            async for partition in in_turns(broker.partitions.with_flush_rule())
            if partition.log is not None and partition.log.local.flush_due(next_look_ms)
        ]
        await asyncio.gather(*waits, return_exceptions=True)

    async def _renew_reserves(self) -> None:
        if self._broker.partitions.logs.lacks_reserves():
            await asyncio.get_running_loop().run_in_executor(self._disk, self._broker.partitions.logs.renew_reserves)

    async def _flush_rolled(self) -> None:
        await self._broker.flusher.flush_rolled(self._broker.partitions.rolled())

    async def _sweep_tokens(self) -> None:
        broker = self._broker
        if not broker.image.tokens:
            return
        from klamm.broker.controller import tokens  # when there are some

        count = await broker.controller.change_tokens(tokens.sweep(broker.clock.wall_ms()))
        if count:
            log.info("%d delegation token(s) have expired and are removed", count)
        if broker.token_keys is not None:
            broker.token_keys.forget_others(broker.image.tokens)

    async def _collect_young(self) -> None:
        collect_young()

    async def _expire_producers(self) -> None:
        async for partition in in_turns(self._broker.partitions):
            while (storage_log := partition.log) is not None:
                if storage_log.forget_idle_producers(PRODUCERS_AT_ONCE) < PRODUCERS_AT_ONCE:
                    break
                await asyncio.sleep(0)


async def repeat(job: Job) -> None:
    """Run the job periodically, until cancelled."""
    at_most_ms = job.first_ms
    while True:
        try:
            pause_ms = max(MIN_PAUSE_MS, job.period_ms())
        except Exception:
            log.exception("scheduler: %s: the period cannot be computed", job.name)
            pause_ms = FAILURE_PAUSE_MS
        await asyncio.sleep(min(pause_ms, at_most_ms) / 1000)
        at_most_ms = float("inf")
        try:
            await job.run()
        except KafkaError as error:  # the disk is full, or the like; logged where it happened
            log.warning("scheduler: %s failed: %s", job.name, error.message)
        except Exception:
            log.exception("scheduler: %s failed", job.name)
