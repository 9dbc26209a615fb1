"""How much of a log survives a power cut, and the flush that extends it.

Batches below `flushed_offset` survive. Below `recovery_point <= flushed_offset` their indexes survive, too, so a start
checks nothing there. Both advance only after a successful sync. After a failed one the log is offline until it is
recovered from disk: the kernel may have dropped what it could not write, and a second, successful sync would lie.

A flush blocks; it runs in a thread while the loop appends and reads. Code that cuts the log or removes files holds
`lock`. Appends set `directory_unsynced` and `first_unflushed_ms` without the lock, after the change that they mark. A
flush resets them only if it has found them set, before it syncs. So a mark that is set during a flush is kept.
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
"""Errors of opening a file: no sync fails with these."""


class FlushNotTried(KafkaStorageError):
    """Nothing was lost and nothing was made durable: the next flush may succeed."""


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
        self.directory_unsynced = True  # whether names in the directory may not be durable
        self.lock = threading.Lock()

    def cut_at(self, log_end_offset: int) -> None:
        """Lower the offsets to the new log end."""
        self.recovery_point = min(self.recovery_point, log_end_offset)
        self.flushed_offset = min(self.flushed_offset, log_end_offset)

    def unflushed_ms(self, now_ms: int) -> int:
        """Return the age of the oldest batch that may not survive; -1 when none is known."""
        first = self.first_unflushed_ms
        if first is not None and now_ms < first:  # the clock was set back
            first = self.first_unflushed_ms = now_ms
        return now_ms - first if first is not None else -1

    def flush(self, segments: list[Segment], target: int, log_end_offset: Callable[[], int]) -> int:
        """Make the batches below `target` durable; return the offset below which all are. The caller holds the lock.

        Raises FlushNotTried, or KafkaStorageError when a file cannot be opened. An OSError is a failed sync.
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
        if directory_unsynced:  # if it was unset, an append may have set it since: then it is for the next flush
            self.directory_unsynced = False  # before the sync: later changes set it again
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
        """Make a cut of the log durable. The caller holds the lock. Raises OSError."""
        self.directory_unsynced = False
        active.sync()
        self._sync_names()

    def _sync_names(self) -> None:
        self._leader_epochs.sync()
        self._filesystem.sync_directory(self._directory)

    def _take_first_unflushed(self, target: int, log_end_offset: Callable[[], int]) -> int | None:
        """Take the mark, and reset it unless batches above `target` need it. They are not older than the mark."""
        first_unflushed_ms = self.first_unflushed_ms
        if first_unflushed_ms is not None:  # if it was None, an append may have set it since
            self.first_unflushed_ms = None
            if log_end_offset() > target:
                self.first_unflushed_ms = first_unflushed_ms
        return first_unflushed_ms

    def _not_tried(self, directory_unsynced: bool, first_unflushed_ms: int | None) -> None:
        self.directory_unsynced |= directory_unsynced
        if first_unflushed_ms is not None:
            self.first_unflushed_ms = first_unflushed_ms

    def _unsynced_segments(self, segments: list[Segment], target: int) -> list[tuple[Segment, Segment | None]]:
        """Return the segments with offsets in [recovery point, target), each with the segment that follows it.

        A segment that ends at the recovery point is included: it may have been rolled since, with indexes to sync.
        """
        first = max(0, bisect_left([segment.base_offset for segment in segments], self.recovery_point) - 1)
        return [
            (segment, following)
            for segment, following in zip(segments[first:], [*segments[first + 1 :], None], strict=True)
            # A frozen segment was synced before it was compacted, and its file names now belong to another.
            if segment.base_offset < target and not segment.is_frozen
        ]

    def _sync_indexes(self, segment: Segment, following: Segment) -> bool:
        """Make the indexes and the snapshot of a complete segment durable; return False if they cannot be written now.

        Raises OSError when a sync fails.
        """
        try:
            files = segment.write_indexes()
            snapshot = paths.offset_file(self._directory, following.base_offset, paths.SNAPSHOT_SUFFIX)
            if self._filesystem.exists(snapshot):
                files.append(self._filesystem.open_file(snapshot))
        except OSError as error:
            logger.warning(
                "%s: indexes of segment %d not written, the next unclean start rebuilds them: %s",
                self._directory.name, segment.base_offset, describe(error),
            )  # fmt: skip
            self.directory_unsynced = True
            return False
        for file in files:
            file.sync()
        return True
