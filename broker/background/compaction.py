"""Compaction of logs while the broker runs. `storage.compaction.cleanable` decides which and when,
`storage.compaction.cleaner` does the work.

Up to ``log.cleaner.threads`` logs are compacted at once and share the permitted memory and rate; logs with the largest
dirty part come first. First the whole log is made durable, including later markers, which decide earlier transactions.
Then the recovery points are written, so that after a power cut a gap above one never comes from the cleaner. Then a new
worker process writes the new segments. Each is swapped in when it is ready: renamed in the disk thread, added to the
segment list on the loop.

Code that renames the files of a log (a deletion, a move) ends its compaction first, as Apache Kafka does
(`LogCleaner.abortCleaning`): the worker is killed, a swap that has begun is finished. Records are never at risk:
segments made from a log that was truncated since are not swapped in, and a job first removes remains of an earlier one.

A log is uncleanable until the next start if it has a batch that cannot be read, or if the worker fails on it for a
reason other than a disk error or a kill. That is logged once, and counted in `klamm_uncleanable_partitions`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from klamm.broker.turns import in_turns
from klamm.protocol.errors import KafkaError, KafkaStorageError
from klamm.storage.compaction.cleanable import Cleanable, cleanable, is_due, make_job
from klamm.storage.compaction.cleaner import Job, Result
from klamm.storage.compaction.cleaner_worker import decode_group, decode_result, encode_job
from klamm.storage.compaction.leftovers import discard_cleaned
from klamm.storage.filesystem import describe
from klamm.storage.log.cleaned_segment import Cleaned
from klamm.storage.log.log import Log

if TYPE_CHECKING:
    from klamm.broker.background.retention import Retention
    from klamm.broker.metrics import Metrics
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.log_dir import LogDir

log = logging.getLogger(__name__)

T = TypeVar("T")

LINE_BYTES = 16 << 20
"""The longest answer of the worker: it names all segments that were merged into one."""


MIN_PAUSE_MS = 100


class Damaged(Exception):
    """The log cannot be compacted as it is."""


class Failed(Exception):
    """The compaction failed; it may succeed later."""


Swap: TypeAlias = Callable[[Cleaned], Awaitable[None]]
"""Puts a compacted segment in its place."""


async def run_worker(job: Job, swap: Swap) -> Result:
    """Run the job in a process of its own; `swap` is awaited for each finished segment. Raises Damaged or Failed.

    However this function ends, the process has ended, too.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "klamm.storage.compaction.cleaner_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
            cwd=job.directory,
        )
    except OSError as error:
        raise Failed(f"the worker did not start: {describe(error)}") from error
    assert process.stdin is not None and process.stdout is not None
    answer = None
    try:
        process.stdin.write(encode_job(job))  # left open: the worker ends when it closes
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            answer = json.loads(line)
            if "group" in answer:
                await swap(decode_group(answer["group"]))
                answer = None
        code = await process.wait()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await uninterrupted(process.wait())
        raise
    finally:
        process.stdin.close()
    if answer is None:
        raise Damaged(f"the worker ended with code {code}") if code > 0 else Failed(f"the worker got signal {-code}")
    if "damaged" in answer:
        raise Damaged(answer["damaged"])
    if "failed" in answer:
        raise Failed(answer["failed"])
    return decode_result(answer["result"])


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Wait for the end of the work even if cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s", error)
        raise


class _Run:
    """A running compaction of one log."""

    def __init__(self, partition: Partition, task: asyncio.Task[None]) -> None:
        self.task = task
        self._is_ending = False
        partition.file_work.add(self)
        task.add_done_callback(lambda _: partition.file_work.discard(self))

    async def end(self) -> None:
        if not self._is_ending:
            self._is_ending = True
            self.task.cancel()
        await asyncio.wait([self.task])


class Compaction:
    """Verb: `round`, compact all logs that are due."""

    def __init__(
        self,
        partitions: PartitionManager,
        retention: Retention,
        config: Callable[[], BrokerConfig],
        disk: Executor | None,
        worker: Callable[[Job, Swap], Awaitable[Result]] = run_worker,
    ) -> None:
        self._partitions = partitions
        self._retention = retention
        self._config = config
        self._disk = disk
        self._worker = worker
        self._uncleanable: set[Log] = set()
        self.bytes_read = 0
        self.bytes_written = 0

    @property
    def uncleanable_count(self) -> int:
        served = {partition.log for partition in self._partitions}
        self._uncleanable &= {known for known in served if known is not None}
        return len(self._uncleanable)

    def expose(self, metrics: Metrics) -> None:
        """Register the metrics of compaction."""
        metrics.gauge(
            "klamm_uncleanable_partitions", "Partitions that cannot be compacted.", lambda: self.uncleanable_count
        )
        metrics.counter("klamm_cleaner_read_bytes_total", "Bytes read by compaction.", lambda: self.bytes_read)
        metrics.counter("klamm_cleaner_written_bytes_total", "Bytes written by compaction.", lambda: self.bytes_written)

    @property
    def pause_ms(self) -> int:
        """The pause after a round, and between checks while logs are being compacted."""
        return max(MIN_PAUSE_MS, self._config().integer("log.cleaner.backoff.ms"))

    async def round(self) -> None:
        """Compact logs until none is due."""
        tried: set[Log] = set()
        running: dict[asyncio.Task[None], Log] = {}
        try:
            while True:
                while len(running) < self._worker_count and (due := await self._next_due(tried)) is not None:
                    tried.add(due[1])
                    running[self._begin(*due)] = due[1]
                if not running:
                    return
                pause_s = self.pause_ms / 1000
                done, _ = await asyncio.wait(running, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                if not done:  # one may take hours: for the other logs a new round begins
                    tried = set(running.values())
                for task in done:
                    del running[task]
                    if not task.cancelled():
                        task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    @property
    def _worker_count(self) -> int:
        config = self._config()
        return config.integer("log.cleaner.threads") if config.flag("log.cleaner.enable") else 0

    async def _next_due(self, tried: set[Log]) -> tuple[Partition, Log, Cleanable] | None:
        """Return the due log with the largest dirty part; searches in turns."""
        now_ms = self._retention.now_ms()
        due: dict[Partition, Cleanable] = {}
        async for partition, storage_log in in_turns(self._partitions.compacted()):
            found = self._cleanable(partition, storage_log, tried, now_ms)
            if found is not None:
                due[partition] = found
        for partition in sorted(due, key=lambda each: due[each].ratio, reverse=True):
            current = partition.log  # the log may have changed since
            found = self._cleanable(partition, current, tried, now_ms) if current is not None else None
            if current is not None and found is not None:
                return partition, current, found
        return None

    def _begin(self, partition: Partition, storage_log: Log, found: Cleanable) -> asyncio.Task[None]:
        log_dir = self._partitions.logs.directory_of(partition.key)
        attempt = self._attempt(partition, log_dir, storage_log, found)
        return _Run(partition, asyncio.get_running_loop().create_task(attempt)).task

    async def _attempt(self, partition: Partition, log_dir: LogDir, storage_log: Log, found: Cleanable) -> None:
        try:
            await self._compact(partition, log_dir, storage_log, found)
        except Damaged as error:
            self._uncleanable.add(storage_log)
            log.error("%s: cannot be compacted, skipped until the next start: %s", storage_log.name, error)
            await self._discard(partition, log_dir, storage_log)
        except (Failed, KafkaError) as error:
            await self._discard(partition, log_dir, storage_log)
            if partition.log is storage_log:  # else the topic was deleted meanwhile
                log.warning("%s: compaction failed, to be tried again: %s", storage_log.name, error)

    def _cleanable(self, partition: Partition, storage_log: Log, tried: set[Log], now_ms: int) -> Cleanable | None:
        """Return the part of a log that is due now."""
        if partition.log is not storage_log or storage_log in tried or storage_log in self._uncleanable:
            return None
        if partition.is_moving or storage_log.local.offline_reason is not None:
            return None
        checkpoint = self._partitions.logs.directory_of(partition.key).cleaner_offset(partition.key)
        try:
            found = cleanable(storage_log, checkpoint, now_ms)
        except OSError as error:
            log.warning("%s: compaction: %s", storage_log.name, error)
            return None
        return found if found is not None and is_due(storage_log, found) else None

    async def _compact(self, partition: Partition, log_dir: LogDir, storage_log: Log, found: Cleanable) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._disk, discard_cleaned, log_dir, partition.key, storage_log)
        await loop.run_in_executor(self._disk, _make_durable, storage_log, log_dir, found.first_uncleanable)
        if storage_log.local.recovery_point < found.first_uncleanable:
            raise Failed("its indexes are not durable")
        job = self._job(storage_log, found)

        async def swap(group: Cleaned) -> None:
            if partition.log is not storage_log or not storage_log.local.begin_swap(group):
                raise Failed("it was cut meanwhile")
            await uninterrupted(self._carry_out(storage_log, group))

        try:
            result = await self._worker(job, swap)
        except Damaged as error:
            if storage_log.local.segment_swap.cut_count != job.cut_count:
                raise Failed(f"it was cut meanwhile: {error}") from error
            raise
        self.bytes_read += result.bytes_read
        self.bytes_written += result.bytes_written
        await loop.run_in_executor(self._disk, log_dir.note_cleaned, partition.key, storage_log, result.end_offset)
        log.info(
            "%s: compacted up to offset %d: bytes_read=%d bytes_written=%d segments=%d",
            storage_log.name, result.end_offset, result.bytes_read, result.bytes_written,
            len(storage_log.local.segments.all),
        )  # fmt: skip

    async def _carry_out(self, storage_log: Log, group: Cleaned) -> None:
        """Swap in a segment; `begin_swap` has prepared the log."""
        files = await asyncio.get_running_loop().run_in_executor(self._disk, storage_log.local.swap_files, group)
        storage_log.local.finish_swap()
        self._retention.delete_files_later(storage_log, files)

    async def _discard(self, partition: Partition, log_dir: LogDir, storage_log: Log) -> None:
        loop = asyncio.get_running_loop()
        with suppress(KafkaError):  # the next job removes it
            await loop.run_in_executor(self._disk, discard_cleaned, log_dir, partition.key, storage_log)

    def _job(self, storage_log: Log, found: Cleanable) -> Job:
        config = self._config()
        load_factor, bytes_per_second = (
            config["log.cleaner.io.buffer.load.factor"],
            config["log.cleaner.io.max.bytes.per.second"],
        )
        assert isinstance(load_factor, float) and isinstance(bytes_per_second, float)
        sharers = max(1, self._worker_count)
        return make_job(
            storage_log,
            found,
            self._retention.now_ms(),
            map_bytes=config.integer("log.cleaner.dedupe.buffer.size") // sharers,
            map_load_factor=load_factor,
            bytes_per_second=bytes_per_second / sharers,
        )


def _make_durable(storage_log: Log, log_dir: LogDir, up_to: int) -> None:
    storage_log.local.flush()  # all of it: later markers decide earlier transactions
    if storage_log.local.recovery_point < up_to:  # no room for its indexes, so none for compacted segments
        raise KafkaStorageError(f"{storage_log.name}: indexes below offset {up_to} are not durable yet")
    log_dir.checkpoint()
