"""One log directory: its lock, identity and checkpoints, and the logs that are open in it.

Its life: `open` takes the lock (before anything is written), checks `meta.properties` and removes the clean-shutdown
marker. `log_loading.py` opens the logs that exist, `log_creation.py` creates logs and `log_deletion.py` deletes them.
`checkpoint` is called from time to time. `close` makes everything durable, and writes the marker if every log closed
well.

A reserve (`reserve.py`) lets deletions work on a full disk: while it is released, nothing is appended or created here.

All of it blocks. `checkpoint` and deletions may run in a thread while the loop appends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import MetaProperties
from klamm.storage.clock import Clock, SystemClock
from klamm.storage.filesystem import (
    Filesystem,
    Lock,
    LockedByUs,
    OsFilesystem,
    describe,
    make_durable_directory,
    replace_file,
    storage_errors,
    unlink_if_exists,
)
from klamm.storage.log.log import Log
from klamm.storage.meta_properties import WrongOwner, ensure_meta_properties
from klamm.storage.offset_checkpoints import OffsetCheckpoints
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.recovery_pool import Progress
from klamm.storage.reserve import Reserve
from klamm.storage.scrub.scrub_state import ScrubState
from klamm.storage.sync_threads import for_each

logger = logging.getLogger(__name__)


class LogDirError(Exception):
    """The directory cannot be used: one line for the operator. Nothing in it was changed."""


class LogDirLocked(LogDirError):
    """Another process uses the directory, or this one does under another name."""


@dataclass(frozen=True, slots=True)
class OfflineLog:
    """A partition that could not be opened."""

    partition: TopicPartition
    topic_id: bytes | None
    reason: str


class LogDir:
    """An open, locked log directory."""

    def __init__(
        self,
        path: Path,
        meta: MetaProperties,
        lock: Lock,
        *,
        marker: bytes | None,
        clock: Clock,
        filesystem: Filesystem,
        quarantine: Path,
        producer_expiration_ms: int,
        reserve_bytes: int,
    ) -> None:
        self.path = path
        self.meta = meta
        self.was_clean = marker is not None
        self.offline_reason: str | None = None
        self.logs: dict[TopicPartition, Log] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.futures: list[tuple[TopicPartition, Path]] = []  # interrupted moves into this directory
        self.rolled: set[Log] = set()  # logs that may have complete segments that are not durable
        self.filesystem = filesystem
        self.clock = clock
        self.offset_checkpoints = OffsetCheckpoints(filesystem, path)
        self.quarantine = quarantine
        self.reserve = Reserve(filesystem, path, reserve_bytes, self._note_room)
        self.recovery = Progress(str(path), clock)
        self.scrub = ScrubState()
        self._lock = lock
        self._marker = marker if marker is not None else checkpoints.format_clean_shutdown(-1)
        self._leaving: set[TopicPartition] = set()
        self._rising: dict[Log, int] = {}  # new log starts: made durable before they change in memory
        self._producer_expiration_ms = producer_expiration_ms

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node_id: int,
        cluster_id: str | None = None,
        clock: Clock | None = None,
        filesystem: Filesystem | None = None,
        quarantine: Path | None = None,
        producer_expiration_ms: int = 86_400_000,
        reserve_bytes: int = 0,
    ) -> LogDir:
        """Create or take over a directory. Raises LogDirLocked or LogDirError.

        Without a `cluster_id`, the one in `meta.properties` is used, or a new one is made. `quarantine` (default: a
        sibling of the directory, with `.cut` appended) takes the bytes that must be cut out of a log after a power cut.
        The reserve for a full disk has `reserve_bytes` (`reserve.py`) once `open_reserve` was called.
        """
        clock = clock if clock is not None else SystemClock()
        filesystem = filesystem if filesystem is not None else OsFilesystem()
        lock = _locked(filesystem, path)
        try:
            meta = ensure_meta_properties(filesystem, path, node_id, cluster_id)
            marker = _take_marker(filesystem, path)
        except OSError as error:
            lock.release()
            raise LogDirError(f"{path}: {describe(error)}") from error
        except WrongOwner as error:
            lock.release()
            raise LogDirError(str(error)) from error
        return cls(
            path,
            meta,
            lock,
            marker=marker,
            clock=clock,
            filesystem=filesystem,
            quarantine=quarantine if quarantine is not None else path.with_name(path.name + ".cut"),
            producer_expiration_ms=producer_expiration_ms,
            reserve_bytes=reserve_bytes,
        )

    @property
    def directory_id(self) -> str:
        """The id of this directory, unique whatever its path."""
        return self.meta.directory_id

    @property
    def producer_expiration_ms(self) -> int:
        """How long logs remember an idle producer; may change while they are open."""
        return self._producer_expiration_ms

    @producer_expiration_ms.setter
    def producer_expiration_ms(self, value: int) -> None:
        self._producer_expiration_ms = value
        for log in list(self.logs.values()):
            log.producers.expiration_ms = value

    # The logs

    def partitions_on_disk(self) -> set[TopicPartition]:
        """Return the partitions that have a directory here, opened or not. Raises LogDirError."""
        try:
            entries = self.filesystem.list_directory(self.path)
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error
        found = (paths.parse_partition_directory(entry.name) for entry in entries if entry.is_directory)
        return {partition for partition in found if partition is not None}

    def take_in(self, partition: TopicPartition, log: Log) -> None:
        """Add a log that is stored here: it was opened, created, or moved from another log directory."""
        log.local.on_sync_failure = self.fail
        log.on_roll = self.rolled.add
        if log.local.unflushed_segments_end is not None:
            self.rolled.add(log)
        log.before_truncate = self._before_truncate
        log.local.no_room = self.reserve.is_lent
        self.logs[partition] = log

    def hand_over(self, partition: TopicPartition) -> None:
        """Give a partition up to another log directory.

        Its files remain here until they are deleted, and after a crash they count: so the checkpoints keep its offsets.
        """
        self._leaving.add(partition)  # first: a concurrent checkpoint finds the partition in one of the two
        del self.logs[partition]

    def let_go(self, partition: TopicPartition, reason: str) -> None:
        """Close a partition; the next `forget_missing` removes it from the checkpoints."""
        if (log := self.logs.pop(partition, None)) is not None:
            log.local.abandon(reason)
        self.offline.pop(partition, None)
        self._leaving.discard(partition)

    def withdraw(self, partition: TopicPartition, reason: str) -> None:
        """Take a loaded partition offline; its files stay as they are."""
        log = self.logs.pop(partition, None)
        if log is not None:
            log.local.abandon(reason)
        self.set_offline(partition, log.topic_id if log is not None else None, reason)

    def set_offline(self, partition: TopicPartition, topic_id: bytes | None, reason: str) -> None:
        """Record that a partition cannot be opened."""
        logger.error("%s: offline: %s", partition, reason)
        self.offline[partition] = OfflineLog(partition, topic_id, reason)

    # Checkpoints

    def checkpoint(self) -> None:
        """Write the recovery points, log starts and high watermarks that changed. Raises KafkaStorageError."""
        with storage_errors(str(self.path)):
            self._flush_below_log_starts()
            self.write_checkpoints()

    def raise_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make these log starts durable; the caller then changes them in memory (`Log.advance_log_start`).

        Uses the reserve on a full disk. Raises NoSpace if even that was too little, or KafkaStorageError; then nothing
        changes.
        """
        with storage_errors(str(self.path)):
            before = {log: offset for log, offset in self._rising.items() if log.log_start_offset < offset}
            wanted = {log: offset for key, offset in offsets.items() if (log := self.logs.get(key)) is not None}
            self._rising = before | {log: max(offset, before.get(log, 0)) for log, offset in wanted.items()}
            try:
                self._flush_below_log_starts()
                self.reserve.lend_to(self.write_checkpoints)
            except (OSError, KafkaStorageError):
                self._rising = before
                raise

    def _flush_below_log_starts(self) -> None:
        """Flush logs up to their log start: after a power cut it would otherwise be above the log end."""
        for log in list(self.logs.values()):
            log_start_offset = max(log.log_start_offset, self._rising.get(log, 0))
            if log_start_offset > log.local.flushed_offset and log.local.offline_reason is None:
                log.local.flush()

    def write_checkpoints(self, lowered: Mapping[TopicPartition, int] | None = None) -> None:
        """Write the checkpoints that changed, with nothing above the offsets in `lowered`. Raises OSError."""
        self.offset_checkpoints.write(self.logs, lambda: self.offline.keys() | self._leaving, lowered, self._rising)

    def cleaner_offset(self, partition: TopicPartition) -> int:
        """Return the offset up to which the log was compacted, 0 when it never was."""
        return self.offset_checkpoints.offset_of(paths.CLEANER_CHECKPOINT, partition)

    def note_cleaned(self, partition: TopicPartition, log: Log, offset: int) -> None:
        """Remember that `log` was compacted up to `offset`. Raises KafkaStorageError."""
        with storage_errors(str(self.path)):
            self.offset_checkpoints.note_cleaned(self.logs, partition, log, offset)

    def _before_truncate(self, log: Log, offset: int) -> None:
        """Lower the checkpoints before a log is cut: none may be above its end."""
        partition = next(key for key, known in self.logs.items() if known is log)
        self._rising.pop(log, None)
        with storage_errors(log.name):
            self.write_checkpoints({partition: offset})

    def forget_missing(self) -> None:
        """Remove partitions that are gone from the checkpoints."""
        self.offset_checkpoints.forget_all_but(lambda: self.logs.keys() | self.offline.keys() | self._leaving)

    # A full disk

    def open_reserve(self) -> None:
        """Open or make the reserve; on a full disk, release it for the start. Raises LogDirError."""
        try:
            self.reserve.open()
            if self.reserve.is_scarce():
                self.reserve.let_go()
        except OSError as error:
            raise LogDirError(f"{self.path}: {describe(error)}") from error

    def _note_room(self) -> None:
        for log in list(self.logs.values()):
            log.local.no_room = self.reserve.is_lent

    # Shutdown and failure

    def fail(self, reason: str) -> None:
        """Take every log of this directory offline after a failed fsync. Nothing is synced again before a restart."""
        self.offline_reason = reason
        logger.error("%s: log directory is offline: %s", self.path, reason)
        for log in list(self.logs.values()):
            if log.local.offline_reason is None:
                log.local.offline_reason = f"log directory: {reason}"

    def leave(self) -> None:
        """Release a directory in which logs were opened but not changed; restore the clean-shutdown marker it had."""
        for log in self.logs.values():
            log.local.abandon("closed")
        try:
            if self.was_clean:
                replace_file(self.filesystem, self.path / paths.CLEAN_SHUTDOWN, self._marker)
        except OSError as error:
            logger.error("%s: the next start checks the logs: %s", self.path, describe(error))
        self._lock.release()

    def close(self, *, clean: bool = True, marked: bool = True, broker_epoch: int = -1) -> bool:
        """Close all logs and release the lock; return whether the close was clean: then the next start checks nothing.

        Without `clean` nothing more is written. Without `marked` everything is flushed, but the next start checks it.
        """
        if clean and self.reserve.is_scarce():
            self.reserve.let_go()
        closed_well = all(for_each(_closed_well if clean else _abandoned, self.logs.values()))
        well = closed_well and clean and marked and self.offline_reason is None and not self.offline
        try:
            if clean and self.offline_reason is None:
                self.reserve.lend_to(self.write_checkpoints)
            if well:
                marker = checkpoints.format_clean_shutdown(broker_epoch)
                replace_file(self.filesystem, self.path / paths.CLEAN_SHUTDOWN, marker)
        except OSError as error:
            logger.error("%s: not a clean close: %s", self.path, describe(error))
            unlink_if_exists(self.filesystem, self.path / paths.CLEAN_SHUTDOWN)
            well = False
        self._lock.release()
        return well


def _locked(filesystem: Filesystem, path: Path) -> Lock:
    """Create the directory if needed, and take its lock. Raises LogDirLocked, LogDirError."""
    try:
        make_durable_directory(filesystem, path)
        return filesystem.lock_file(path / paths.LOCK)
    except LockedByUs as error:
        raise LogDirLocked(f"{path} is the same directory as {error.path.parent}: name it once") from error
    except BlockingIOError as error:
        raise LogDirLocked(f"{path}: another process holds {paths.LOCK}") from error
    except OSError as error:
        raise LogDirError(f"{path}: {describe(error)}") from error


def _take_marker(filesystem: Filesystem, path: Path) -> bytes | None:
    """Remove the clean-shutdown marker; return its content, or None when there was none. Raises OSError."""
    file = path / paths.CLEAN_SHUTDOWN
    if not filesystem.exists(file):
        return None
    marker = filesystem.read_bytes(file)
    filesystem.unlink(file)
    filesystem.sync_directory(path)
    return marker


def _closed_well(log: Log) -> bool:
    """Close a log that is online; return whether all of it is durable."""
    if log.local.offline_reason is not None:
        return _abandoned(log)
    try:
        log.close()
    except KafkaStorageError as error:
        logger.error("%s", error)
        return False
    return True


def _abandoned(log: Log) -> bool:
    log.local.abandon(log.local.offline_reason or "closed")
    return False
