"""Background verification of data flushed long ago, so that damage is found before a consumer reads it.

A pass over a log dir goes through its partitions by name and their segments by offset, up to the recovery point, in a
worker process of its own (`storage.scrub.scrub_worker`) at `klamm.scrub.bytes.per.second`. The next pass begins early
enough that, at the same duration, every byte is verified within `klamm.scrub.interval.ms`. The position of the pass and
the damage found are in `klamm.scrub` of the log dir: a restart continues from there.

A segment that looks damaged is read once more. If it is still one of the log's, the damage is logged and counted in
`klamm_damaged_ranges`; from then on a read of an offset in it gets CORRUPT_MESSAGE, while all others are served. `klamm
repair` or the retention of the segment removes the damage; a log with damage is not compacted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from klamm.protocol.errors import CorruptMessage
from klamm.storage import known_damage
from klamm.storage.filesystem import describe
from klamm.storage.log.log import Log
from klamm.storage.log.segment import Segment
from klamm.storage.paths import TopicPartition
from klamm.storage.scrub.scrub_worker import Job, ScrubFailed, Verified, decode_answer

if TYPE_CHECKING:
    from klamm.broker.metrics import Metrics
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock
    from klamm.storage.log_dir import LogDir

log = logging.getLogger(__name__)

YIELD_EVERY = 100
"""Segments, most of which may need no read, between two pauses for the loop."""
SAVE_SECONDS = 60.0
"""The longest part of a pass, in seconds, that a crash may cost."""


class Verifier(Protocol):
    async def verify(self, job: Job) -> Verified:
        """Verify a segment. Raises ScrubFailed."""

    async def close(self) -> None: ...


class WorkerProcess:
    """A `Verifier` in a process that is started on first use."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def verify(self, job: Job) -> Verified:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "klamm.storage.scrub.scrub_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
            return decode_answer(await process.stdout.readline())
        except (ScrubFailed, ConnectionError, ValueError) as error:  # ValueError: an endless line
            await self.close()
            raise ScrubFailed(str(error)) from error

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            if process.returncode is None:
                process.kill()
            process.stdin.close()
            await process.wait()


class Scrubber:
    """Verb: `round`, run the passes that are due; `save` at shutdown."""

    def __init__(
        self,
        partitions: PartitionManager,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        disk: Executor | None,
        verifier: Callable[[], Verifier] = WorkerProcess,
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._config = config
        self._disk = disk
        self._verifier = verifier
        self._saved_at = clock.monotonic()
        self.read_bytes = 0

    def expose(self, metrics: Metrics) -> None:
        metrics.counter(
            "klamm_scrubbed_bytes_total", "Bytes of logs verified in the background.", lambda: self.read_bytes
        )
        metrics.gauge(
            "klamm_damaged_ranges",
            "Ranges of bytes in logs that are known to be damaged and are not served.",
            lambda: sum(log_dir.scrub.damaged_count for log_dir in self._partitions.logs.log_dirs),
        )

    async def round(self) -> None:
        """Run the passes that are due, in all log dirs at once."""
        if self._bytes_per_second() > 0:
            passes = [self._pass(log_dir) for log_dir in self._partitions.logs.log_dirs if self._is_due(log_dir)]
            for outcome in await asyncio.gather(*passes, return_exceptions=True):
                # raised when all have ended, so that none runs on into the next round
                if isinstance(outcome, BaseException):
                    raise outcome

    def save(self) -> None:
        """Save the position; if the disk refuses, that part is verified again. Blocks."""
        for log_dir in self._partitions.logs.log_dirs:
            self._save(log_dir)

    def _bytes_per_second(self) -> int:
        return self._config().integer("klamm.scrub.bytes.per.second")

    def _is_due(self, log_dir: LogDir) -> bool:
        state = log_dir.scrub
        if log_dir.offline_reason is not None:
            return False
        if state.ended_ms is None or state.ended_ms == 0:
            return True
        now_ms = self._clock.wall_ms()
        pause_ms = max(0, self._config().integer("klamm.scrub.interval.ms") - (state.ended_ms - state.began_ms))
        return not state.began_ms <= now_ms < state.began_ms + pause_ms

    async def _pass(self, log_dir: LogDir) -> None:
        state = log_dir.scrub
        if state.ended_ms is not None:
            state.began_ms, state.ended_ms, state.cursor = self._clock.wall_ms(), None, None
        verifier = self._verifier()
        before = self.read_bytes
        try:
            for number, (partition, storage_log, segment) in enumerate(self._segments(log_dir), 1):
                if number % YIELD_EVERY == 0:
                    await asyncio.sleep(0)
                state.cursor = (partition.topic, partition.partition, segment.base_offset)
                rate = self._bytes_per_second()
                if rate <= 0:
                    return
                await self._verify(verifier, log_dir, partition, storage_log, segment, rate)
                if self._clock.monotonic() - self._saved_at >= SAVE_SECONDS:
                    await self._save_soon(log_dir)
        finally:
            await asyncio.shield(verifier.close())
        state.ended_ms, state.cursor = max(1, self._clock.wall_ms()), None
        await self._save_soon(log_dir)
        log.info(
            "%s: scrubbing pass is complete: read_bytes=%d seconds=%d damaged_ranges=%d",
            log_dir.path, self.read_bytes - before, (state.ended_ms - state.began_ms) // 1000, state.damaged_count,
        )  # fmt: skip

    def _segments(self, log_dir: LogDir) -> Iterator[tuple[TopicPartition, Log, Segment]]:
        """Return the segments from the cursor on, each looked up when it is needed."""
        cursor = log_dir.scrub.cursor
        first = (cursor[0], cursor[1]) if cursor is not None else ("", -1)
        names = sorted((name.topic, name.partition) for name in log_dir.logs)
        for topic, index in names[bisect_left(names, first) :]:
            name = TopicPartition(topic, index)
            offset = cursor[2] if cursor is not None and (topic, index) == first else -1
            while (storage_log := log_dir.logs.get(name)) is not None and storage_log.local.offline_reason is None:
                segments = storage_log.local.segments.all
                at = bisect_left(segments, offset, key=_base_offset)
                if at == len(segments):
                    break
                segment = segments[at]
                yield name, storage_log, segment
                offset = segment.base_offset + 1

    async def _verify(
        self, verifier: Verifier, log_dir: LogDir, name: TopicPartition, storage_log: Log, segment: Segment, rate: int
    ) -> None:
        """Verify one segment, twice if it looks damaged: it may have changed during the read."""
        verified = None
        for _ in range(2):
            try:
                job = _job(storage_log, segment, rate)
                if job is None:
                    return
                verified = await verifier.verify(job)
            except (ScrubFailed, CorruptMessage) as error:
                log.warning("%s: segment %d was not verified: %s", name, segment.base_offset, error)
                return
            except OSError as error:
                log.warning("%s: segment %d was not verified: %s", name, segment.base_offset, describe(error))
                return
            self.read_bytes += verified.read_bytes
            if not verified.damage:
                break
        if verified is None or verified.damage is None or not _is_served(log_dir, name, storage_log, segment):
            return
        if verified.damage != segment.damage:
            for each in verified.damage:
                log.error(
                    "%s: damaged: segment=%d position=%d size_bytes=%d offsets=[%d, %d): %s; these are not served",
                    name, segment.base_offset, each.position, each.end_position - each.position, each.first_offset,
                    each.next_offset, each.problem,
                )  # fmt: skip
            if not verified.damage:
                log.info("%s: segment %d is not damaged any more", name, segment.base_offset)
            segment.damage = verified.damage
            await self._save_soon(log_dir)

    async def _save_soon(self, log_dir: LogDir) -> None:
        self._saved_at = self._clock.monotonic()
        await asyncio.get_running_loop().run_in_executor(self._disk, self._save, log_dir)

    def _save(self, log_dir: LogDir) -> None:
        try:
            known_damage.save(log_dir)
        except OSError as error:
            log.warning("%s: the state of scrubbing was not saved: %s", log_dir.path, describe(error))


def _job(storage_log: Log, segment: Segment, rate: int) -> Job | None:
    """Return the job for the durable part of a segment; None if there is none. Raises OSError, CorruptMessage."""
    segments = storage_log.local.segments.all
    at = bisect_left(segments, segment.base_offset, key=_base_offset)
    if segment.is_frozen or segments[at : at + 1] != [segment]:
        return None
    end_offset = segments[at + 1].base_offset if at + 1 < len(segments) else storage_log.log_end_offset
    end_position = segment.size_bytes
    recovery_point = storage_log.local.recovery_point
    if recovery_point < end_offset:
        found = segment.find_batch(recovery_point) if recovery_point > segment.base_offset else None
        if found is None:
            return None
        end_position, end_offset = found[0], recovery_point
    if not end_position:
        return None
    stat = os.fstat(segment.file.fileno())
    path = str(segment.path)
    return Job(path, segment.base_offset, end_position, end_offset, stat.st_dev, stat.st_ino, float(rate))


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _is_served(log_dir: LogDir, name: TopicPartition, storage_log: Log, segment: Segment) -> bool:
    return log_dir.logs.get(name) is storage_log and segment in storage_log.local.segments.all and not segment.is_frozen
