"""The checkpoint files of a log directory: recovery points, log starts, high watermarks and cleaner offsets.

There is one file for each kind (format: `checkpoints.py`). A file is written as a whole, durably, and only when its
content changes. An unreadable file counts as empty. Several threads may write, one at a time.
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
    """The offset checkpoints of the log directory `path`. Every method that writes raises OSError."""

    __slots__ = ("_filesystem", "_lock", "_path", "_written")

    def __init__(self, filesystem: Filesystem, path: Path) -> None:
        self._filesystem = filesystem
        self._path = path
        self._lock = threading.Lock()
        self._written: dict[str, dict[TopicPartition, int]] = {}

    def read(self) -> bool:
        """Read all files; return False if the recovery points are unreadable, so that everything must be checked."""
        trusted = True
        for name in FILES:
            try:
                self._written[name] = checkpoints.read_offsets(self._filesystem, self._path / name)
            except (CheckpointError, OSError) as error:
                logger.error("%s: %s is unreadable, ignored: %s", self._path, name, error)
                trusted = trusted and name != paths.RECOVERY_POINT_CHECKPOINT
        return trusted

    def offset_of(self, name: str, partition: TopicPartition) -> int:
        """Return the offset of a partition in the file `name`, 0 when it has none."""
        return self._written.get(name, {}).get(partition, 0)

    def __iter__(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Iterate over all entries: the name of the file, the partition, the offset."""
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
        """Write the offsets of `logs`: log starts at least those in `rising`, nothing above those in `lowered`.

        The entries of `others` are kept. `others` is called after `logs` was read: a partition that moves from `logs`
        to `others` meanwhile is not forgotten.
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
                # A log start is never above the durable end: after a power cut the log would end below its start.
                log_start = min(max(log.log_start_offset, rising.get(log, 0)), log.local.flushed_offset, limit)
                if log_start > 0:  # file names imply it, too, but old files may return after a power cut
                    log_starts[key] = log_start
            self._write(paths.LOG_START_CHECKPOINT, log_starts)
            self._write(paths.RECOVERY_POINT_CHECKPOINT, recovery_points)
            self._write(paths.HIGH_WATERMARK_CHECKPOINT, high_watermarks)

    def note_cleaned(
        self, logs: Mapping[TopicPartition, Log], partition: TopicPartition, log: Log, offset: int
    ) -> None:
        """Record that `log` was compacted up to `offset`, if it is still the log of the partition."""
        with self._lock:
            if logs.get(partition) is log:
                known = self._written.get(paths.CLEANER_CHECKPOINT, {})
                self._write(paths.CLEANER_CHECKPOINT, {**known, partition: offset})

    def forget_all_but(self, kept: Callable[[], Collection[TopicPartition]]) -> None:
        """Forget every other partition: a later topic of the same name begins at offset 0."""
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
