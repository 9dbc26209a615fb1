"""Deleting old segments while the broker runs: what may go is decided in `storage.retention`, here is who does what.

On the loop: look at the logs, move log starts, take segments out of the lists; each is one step without an await. In
the disk thread, before: the log starts are made durable; after: the files get the suffix `.deleted`, and are removed
when `file.delete.delay.ms` has passed. A start finishes what a crash left half-way: segments below the log start go in
the next round, `.deleted` files at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from klamm.protocol.errors import KafkaError
from klamm.storage.filesystem import describe
from klamm.storage.log import Log
from klamm.storage.retention import TrustedTime, advance

if TYPE_CHECKING:
    from klamm.broker.partition import Partition
    from klamm.broker.partition_manager import PartitionManager
    from klamm.storage.clock import Clock
    from klamm.storage.log_dir import LogDir

log = logging.getLogger(__name__)

YIELD_EVERY = 100
"""Logs that are looked at before others get their turn on the loop."""


class _Doomed(NamedTuple):
    due: float  # monotonic seconds
    log: Log
    files: list[Path]


class Retention:
    """Verbs: `check` all logs, `drop` what is below the log start of some, `sweep` files whose delay has passed."""

    def __init__(self, partitions: PartitionManager, clock: Clock, disk: Executor | None) -> None:
        self._partitions = partitions
        self._clock = clock
        self._disk = disk
        self._time = TrustedTime(clock)
        self._doomed: deque[_Doomed] = deque()

    def now_ms(self) -> int:
        """The wall clock, as far as it is believed when data is at stake."""
        return self._time.now_ms()

    async def check(self) -> None:
        """Let every log lose what `retention.ms`, `retention.bytes` and its log start say."""
        now_ms = self.now_ms()
        breached = []
        for number, partition in enumerate(list(self._partitions)):
            if number % YIELD_EVERY == YIELD_EVERY - 1:
                await asyncio.sleep(0)
            if _advance(partition, now_ms):
                breached.append(partition)
        if breached:
            await self.drop(breached)

    async def drop(self, partitions: Iterable[Partition]) -> None:
        """Make the log starts of these durable, then let the segments below go. Raises KafkaStorageError."""
        loop = asyncio.get_running_loop()
        known = [partition for partition in partitions if partition.log is not None]
        await self._checkpoint(known)
        for partition in known:
            storage_log = partition.log
            if storage_log is None:
                continue
            removed = storage_log.detach_unreachable()
            if removed:
                try:
                    files = await loop.run_in_executor(self._disk, storage_log.retire, removed)
                except KafkaError as error:  # found again below the log start after the next start
                    log.warning("%s", error.message)
                    continue
                self.doom(storage_log, files)

    async def _checkpoint(self, partitions: Iterable[Partition]) -> None:
        """A partition may move to another log directory meanwhile: then it is that one's checkpoint that counts."""
        places = {partition: self._partitions.directory_of(partition) for partition in partitions}
        while places:
            await asyncio.get_running_loop().run_in_executor(self._disk, _checkpoint, set(places.values()))
            found = {
                partition: self._partitions.directory_of(partition) for partition in places if partition.log is not None
            }
            places = {partition: log_dir for partition, log_dir in found.items() if log_dir is not places[partition]}

    def doom(self, storage_log: Log, files: list[Path]) -> None:
        """Remove these when ``file.delete.delay.ms`` has passed."""
        due = self._clock.monotonic() + storage_log.config.file_delete_delay_ms / 1000
        self._doomed.append(_Doomed(due, storage_log, files))

    async def sweep(self) -> None:
        """Remove the files whose delay has passed."""
        now = self._clock.monotonic()
        due = [doomed for doomed in self._doomed if doomed.due <= now]
        if due:
            self._doomed = deque(doomed for doomed in self._doomed if doomed.due > now)
            await asyncio.get_running_loop().run_in_executor(self._disk, _unlink, due)


def _advance(partition: Partition, now_ms: int) -> bool:
    storage_log = partition.log
    if storage_log is None or storage_log.offline_reason is not None:
        return False
    try:
        return advance(storage_log, now_ms) is not None
    except (KafkaError, OSError) as error:
        log.warning("%s: retention: %s", partition.name, describe(error) if isinstance(error, OSError) else error)
        return False


def _checkpoint(log_dirs: set[LogDir]) -> None:
    for log_dir in log_dirs:
        log_dir.checkpoint()


def _unlink(due: list[_Doomed]) -> None:
    for doomed in due:
        try:
            doomed.log.unlink_files(doomed.files)
        except KafkaError as error:  # the next start tries again
            log.warning("%s", error.message)
