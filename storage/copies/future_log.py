"""The copy of a log that is moving into another log directory while it takes appends, and replaces it in the end.

Steps, each of which may be the last before a crash:
1. `<topic>-<partition>.<uuid>-future` (Kafka's name) is made in the other log directory, with the topic id.
2. `copy_some`, repeatedly: complete segments with their indexes and snapshots, byte for byte, each synced.
3. `open`: copy the next segment, which was the active one, as it is; also the epochs, and the marker `klamm.move`,
   which names the source directory. The directory gets its final name and is opened as a log of its own.
4. `catch_up`: append later batches, one by one.
5. On the loop, in one step: append the rest, then the copy replaces the source (`replace_current_log`).
6. The copy is synced, the source deleted, the marker removed.

Up to step 3 a start finds a `-future` directory and restarts the move. The same holds after a clean stop before step 5,
which renames the copy back (`set_aside`). After a crash later on, a start finds the partition in two directories, one
of them marked. Until step 5 the source has every record of the copy; after it the copy has every record of the source.
So the log that ends later is the right one (`settle`).

Everything blocks, except the last `catch_up` and `replace_current_log`. Meanwhile the source may be appended to,
rolled, flushed, and cut at its start. If its segments are replaced (compaction, truncation), the copy no longer matches
and `is_stale`.
"""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import checkpoints, known_damage, paths
from klamm.storage.filesystem import File, Filesystem, remove_tree, replace_file, storage_errors, unlink_if_exists
from klamm.storage.log.log import Log
from klamm.storage.log.scan import batches
from klamm.storage.log.segment import Segment
from klamm.storage.log.transaction_index import format_list
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.loader import LogSource, open_log

logger = logging.getLogger(__name__)

VERSION = 1
CHUNK_BYTES = 4 << 20
SIDE_SUFFIXES = (paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX, paths.SNAPSHOT_SUFFIX)


class FutureLog:
    """The copy of `source` in `directory`, a `-future` one until `open`."""

    def __init__(self, source: Log, directory: Path, filesystem: Filesystem) -> None:
        self.source = source
        self.directory = directory
        self.log: Log | None = None
        self.copied_bytes = 0
        self.next_offset = -1
        """The end of the complete segments copied, later the end of the copy."""
        self._filesystem = filesystem
        self._copied: list[Segment] = []
        self._segment: Segment | None = None  # the segment that is being copied
        self._from: File | None = None
        self._to: File | None = None
        self._position = 0

    @property
    def lag(self) -> int:
        """Count the records that are not in the copy yet."""
        end = self.log.log_end_offset if self.log is not None else self.next_offset
        return max(0, self.source.log_end_offset - max(end, self.source.log_start_offset))

    @property
    def behind_bytes(self) -> int:
        """Return the bytes that are not in the copy yet; valid once it is open."""
        segment = self._segment
        assert segment is not None
        later = sum(
            each.size_bytes for each in self.source.local.segments.all if each.base_offset > segment.base_offset
        )
        return segment.size_bytes - self._position + later

    @property
    def is_stale(self) -> bool:
        """Whether the source no longer has the segments that were copied."""
        if self.source.local.offline_reason is not None:
            return True
        known = set(map(id, self._copied))
        last = self._copied[-1].base_offset if self._copied else -1
        return any(
            id(segment) not in known for segment in self.source.local.segments.all if segment.base_offset <= last
        )

    # Step 2

    def copy_some(self, max_bytes: int) -> int:
        """Continue the copy; return the bytes copied, 0 when only the active segment is left. Raises OSError."""
        if self._segment is None and not self._begin_segment():
            return 0
        segment = self._segment
        assert segment is not None and self._from is not None and self._to is not None
        size = min(max_bytes, segment.size_bytes - self._position)
        if size:
            self._to.write_at(self._from.read_at(size, self._position), self._position)
            self._position += size
            self.copied_bytes += size
        if self._position == segment.size_bytes:
            self._end_segment(segment)
        return max(size, 1)

    def _begin_segment(self) -> bool:
        segment = self._following()
        if segment is None or segment is self.source.local.segments.all[-1]:
            return False
        self._begin(segment)
        return True

    def _following(self) -> Segment | None:
        """Return the first segment of the source after those that were copied."""
        last = self._copied[-1].base_offset if self._copied else -1
        return next((each for each in self.source.local.segments.all if each.base_offset > last), None)

    def _drop_unreachable(self, following: Segment) -> None:
        """Remove copied segments below the log start: segments after them may be gone, uncopied."""
        for segment, after in pairwise([*self._copied, following]):
            if after.base_offset <= self.source.log_start_offset:
                self._copied.remove(segment)
                for suffix in (*paths.SEGMENT_SUFFIXES, paths.SNAPSHOT_SUFFIX):
                    unlink_if_exists(self._filesystem, paths.offset_file(self.directory, segment.base_offset, suffix))

    def _begin(self, segment: Segment) -> None:
        self._segment, self._position = segment, 0
        self._from = segment.file
        self._to = self._filesystem.open_file(
            paths.offset_file(self.directory, segment.base_offset, paths.LOG_SUFFIX), create=True
        )
        self._to.truncate(0)

    def _end_segment(self, segment: Segment) -> None:
        assert self._to is not None
        self._to.sync()
        for suffix in SIDE_SUFFIXES:
            self._copy_side(segment.base_offset, suffix)
        if segment.transaction_index.count:
            self._write_side(segment.base_offset, paths.TXN_INDEX_SUFFIX, segment.transaction_index.content())
        self._copied.append(segment)
        self._segment = self._from = self._to = None
        self.next_offset = max(
            self.next_offset,
            next(
                (each.base_offset for each in self.source.local.segments.all if each.base_offset > segment.base_offset),
                -1,
            ),
        )

    def _copy_side(self, offset: int, suffix: str) -> None:
        """Copy an index or a snapshot; a missing one is rebuilt when the copy is opened."""
        with suppress(FileNotFoundError):
            content = self._filesystem.read_bytes(paths.offset_file(self.source.local.directory, offset, suffix))
            self._write_side(offset, suffix, content)

    def _write_side(self, offset: int, suffix: str, content: bytes) -> None:
        path = paths.offset_file(self.directory, offset, suffix)
        replace_file(self._filesystem, path, content, sync_directory=False)

    def _list_transaction_indexes(self) -> None:
        """Write the list of transaction indexes of the complete segments, so that a missing one is noticed."""
        aborting = [segment for segment in self._copied if segment.transaction_index.count]
        content = format_list((segment.base_offset, segment.transaction_index) for segment in aborting)
        replace_file(self._filesystem, self.directory / paths.TXN_INDEX_LIST, content, sync_directory=False)

    # Steps 3 to 5

    def open(self, epochs: bytes, source: LogDir, target: LogDir) -> None:
        """Copy the next segment as it is, active or rolled since, and open the copy as a log.

        `epochs` is the content of the leader epoch file. Raises OSError, KafkaStorageError.
        """
        segment = self._following()
        if segment is None:
            raise KafkaStorageError(f"{self.source.name}: its segments were replaced")
        self._drop_unreachable(segment)
        self._begin(segment)
        assert self._from is not None and self._to is not None
        size = segment.size_bytes
        for position in range(0, size, CHUNK_BYTES):
            self._to.write_at(self._from.read_at(min(CHUNK_BYTES, size - position), position), position)
        self._to.sync()
        self._position = size
        self.copied_bytes += size
        self._copy_side(segment.base_offset, paths.SNAPSHOT_SUFFIX)  # its indexes are rebuilt from the batches
        self._list_transaction_indexes()
        self._copied.append(segment)
        replace_file(self._filesystem, self.directory / paths.LEADER_EPOCH_CHECKPOINT, epochs, sync_directory=False)
        replace_file(self._filesystem, self.directory / paths.MOVE_MARKER, format_marker(source.directory_id))
        own = paths.future_partition(self.directory.name)
        assert own is not None
        directory = paths.partition_directory(target.path, own.topic, own.partition)
        if self._filesystem.exists(directory):
            raise KafkaStorageError(f"{directory} already exists")
        self._filesystem.rename(self.directory, directory)
        self.directory = directory
        self._filesystem.sync_directory(target.path)
        self.log = open_log(
            LogSource(
                directory,
                self.source.local.config,
                clock=target.clock,
                filesystem=self._filesystem,
                log_start_offset=self.source.log_start_offset,
                clean=True,
                producer_expiration_ms=target.producer_expiration_ms,
            )
        )

    def catch_up(self, max_bytes: int) -> int:
        """Append the source's later batches to the copy; return the bytes, 0 when there are no more.

        Runs in a thread, or for the last few bytes on the loop. Raises OSError, KafkaStorageError.
        """
        log, segment = self.log, self._segment
        assert log is not None and segment is not None and self._from is not None
        if self._position == segment.size_bytes:
            following = self._following()
            if following is None:
                return 0
            segment = self._segment = following
            self._from, self._position = segment.file, 0
            self._copied.append(segment)
            if segment.size_bytes == 0:
                return 0
        begin = self._position
        for position, header, data in batches(self._from, begin, segment.size_bytes):
            log.append_as_follower(data, header)
            self._position = position + header.size_bytes
            if self._position - begin >= max_bytes:
                break
        self.copied_bytes += self._position - begin
        assert self._position > begin, "a segment has whole batches"
        return self._position - begin

    def replace_current_log(self) -> Log:
        """Complete the copy with state from memory. Runs on the loop, with no await before the copy is served."""
        log, source = self.log, self.source
        assert log is not None and log.log_end_offset == source.log_end_offset, (log, source)
        log.local.configure(source.local.config)
        log.advance_log_start(source.log_start_offset)
        log.topic_id = source.topic_id
        log.producers = source.producers
        log.verifications = source.verifications
        log.high_watermark = source.high_watermark
        log.local.segments.inherit_damage(source.local.segments)
        return log


def format_marker(source_directory_id: str) -> bytes:
    return json.dumps({"version": VERSION, "from": source_directory_id}).encode()


def marked_source(filesystem: Filesystem, directory: Path) -> str | None:
    """Return the id of the log directory that a partition was moving from; None without a readable marker."""
    try:
        fields = json.loads(filesystem.read_bytes(directory / paths.MOVE_MARKER))
        return str(fields["from"]) if fields["version"] == VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_marker(filesystem: Filesystem, directory: Path) -> None:
    """Remove the marker of a move that has ended."""
    if unlink_if_exists(filesystem, directory / paths.MOVE_MARKER):
        filesystem.sync_directory(directory)


# Operations on the two log directories


def begin(source: Log, partition: TopicPartition, target: LogDir) -> FutureLog:
    """Make the directory of a copy of `source`, durably. Raises KafkaStorageError; ValueError for too long a name."""
    if target.offline_reason is not None:
        raise KafkaStorageError(f"{target.path}: offline: {target.offline_reason}")
    filesystem = target.filesystem
    own = paths.partition_directory(target.path, partition.topic, partition.partition)
    directory = paths.future_directory(own, uuid.uuid4())
    with storage_errors(str(directory)):
        filesystem.make_directories(directory)
        if source.topic_id is not None:
            metadata = checkpoints.format_partition_metadata(source.topic_id)
            replace_file(filesystem, directory / paths.PARTITION_METADATA, metadata)
        filesystem.sync_directory(target.path)
    return FutureLog(source, directory, filesystem)


def finish(future_log: FutureLog, partition: TopicPartition, source: LogDir, target: LogDir) -> None:
    """Make the replacement durable, after the copy was synced, and delete the source. Raises KafkaStorageError."""
    log = target.logs.get(partition)
    if log is None or log is not future_log.log:  # the partition was deleted meanwhile
        return
    target.note_cleaned(partition, log, source.cleaner_offset(partition))
    target.checkpoint()
    future_log.source.local.abandon("it is in another log directory now")
    delete_log(source, partition)
    with storage_errors(str(partition)):
        remove_marker(target.filesystem, future_log.directory)
    _note_damage(log, target, source)


def _note_damage(log: Log, *log_dirs: LogDir) -> None:
    """Save the known damage, which has moved with the log. If the disk refuses, it will be found again."""
    if any(segment.damage for segment in log.local.segments.all):
        for log_dir in log_dirs:
            with suppress(OSError):
                known_damage.save(log_dir)


def set_aside(future_log: FutureLog, target: LogDir) -> None:
    """Rename a copy that has not replaced its source, so that the next start restarts the move. KafkaStorageError."""
    if future_log.log is None:
        return
    future_log.log.local.abandon("it does not move now")
    future = paths.future_directory(future_log.directory, uuid.uuid4())
    with storage_errors(str(future_log.directory)):
        target.filesystem.rename(future_log.directory, future)
        target.filesystem.sync_directory(target.path)


def drop(future_log: FutureLog, target: LogDir) -> None:
    """Remove a copy that will not replace its source. Raises KafkaStorageError."""
    if future_log.log is not None:
        future_log.log.local.abandon("it does not move")
    drop_directory(future_log.directory, target)


def drop_directory(directory: Path, target: LogDir) -> None:
    """Remove the directory of a move that has ended without result. Raises KafkaStorageError."""
    partition = paths.future_partition(directory.name) or paths.parse_partition_directory(directory.name)
    assert partition is not None
    own = paths.partition_directory(target.path, partition.topic, partition.partition)
    with storage_errors(str(directory)), suppress(FileNotFoundError):
        renamed = paths.delete_directory(own, uuid.uuid4())
        target.filesystem.rename(directory, renamed)
        target.filesystem.sync_directory(target.path)
        remove_tree(target.filesystem, renamed)


def settle(partition: TopicPartition, log_dirs: list[LogDir]) -> bool:
    """End an interrupted move at a start; return whether one explains that the partition is in several log directories.

    Raises KafkaStorageError.
    """
    if len(log_dirs) != 2 or any(partition not in log_dir.logs for log_dir in log_dirs):
        return False
    for copy, source in (log_dirs, log_dirs[::-1]):
        if marked_source(copy.filesystem, copy.logs[partition].local.directory) == source.directory_id:
            _settle(partition, copy, source)
            return True
    return False


def _settle(partition: TopicPartition, copy: LogDir, source: LogDir) -> None:
    """Keep the log that ends later."""
    logs = copy.logs[partition], source.logs[partition]
    winner, loser = (copy, source) if logs[0].log_end_offset >= logs[1].log_end_offset else (source, copy)
    kept = winner.logs[partition]
    if winner is copy:
        kept.local.segments.inherit_damage(source.logs[partition].local.segments)
    kept.advance_log_start(min(kept.log_end_offset, max(log.log_start_offset for log in logs)))
    kept.local.flush()
    winner.checkpoint()
    delete_log(loser, partition)
    with storage_errors(str(partition)):
        remove_marker(winner.filesystem, kept.local.directory)
    _note_damage(kept, winner, loser)
    logger.info("%s: it was being moved; it is in %s, offsets [%d, %d)", partition, winner.path,
                kept.log_start_offset, kept.log_end_offset)  # fmt: skip
