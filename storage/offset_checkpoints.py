"""What a log directory has written down of its partitions: recovery points, log starts, high watermarks, and up to
where each was compacted; a file for each kind (format: `checkpoints.py`).

A file is written as a whole, durably, and only when something in it changes. One that cannot be read is as if it were
empty. Writers may be in several threads, one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.log import Log
from klamm.storage.paths import TopicPartition

logger = logging.getLogger(__name__)

FILES = (
    paths.RECOVERY_POINT_CHECKPOINT,
    paths.LOG_START_CHECKPOINT,
    paths.HIGH_WATERMARK_CHECKPOINT,
    paths.CLEANER_CHECKPOINT,
)


class OffsetCheckpoints:
    """Of the log directory `path`. All that write raise OSError."""

    __slots__ = ("_filesystem", "_lock", "_path", "_written")

    def __init__(self, filesystem: Filesystem, path: Path) -> None:
        self._filesystem = filesystem
        self._path = path
        self._lock = threading.Lock()
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def read(self) -> bool:
        """False when the recovery points are not to be trusted and everything must be checked."""
        trusted = True
        for name in FILES:
            try:
                self._written[name] = checkpoints.read_offsets(self._filesystem, self._path / name)
            except (CheckpointError, OSError) as error:
                logger.error("%s: %s is unreadable, going on without: %s", self._path, name, error)
                trusted = trusted and name != paths.RECOVERY_POINT_CHECKPOINT
        return trusted

    def offset_of(self, name: str, partition: TopicPartition) -> int:
        """0 when nothing is known."""
        return self._written.get(name, {}).get(partition, 0)

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """All that is known: the name of the file, the partition, the offset."""
        for name, offsets in self._written.items():
            for partition, offset in offsets.items():
                yield name, partition, offset

    def write(
        self,
        logs: Mapping[TopicPartition, Log],
        others: Callable[[], Collection[TopicPartition]],
        lowered: Mapping[TopicPartition, int] | None = None,
        rising: Mapping[Log, int] | None = None,
    ) -> None:
        """Write what the logs say, but no log start below the offsets in `rising`, and nothing above those in
        `lowered`; of the `others` all stays known.

        Those are asked for after the logs were looked at: a partition that becomes one meanwhile is not forgotten.
        """
        lowered, rising = lowered or {}, rising or {}
        with self._lock:
            current, kept = list(logs.items()), others()
            recovery_points = self._of_these(paths.RECOVERY_POINT_CHECKPOINT, kept)
            log_starts = self._of_these(paths.LOG_START_CHECKPOINT, kept)
            high_watermarks = self._of_these(paths.HIGH_WATERMARK_CHECKPOINT, kept)
            for key, log in current:
                limit = lowered.get(key, log.log_end_offset)
                recovery_points[key] = min(log.local.recovery_point, limit)
                high_watermarks[key] = min(log.high_watermark, limit)
                # Not above what is durable: after a power cut the log would end below its start.
                log_start = min(max(log.log_start_offset, rising.get(log, 0)), log.local.flushed_offset, limit)
                if log_start > 0:  # names of files tell it, too, but they may come back after a power cut
                    log_starts[key] = log_start
            self._write(paths.LOG_START_CHECKPOINT, log_starts)
            self._write(paths.RECOVERY_POINT_CHECKPOINT, recovery_points)
            self._write(paths.HIGH_WATERMARK_CHECKPOINT, high_watermarks)

    def note_cleaned(
        self, logs: Mapping[TopicPartition, Log], partition: TopicPartition, log: Log, offset: int
    ) -> None:
        """It was compacted up to there, if it is still that log."""
        with self._lock:
            if logs.get(partition) is log:
                known = self._written.get(paths.CLEANER_CHECKPOINT, {})
                self._write(paths.CLEANER_CHECKPOINT, {**known, partition: offset})

    def forget_all_but(self, kept: Callable[[], Collection[TopicPartition]]) -> None:
        """A topic of the same name as one that is gone begins at 0."""
        with self._lock:
            partitions = kept()
            for name in list(self._written):
                self._write(name, self._of_these(name, partitions))

    def _of_these(self, name: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {key: offset for key, offset in self._written.get(name, {}).items() if key in partitions}

    def _write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        if self._written.get(name) != offsets:
            checkpoints.write_offsets(self._filesystem, self._path / name, offsets)
            self._written[name] = offsets
