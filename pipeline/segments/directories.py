"""The partitions in log directories, and their offsets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from klamm.pipeline.errors import BadOption, DataLoss, UnknownTopic
from klamm.pipeline.ranges import NO_TOPIC_ID, OffsetRange, TopicPartition
from klamm.pipeline.segments.ends import log_end_offset, open_transactions
from klamm.pipeline.segments.files import Segment, segments
from klamm.pipeline.segments.pieces import PIECE_BYTES, Piece, cut
from klamm.pipeline.segments.retries import refusals_named, retried
from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError, parse_offsets, parse_partition_metadata

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class LogDirs:
    """Log directories of one broker: each partition is in one of them. May be pickled.

    Directories in deletion (`-delete`), in a move (`-future`) or without an owner (`-stray`) are skipped, and internal
    topics too unless asked for.
    """

    def __init__(self, directories: Iterable[str | os.PathLike[str]]) -> None:
        """Check the directories. Raises BadOption for a path that is not a directory."""
        self.directories = tuple(Path(directory).absolute() for directory in directories)
        self._read: dict[Path, tuple[tuple[int, int, int], Mapping[paths.TopicPartition, int]]] = {}
        if not self.directories:
            raise BadOption("logDirs names no directory")
        for directory in self.directories:
            if not directory.is_dir():
                raise BadOption(f"logDirs: {directory} is not a directory")

    def topics(self, *, internal: bool = False) -> dict[str, list[int]]:
        """Return partition numbers by topic, both sorted. Raises BadOption if a partition is in two directories."""
        found: dict[str, list[int]] = {}
        with refusals_named("logDirs"):
            partitions = sorted(self._partitions())
        for partition in partitions:
            if internal or partition.topic not in INTERNAL_TOPICS:
                found.setdefault(partition.topic, []).append(partition.partition)
        return found

    def directory(self, partition: TopicPartition) -> Path:
        """Return the directory of a partition. Raises UnknownTopic."""
        for log_dir in self.directories:
            directory = paths.partition_directory(log_dir, partition.topic, partition.partition)
            if directory.is_dir():
                return directory
        where = ", ".join(map(str, self.directories))
        raise UnknownTopic(f"{partition}: no such partition in {where}")

    def topic_id(self, partition: TopicPartition) -> bytes:
        """Return the topic id, or zero if the directory has none."""
        with refusals_named(str(partition)):
            try:
                return parse_partition_metadata((self.directory(partition) / paths.PARTITION_METADATA).read_bytes())
            except (FileNotFoundError, CheckpointError):
                return NO_TOPIC_ID

    def start_offset(self, partition: TopicPartition) -> int:
        """Return the log start offset: the last checkpointed one, at least the start of the first segment."""
        listed = retried(lambda: self.segments(partition), str(partition))
        first = listed[0].base_offset if listed else 0
        return max(first, self._checkpointed(paths.LOG_START_CHECKPOINT, partition) or 0)

    def end_offset(self, partition: TopicPartition, *, read_committed: bool = True) -> int:
        """Return the end of a log that no broker uses: after the last whole, valid batch, or the last stable offset.

        After a clean shutdown the high watermark is known, and nothing above it counts.
        """

        def found() -> int:
            listed = self.segments(partition)
            end = log_end_offset(listed)
            if (self.directory(partition).parent / paths.CLEAN_SHUTDOWN).exists():
                high_watermark = self.high_watermark(partition)
                end = end if high_watermark is None else min(end, high_watermark)
            return min(open_transactions(listed, end).values(), default=end) if read_committed else end

        return retried(found, str(partition))

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the last checkpointed high watermark; None without a checkpoint."""
        return self._checkpointed(paths.HIGH_WATERMARK_CHECKPOINT, partition)

    def plan(self, wanted: OffsetRange, piece_bytes: int = PIECE_BYTES) -> list[Piece]:
        """Cut the range into pieces of about this size, in order and without gaps. Raises DataLoss, UnknownTopic."""
        if not wanted.count:
            return []

        def found() -> list[Piece]:
            listed = self.segments(wanted.topic_partition)
            if not listed or listed[0].base_offset > wanted.start:
                start = listed[0].base_offset if listed else "nowhere"
                raise DataLoss(f"{wanted.topic_partition}: offset {wanted.start} is gone, the log starts at {start}")
            return cut(tuple(map(str, self.directories)), wanted, listed, piece_bytes)

        return retried(found, str(wanted))

    def segments(self, partition: TopicPartition) -> list[Segment]:
        """Return the current segments. Raises Vanished, UnknownTopic."""
        return segments(self.directory(partition))

    def _partitions(self) -> set[TopicPartition]:
        found: dict[TopicPartition, Path] = {}
        for log_dir in self.directories:
            for name in os.listdir(log_dir):
                parsed = paths.parse_partition_directory(name)
                if parsed is None or name == paths.METADATA_LOG_DIRECTORY or not (log_dir / name).is_dir():
                    continue
                partition = TopicPartition(parsed.topic, parsed.partition)
                other = found.setdefault(partition, log_dir)
                if other != log_dir:
                    raise BadOption(f"logDirs: {partition} is in {other} and in {log_dir}: give one broker's only")
        return set(found)

    def _checkpointed(self, name: str, partition: TopicPartition) -> int | None:
        with refusals_named(str(partition)):
            path = self.directory(partition).parent / name
            offsets = self._offsets(path)
        return offsets.get(paths.TopicPartition(partition.topic, partition.partition))

    def _offsets(self, path: Path) -> Mapping[paths.TopicPartition, int]:
        """Return the content of a checkpoint; read it again when it was replaced. Return nothing if there is none."""
        try:
            with path.open("rb") as file:
                state = os.fstat(file.fileno())
                version = state.st_ino, state.st_mtime_ns, state.st_size
                known = self._read.get(path)
                if known is None or known[0] != version:
                    content = file.read()
                    known = self._read[path] = version, parse_offsets(content) if content else {}
        except FileNotFoundError:
            return {}
        except CheckpointError as error:
            raise BadOption(f"logDirs: {path}: {error}") from None
        return known[1]
