"""What a broker does on its own, by the clock: checkpoints, flushes by time, retention, compaction, scrubbing, expiry
of idle producers.

Everything that may block runs in the disk thread; a failure is logged and tried again at the next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.broker.controller import tokens
from klamm.broker.memory import collect_young
from klamm.broker.turns import in_turns
from klamm.protocol.errors import KafkaError
from klamm.storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from klamm.broker.broker import Broker

log = logging.getLogger(__name__)

MIN_PAUSE_MS = 10
FAILURE_PAUSE_MS = 60_000
"""How long to wait when the period itself cannot be told."""
FIRST_CHECK_MS = 30_000
"""When retention first looks, as Apache Kafka does: a broker that is often restarted would never delete anything."""
LONGEST_FLUSH_TICK_MS = 1000
ROLLED_TICK_MS = 1000
"""How often to look for logs that have begun a new segment."""
SWEEP_TICK_MS = 1000
"""How often to look for deleted files whose delay has passed."""
RESERVE_TICK_MS = 1000
"""How often to look whether a reserve that was let go can be made again: until then nothing is appended."""
YOUNG_TICK_MS = 1000
"""How often the cyclic collector looks at what is new."""
SCRUB_TICK_MS = 30_000
"""How often to look whether it is time to verify the logs again."""
RETRY_MS = 10_000
"""How often to try again to make partitions that a full disk refused."""


PRODUCERS_AT_ONCE = 1000
"""Idle producers that are forgotten before others get their turn on the loop."""


class Job(NamedTuple):
    """Something to be done again and again; both functions may fail without an end to it."""

    name: str
    period_ms: Callable[[], int]
    run: Callable[[], Coroutine[Any, Any, None]]
    first_ms: float = float("inf")
    """The first pause is not longer than this."""


class Scheduler:
    """Starts the periodic jobs of ``broker``, and stops them."""

    def __init__(self, broker: Broker, disk: Executor) -> None:
        self._broker = broker
        self._disk = disk
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(repeat(job)) for job in self.jobs()]

    def jobs(self) -> list[Job]:
        """Everything that is done, with its period in ms."""
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
        """How often to look for logs that ``flush.ms`` wants on the disk: four times in the shortest of them."""
        waiting = self._broker.partitions.with_flush_rule()
        shortest = min((partition.flush_ms for partition in waiting), default=LONG_MAX)
        return min(max(shortest // 4, MIN_PAUSE_MS), LONGEST_FLUSH_TICK_MS)

    async def _flush_due(self) -> None:
        """Flush what would be due before the next look: so no record stays in memory for longer than ``flush.ms``."""
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
    """Run the job again and again, until cancelled."""
    at_most_ms = job.first_ms
    while True:
        try:
            pause_ms = max(MIN_PAUSE_MS, job.period_ms())
        except Exception:
            log.exception("scheduler: %s: no period", job.name)
            pause_ms = FAILURE_PAUSE_MS
        await asyncio.sleep(min(pause_ms, at_most_ms) / 1000)
        at_most_ms = float("inf")
        try:
            await job.run()
        except KafkaError as error:  # the disk is full, or the like: known, and told where it happened
            log.warning("scheduler: %s failed: %s", job.name, error.message)
        except Exception:
            log.exception("scheduler: %s failed", job.name)
