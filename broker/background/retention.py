"""Deletion of old segments while the broker runs. `storage.log.retention` decides what may go; this module does it.

On the loop: examine logs, advance log starts, remove segments from the lists; each is one step without an await. Before
that, the disk thread makes the log starts durable. After it, the disk thread gives the files the suffix `.deleted`, and
removes them when `file.delete.delay.ms` has passed, on a full disk at once. After a crash half-way the next start
finishes the work: segments below the log start go in the next round, `.deleted` files at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.turns import in_turns
from klamm.protocol.errors import KafkaError
from klamm.storage.filesystem import NoSpace, describe
from klamm.storage.log.log import Log
from klamm.storage.log.retention import Breach, TrustedTime, due, log_deleted
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.storage.clock import Clock
    from klamm.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class _DelayedDeletion(NamedTuple):
    due: float  # monotonic seconds
    log: Log
    files: list[Path]


class Retention:
    """Verbs: `delete_old_segments` of all logs, `drop` segments below new log starts, `delete_due_files`."""

    def __init__(self, partitions: PartitionManager, clock: Clock, disk: Executor | None) -> None:
        self._partitions = partitions
        self._clock = clock
        self._disk = disk
        self._time = TrustedTime(clock)
        self._delayed_deletions: deque[_DelayedDeletion] = deque()

    def now_ms(self) -> int:
        """Return the wall clock, as far as it is trusted when data is at stake."""
        return self._time.now_ms()

    async def delete_old_segments(self) -> None:
        """Delete the segments that `retention.ms`, `retention.bytes` and the log starts allow."""
        now_ms = self.now_ms()
        found: dict[Partition, Breach] = {}
        async for partition in in_turns(self._partitions):
            breach = _due(partition, now_ms)
            if breach is not None:
                found[partition] = breach
        if found:
            await self.drop({partition: breach.log_start_offset for partition, breach in found.items()})
        for partition, breach in found.items():
            if partition.log is not None:
                log_deleted(partition.log, breach)

    async def drop(self, log_starts: Mapping[Partition, int]) -> None:
        """Advance log starts to these offsets, durably first, then in memory, and delete the segments below.

        On a disk too full for any write, segments are deleted first to make space; until then the names of the files
        give the log start. Raises KafkaStorageError for log starts that are not durable after that: these have moved no
        further than to the start of a segment.
        """
        try:
            await self._make_durable(log_starts)
        except NoSpace as error:
            log.warning("%s: segments are deleted before the log starts are stored", error.message)
            whole = {partition: _segment_start(partition, offset) for partition, offset in log_starts.items()}
            await self._delete_below(whole, at_once=True)
            await self._make_durable(log_starts)
        await self._delete_below(log_starts)

    async def _make_durable(self, log_starts: Mapping[Partition, int]) -> None:
        """Store the log starts. A partition may move meanwhile: the checkpoint of its new log directory then counts."""
        places = {each: self._partitions.logs.directory_of(each.key) for each in log_starts if each.log is not None}
        while places:
            wanted: dict[LogDir, dict[TopicPartition, int]] = {}
            for partition, log_dir in places.items():
                wanted.setdefault(log_dir, {})[partition.key] = log_starts[partition]
            await asyncio.get_running_loop().run_in_executor(self._disk, _raise_log_starts, wanted)
            found = {each: self._partitions.logs.directory_of(each.key) for each in places if each.log is not None}
            places = {each: log_dir for each, log_dir in found.items() if log_dir is not places[each]}

    async def _delete_below(self, log_starts: Mapping[Partition, int], *, at_once: bool = False) -> None:
        """Advance log starts in memory; segments below leave the list at once, and their files the disk after the
        delay.
        """
        loop = asyncio.get_running_loop()
        for partition, offset in log_starts.items():
            storage_log = partition.log
            if storage_log is None:
                continue
            storage_log.advance_log_start(min(offset, storage_log.log_end_offset))
            removed = storage_log.detach_unreachable()
            if not removed:
                continue
            try:
                files = await loop.run_in_executor(self._disk, storage_log.local.retire_segments, removed)
                if at_once or storage_log.local.no_room:
                    await loop.run_in_executor(self._disk, storage_log.local.unlink_files, files)
                else:
                    self.delete_files_later(storage_log, files)
            except KafkaError as error:  # after the next start they are below the log start, and go
                log.warning("%s", error.message)

    def delete_files_later(self, storage_log: Log, files: list[Path]) -> None:
        """Remove these files when ``file.delete.delay.ms`` has passed."""
        due = self._clock.monotonic() + storage_log.local.config.file_delete_delay_ms / 1000
        self._delayed_deletions.append(_DelayedDeletion(due, storage_log, files))

    async def delete_due_files(self) -> None:
        """Remove the files with a delay that has passed."""
        now = self._clock.monotonic()
        due = [deletion for deletion in self._delayed_deletions if deletion.due <= now]
        if due:
            self._delayed_deletions = deque(deletion for deletion in self._delayed_deletions if deletion.due > now)
            await asyncio.get_running_loop().run_in_executor(self._disk, _unlink, due)


def _due(partition: Partition, now_ms: int) -> Breach | None:
    storage_log = partition.log
    if storage_log is None or partition.is_offline:
        return None
    try:
        return due(storage_log, now_ms)
    except (KafkaError, OSError) as error:
        log.warning("%s: retention: %s", partition.name, describe(error) if isinstance(error, OSError) else error)
        return None


def _segment_start(partition: Partition, offset: int) -> int:
    """Return the start of the segment that holds `offset`, or the log start, if that is above."""
    storage_log = partition.log
    if storage_log is None:
        return 0
    begins = [segment.base_offset for segment in storage_log.local.segments.all if segment.base_offset <= offset]
    return max(storage_log.log_start_offset, begins[-1] if begins else 0)


def _raise_log_starts(wanted: Mapping[LogDir, Mapping[TopicPartition, int]]) -> None:
    for log_dir, offsets in wanted.items():
        log_dir.raise_log_starts(offsets)


def _unlink(due: list[_DelayedDeletion]) -> None:
    for deletion in due:
        try:
            deletion.log.local.unlink_files(deletion.files)
        except KafkaError as error:  # the next start tries again
            log.warning("%s", error.message)
