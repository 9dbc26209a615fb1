"""Group commit: one flush of a log serves every append that waits for it.

`flush` requests a flush of a partition. Requests made during one round are served by the next one, in threads:
concurrent syncs share the commits of the filesystem's journal. The future completes when the bytes appended before the
call are on the disk, and fails with KafkaStorageError when they are not: such an append is never acknowledged
(docs/faults.md, storage row 26).

`flush_rolled` is separate: complete segments, however large, go to the disk in a thread of their own, and no append
waits for them. This advances recovery points where neither `flush.messages` nor `flush.ms` is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.turns import in_turns
from klamm.protocol.errors import KafkaError, KafkaStorageError
from klamm.storage.log.durability import FlushNotTried

if TYPE_CHECKING:
    from klamm.broker.partitions.partition import Partition

log = logging.getLogger(__name__)


class Flusher:
    """Collects flush requests and syncs them round by round in the ``threads`` of ``executor``; complete segments in
    ``background``.
    """

    def __init__(self, executor: Executor, background: Executor | None = None, *, threads: int = 1) -> None:
        self._executor = executor
        self._threads = threads
        self._background = background
        self._asked: dict[Partition, asyncio.Future[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def flush(self, partition: Partition) -> asyncio.Future[None]:
        """Return a future that completes when everything appended so far is on the disk; callers share it."""
        future = self._asked.get(partition)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._asked[partition] = loop.create_future()
            future.add_done_callback(_retrieve)
            if self._task is None:
                self._task = loop.create_task(self._run())
        return future

    async def flush_rolled(self, partitions: Iterable[Partition]) -> None:
        """Make all segments but the active ones durable. The high watermark and acknowledgements do not change."""
        loop = asyncio.get_running_loop()
        for partition in partitions:
            storage_log = partition.log
            if storage_log is None or partition.is_offline:
                continue
            end = storage_log.local.unflushed_segments_end
            if end is None:
                continue
            outcome = (await loop.run_in_executor(self._background, _sync, [(partition, end)])).get(partition)
            if isinstance(outcome, FlushNotTried):
                log.warning("%s", outcome.message)
            elif isinstance(outcome, KafkaError) and partition.log is storage_log:
                partition.go_offline(outcome.message)

    async def drain(self) -> None:
        """Wait for the requested rounds."""
        while self._task is not None:
            await self._task

    async def _run(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                targets = {partition: partition.log.log_end_offset for partition in asked if partition.log is not None}
                synced = await self._sync_in_threads(list(targets.items()))
                async for partition, future in in_turns(asked.items()):
                    target, outcome = targets.get(partition, 0), synced.get(partition)
                    if outcome is None or partition.log is None:
                        outcome = KafkaStorageError(f"{partition.name} is offline: {partition.offline_reason}")
                    elif isinstance(outcome, int) and outcome < target:
                        outcome = KafkaStorageError(f"{partition.name}: flushed up to {outcome} of {target} only")
                    if isinstance(outcome, int):
                        partition.flushed(target)
                        future.set_result(None)
                    else:
                        if not isinstance(outcome, FlushNotTried):
                            partition.go_offline(outcome.message)
                        future.set_exception(outcome)
        finally:
            self._task = None

    async def _sync_in_threads(self, targets: list[tuple[Partition, int]]) -> dict[Partition, int | KafkaError]:
        loop = asyncio.get_running_loop()
        shares = [targets[index :: self._threads] for index in range(min(self._threads, len(targets)))]
        synced: dict[Partition, int | KafkaError] = {}
        for found in await asyncio.gather(*(loop.run_in_executor(self._executor, _sync, share) for share in shares)):
            synced |= found
        return synced


def _sync(targets: list[tuple[Partition, int]]) -> dict[Partition, int | KafkaError]:
    """Flush each log, in a thread. Return the offset up to which each is on the disk, or the error."""
    synced: dict[Partition, int | KafkaError] = {}
    for partition, up_to in targets:
        storage_log = partition.log
        if storage_log is None:
            continue
        try:
            synced[partition] = storage_log.local.flush(up_to)
        except KafkaError as error:
            synced[partition] = error
        except Exception as error:
            log.exception("%s: flush failed", partition.name)
            synced[partition] = KafkaStorageError(f"{partition.name}: flush failed: {error}")
    return synced


def _retrieve(future: asyncio.Future[None]) -> None:
    """Mark the exception of a failed flush as seen: its caller (a closed connection) may be gone."""
    if not future.cancelled():
        future.exception()
