"""What of a log survives a power cut, and the flush that makes it more.

Batches below `flushed_offset` survive. Below `recovery_point <= flushed_offset` their indexes do, too, so a start need
not look there. Both move only after a sync that succeeded; after one that failed the log is offline until it is
recovered from disk (what the kernel could not write it may have dropped, and a second sync that succeeds would lie).

A flush blocks and runs in a thread beside appends and reads. What cuts the log, or takes files away, holds `lock`.
Appends set `directory_unsynced` and `first_unflushed_ms` without it, after what they stand for; a flush resets them
only when it has found them set, before it syncs. So a mark that is set between two of its steps stays.
"""

from __future__ import annotations

import errno
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem, describe

if TYPE_CHECKING:
    from klamm.storage.log.leader_epochs import LeaderEpochCache
    from klamm.storage.log.segment import Segment

logger = logging.getLogger(__name__)


NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""No sync fails with these: a file could not be opened for it."""


class FlushNotTried(KafkaStorageError):
    """Nothing was lost, and nothing is known to be durable: the next flush may succeed."""


class Durability:
    """The durable part of one log."""

    __slots__ = (
        "_directory",
        "_filesystem",
        "_leader_epochs",
        "directory_unsynced",
        "first_unflushed_ms",
        "flushed_offset",
        "lock",
        "recovery_point",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: Path,
        leader_epochs: LeaderEpochCache,
        recovery_point: int,
        flushed_offset: int,
        first_unflushed_ms: int | None,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._leader_epochs = leader_epochs
        self.recovery_point = recovery_point
        self.flushed_offset = flushed_offset
        self.first_unflushed_ms = first_unflushed_ms
        self.directory_unsynced = True  # names in the directory may not be durable
        self.lock = threading.Lock()

    def cut_at(self, log_end_offset: int) -> None:
        """The log ends there now."""
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.flushed_offset = min(self.flushed_offset, log_end_offset)

    def unflushed_ms(self, now_ms: int) -> int:
        """For how long the oldest batch that does not survive has been waiting; -1 when none is known to."""
        first = self.first_unflushed_ms
        if first is not None and now_ms < first:  # the clock was set back
            first = self.first_unflushed_ms = now_ms
        return now_ms - first if first is not None else -1

    def flush(self, segments: list[Segment], target: int, log_end_offset: Callable[[], int]) -> int:
        """Make the batches below `target` survive; returns the offset below which all do. The caller holds the lock.

        Raises FlushNotTried, or KafkaStorageError when a file cannot be opened; an OSError is a failed sync.
        """
        name = self._directory.name
        unsynced = self._unsynced_segments(segments, target)
        try:
            files = [segment.file for segment, _ in unsynced]
        except OSError as error:
            kind = FlushNotTried if error.errno in NO_DESCRIPTOR else KafkaStorageError
            raise kind(f"{name}: not flushed now: {describe(error)}") from error
        first_unflushed_ms = self._take_first_unflushed(target, log_end_offset)
        directory_unsynced = self.directory_unsynced
        if directory_unsynced:  # else it may be set by now: what set it is for the next flush
            self.directory_unsynced = False  # before the directory is synced: changes since then set it again
        checked = target
        try:
            for file, (segment, following) in zip(files, unsynced, strict=True):
                file.sync()
                if following is not None and not self._sync_indexes(segment, following):
                    checked = min(checked, segment.base_offset)
            if directory_unsynced:
                self._sync_names()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                self._not_tried(directory_unsynced, first_unflushed_ms)
                raise FlushNotTried(f"{name}: not flushed now: {describe(error)}") from error
            raise
        self.recovery_point = max(self.recovery_point, checked)
        self.flushed_offset = max(self.flushed_offset, target)
        return self.flushed_offset

    def sync_truncation(self, active: Segment) -> None:
        """Make a cut of the log durable. The caller holds the lock. OSError."""
        self.directory_unsynced = False
        active.sync()
        self._sync_names()

    def _sync_names(self) -> None:
        self._leader_epochs.sync()
        self._filesystem.sync_directory(self._directory)

    def _take_first_unflushed(self, target: int, log_end_offset: Callable[[], int]) -> int | None:
        """The mark, which is reset unless batches above `target` need it. They are not younger than it."""
        first_unflushed_ms = self.first_unflushed_ms
        if first_unflushed_ms is not None:  # else an append may have set it by now
            self.first_unflushed_ms = None
            if log_end_offset() > target:
                self.first_unflushed_ms = first_unflushed_ms
        return first_unflushed_ms

    def _not_tried(self, directory_unsynced: bool, first_unflushed_ms: int | None) -> None:
        self.directory_unsynced |= directory_unsynced
        if first_unflushed_ms is not None:
            self.first_unflushed_ms = first_unflushed_ms

    def _unsynced_segments(self, segments: list[Segment], target: int) -> list[tuple[Segment, Segment | None]]:
        """The segments with offsets in [recovery point, target), each with the one that follows it.

        One that ends at the recovery point may have been rolled since the last flush, with indexes to sync.
        """
        first = max(0, bisect_left([segment.base_offset for segment in segments], self.recovery_point) - 1)
        return [
            (segment, following)
            for segment, following in zip(segments[first:], [*segments[first + 1 :], None], strict=True)
            # A frozen one was synced before it was compacted, and its names are another's now.
            if segment.base_offset < target and not segment.is_frozen
        ]

    def _sync_indexes(self, segment: Segment, following: Segment) -> bool:
        """Make indexes and snapshot of a complete segment durable; False when they cannot be written now.

        An OSError is a failed sync.
        """
        try:
            files = segment.write_indexes()
            snapshot = paths.offset_file(self._directory, following.base_offset, paths.SNAPSHOT_SUFFIX)
            if self._filesystem.exists(snapshot):
                files.append(self._filesystem.open_file(snapshot))
        except OSError as error:
            logger.warning(
                "%s: indexes of segment %d not written, the next unclean start makes them anew: %s",
                self._directory.name, segment.base_offset, describe(error),
            )  # fmt: skip
            self.directory_unsynced = True
            return False
        for file in files:
            file.sync()
        return True
