"""One segment of a log: a `.log` file of whole batches, and its indexes.

The file is named after its base offset; the offsets of its batches ascend from there, to at most 2^31 - 1 above it. A
segment is written at its end only. An append that fails half-way is cut back at once, so `size_bytes` always counts
whole batches. Recovery (`recovery/loader.py`) handles the remains of a crash. `segment_files.py` has the operations on
the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import BatchHeader
from klamm.storage.filesystem import Buffer, Filesystem
from klamm.storage.log.index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.results import DamagedRange
from klamm.storage.log.scan import batch_headers, find_offset
from klamm.storage.log.segment_files import SegmentFiles

logger = logging.getLogger(__name__)

KNOWN_READS = 64  # by readers at different positions


class Segment(SegmentFiles):
    """Batches with offsets from `base_offset` on."""

    __slots__ = (
        "_index_interval_bytes",
        "_index_rebuilt",
        "_max_offset_entries",
        "_max_time_entries",
        "_next_offsets",
        "_next_reads",
        "_unindexed_bytes",
        "created_ms",
        "damage",
        "first_timestamp",
        "largest_timestamp",
        "last_batch_offset",
        "last_batch_position",
        "offset_of_largest",
        "roll_jitter_ms",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        segment_index_bytes: int,
        created_ms: int,
        roll_jitter_ms: int = 0,
        size_bytes: int = 0,
        suffix: str = "",
        preallocate_bytes: int = 0,
    ) -> None:
        super().__init__(
            filesystem,
            directory,
            base_offset,
            size_bytes=size_bytes,
            suffix=suffix,
            preallocate_bytes=preallocate_bytes,
        )
        self.set_index_limits(index_interval_bytes, segment_index_bytes)
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.first_timestamp: int | None = None  # None: not known yet; -1: the first batch has none
        self.largest_timestamp: int | None = NO_TIMESTAMP if size_bytes == 0 else None  # None: not loaded
        self.offset_of_largest = base_offset
        self.last_batch_offset = -1
        self.last_batch_position = -1
        self._unindexed_bytes = 0
        self._index_rebuilt = False
        self.damage: tuple[DamagedRange, ...] = ()  # findings of the scrubber, in order
        self._next_reads: dict[int, tuple[int, BatchHeader]] = {}  # by the offset that a reader will ask for next
        self._next_offsets: dict[int, int] = {}  # by the position where a read was cut

    def set_index_limits(self, index_interval_bytes: int, segment_index_bytes: int) -> None:
        self._index_interval_bytes = index_interval_bytes
        self._max_offset_entries = segment_index_bytes // OFFSET_ENTRY.size
        self._max_time_entries = segment_index_bytes // TIME_ENTRY.size - 1  # one slot is kept for the roll

    def open_existing(self, size_bytes: int) -> None:
        """Open the files of a closed segment, complete and with good indexes."""
        self.size_bytes = size_bytes
        self.largest_timestamp = None
        self.offset_index.open_existing(self._filesystem.open_read(self.offset_index.path).size())
        self.time_index.open_existing(self._filesystem.open_read(self.time_index.path).size())
        if self._filesystem.exists(self.transaction_index.path):
            self.transaction_index.open_existing(self._filesystem.open_read(self.transaction_index.path).size())

    def has_room_for(self, size_bytes: int, last_offset: int, timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """Return whether a batch fits: there is room, and the segment is not too old.

        Age is measured in record time when its first batch has a timestamp. An empty segment takes any batch with
        offsets in reach.
        """
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if self.size_bytes == 0:
            return True
        if (
            self.size_bytes + size_bytes > config.segment_bytes
            or self.offset_index.count >= self._max_offset_entries
            or self.time_index.count >= self._max_time_entries
        ):
            return False
        first = self.first_timestamp
        if first is None:
            first = self.load_first_timestamp()
        in_record_time = first != NO_TIMESTAMP and timestamp != NO_TIMESTAMP
        age_ms = timestamp - first if in_record_time else now_ms - self.created_ms
        return age_ms <= config.segment_ms - self.roll_jitter_ms

    def append_batch(self, data: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; OSError leaves the segment as it was."""
        position = self.size_bytes
        try:
            (self._file or self.file).write_at(data, position)
        except OSError:
            self._cut_back(position)
            raise
        if max_timestamp > self.largest_timestamp:  # type: ignore[operator]  # loaded before the first append
            self.largest_timestamp = max_timestamp
            self.offset_of_largest = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed_bytes > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.largest_timestamp, self.offset_of_largest)  # type: ignore[arg-type]
            self._unindexed_bytes = 0
        self._unindexed_bytes += size
        self.size_bytes = position + size
        self.last_batch_offset = base_offset
        self.last_batch_position = position

    def find_batch(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Return position and header of the first batch with a last offset of at least `offset`.

        Raises CorruptMessage if this place is known to be damaged, or is found to be: later batches must not hide it.
        """
        if self.damage:
            return self._find_around_damage(offset)
        if (known := self._next_reads.get(offset)) is not None:
            return known
        at_the_end = offset >= self.last_batch_offset >= 0
        start = self.last_batch_position if at_the_end else max(0, self.offset_index.lookup(offset))
        found = find_offset(self.file, start, self.size_bytes, offset)
        doubtful = not at_the_end and start > 0 and (found is None or found[0] == start)
        if doubtful and not self._index_rebuilt and self._lies(start, offset):
            logger.warning(
                "%s: index does not fit, rebuilding it: offset=%d position=%d", self._log_path, offset, start
            )
            self.rebuild_indexes()
            self._index_rebuilt = True
            return self.find_batch(offset)
        if found is None and (whole := self._whole_until(start)) < self.size_bytes:
            raise CorruptMessage(f"{self._log_path}: no whole batch at position {whole}, looked for offset {offset}")
        if found is not None and at_the_end:
            self._note_read(offset, found)  # all readers that wait for it will ask for this offset
        return found

    def _whole_until(self, position: int) -> int:
        """Return the end of the whole batches from `position` on."""
        for at, header in batch_headers(self.file, position, self.size_bytes):
            position = at + header.size_bytes
        return position

    def _find_around_damage(self, offset: int) -> tuple[int, BatchHeader] | None:
        start = max(0, self.offset_index.lookup(offset))
        for damage in self.damage:
            if damage.next_offset <= offset:
                start = max(start, damage.end_position)
        end = self.good_end(start)
        found = find_offset(self.file, start, end, offset)
        if found is None and end < self.size_bytes:
            raise CorruptMessage(f"{self._log_path}: offset {offset} is in a damaged part, or after one")
        return found

    def good_end(self, position: int) -> int:
        """Return the start of the first known damage that ends after `position`, or the end of the segment."""
        return min(
            (damage.position for damage in self.damage if damage.end_position > position), default=self.size_bytes
        )

    def _lies(self, position: int, offset: int) -> bool:
        """Return whether the index entry found for `offset` is wrong: a right one is never after the offset.

        Compaction may have removed all batches at or above `offset`; then the entry is right.
        """
        header = next(self.batch_headers(position), None)
        if header is None:
            return True
        # Before 0.11 Kafka indexed the first offset of an append.
        return header[1].last_offset > offset and header[1].magic == 2

    def next_offset_at(self, start: int, stop: int) -> int:
        """Return the offset after the last whole batch in [start, stop), -1 if none is; `start` begins a batch."""
        next_offset = -1
        for _, header in batch_headers(self.file, max(start, self.offset_index.floor_of_position(stop)), stop):
            next_offset = header.last_offset + 1
        if next_offset < 0 and start < stop:  # the indexed batch itself is cut
            for _, header in batch_headers(self.file, start, stop):
                next_offset = header.last_offset + 1
        return next_offset

    def offset_behind(self, start: int, stop: int) -> int:
        """Return `next_offset_at`; or, if the index has the batch cut at `stop`, its base offset, with one read."""
        if (known := self._next_offsets.get(stop)) is not None:
            return known
        indexed = self.offset_index.floor_of_position(stop)
        if indexed <= start:
            return self.next_offset_at(start, stop)
        next_offset = -1
        for _, header in self.batch_headers(indexed):
            if header.size_bytes > stop - indexed:
                next_offset = header.base_offset if next_offset < 0 else next_offset
                self._note_read(next_offset, (indexed, header))
                self._next_offsets[stop] = next_offset
                break
            indexed += header.size_bytes
            next_offset = header.last_offset + 1
        return next_offset

    def _note_read(self, offset: int, found: tuple[int, BatchHeader]) -> None:
        """Remember where the batch of an offset is that will be asked for; call this before a cut is recorded."""
        if max(len(self._next_reads), len(self._next_offsets)) >= KNOWN_READS:
            self.forget_reads()
        self._next_reads[offset] = found

    def forget_reads(self) -> None:
        """Forget the next reads: the next offset of every reader is looked up again."""
        self._next_reads.clear()
        self._next_offsets.clear()

    def batch_headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return batch_headers(self.file, position, self.size_bytes)

    def last_batch_headers(self, index_entries: int) -> Iterator[tuple[int, BatchHeader]]:
        """Return position and header of the last batches, as far back as that many entries of the offset index."""
        index = self.offset_index
        return self.batch_headers(index.entry(index.count - index_entries)[1] if index.count > index_entries else 0)

    def position_of(self, offset: int) -> int:
        """Return the position of a batch at or before the one that holds `offset`."""
        return self.offset_index.lookup(offset) if offset > self.base_offset else 0

    def position_of_timestamp(self, timestamp: int) -> int:
        """Return the position of a batch at or before the first one with a timestamp at or after `timestamp`."""
        _, offset = self.time_index.lookup(timestamp)
        return self.offset_index.lookup(offset)

    def load_largest_timestamp(self) -> int:
        """Return the largest timestamp: that of the last time index entry, made when the segment was closed."""
        if self.largest_timestamp is None:
            self.largest_timestamp, self.offset_of_largest = self.time_index.last()
        return self.largest_timestamp

    def _search_largest_timestamp(self) -> None:
        """Find the largest timestamp from the last time index entry and the batches after it."""
        timestamp, offset = self.time_index.last()
        for _, header in self.batch_headers(self.offset_index.lookup(offset)):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self.largest_timestamp, self.offset_of_largest = timestamp, offset

    def load_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, -1 when there is none."""
        if self.first_timestamp is None:
            found = next(self.batch_headers(), None)
            if found is None:
                return NO_TIMESTAMP
            self.first_timestamp = found[1].max_timestamp
        return self.first_timestamp

    def load_end(self) -> int:
        """Find the end of a cleanly closed segment from its last index entry; return the offset after its last batch.

        Raises ValueError when index and file do not belong together.
        """
        start = self.offset_index.entry(self.offset_index.count - 1)[1] if self.offset_index.count else 0
        next_offset = self.base_offset
        position = start
        for at, header in self.batch_headers(start):
            next_offset = header.last_offset + 1
            position = at + header.size_bytes
            self.last_batch_offset, self.last_batch_position = header.base_offset, at
        if position != self.size_bytes:
            raise ValueError(f"{self._log_path}: batches end at {position} of {self.size_bytes} bytes")
        self._unindexed_bytes = self.size_bytes - start
        return next_offset

    def indexes_are_sane(self, end_offset: int) -> bool:
        """Return whether the last entries point into the segment; `end_offset` is where it ends."""
        if self.offset_index.count:
            offset, position = self.offset_index.entry(self.offset_index.count - 1)
            if not (self.base_offset <= offset < end_offset and 0 <= position < self.size_bytes):
                return False
        if self.time_index.count:
            timestamp, offset = self.time_index.last()
            if not (self.base_offset <= offset < end_offset and timestamp >= 0):
                return False
        elif self.size_bytes:  # a closed segment has a time index entry if it has timestamps
            return self.load_first_timestamp() == NO_TIMESTAMP
        return True

    def become_inactive(self) -> None:
        """Complete the time index; nothing is appended after this."""
        if self.size_bytes:
            self.time_index.maybe_append(self.load_largest_timestamp(), self.offset_of_largest)

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds `offset` and all later ones; return the bytes cut."""
        found = self.find_batch(offset)
        if found is None:
            self.load_largest_timestamp()  # it may become the active segment
            return 0
        position, header = found
        cut = self.size_bytes - position
        self.file.truncate(position)
        self.is_preallocated = False
        self.size_bytes = position
        self.forget_reads()
        self.damage = tuple(damage for damage in self.damage if damage.end_position <= position)
        self.offset_index.truncate(header.base_offset)
        self.time_index.truncate(header.base_offset)
        self.transaction_index.truncate(header.base_offset)
        self.last_batch_offset = self.last_batch_position = -1
        if position == 0:
            self.first_timestamp = None
        if header.magic < 2:  # entries that an old Kafka wrote may point into the part that is cut
            self.rebuild_indexes()
        self.load_end()
        self._search_largest_timestamp()
        return cut

    def rebuild_indexes(self) -> None:
        """Rebuild offset and time index from the batches, which are known to be good."""
        self.forget_reads()
        self.offset_index.clear()
        self.time_index.clear()
        self.reset_accounting()
        for position, header in self.batch_headers():
            self.account_batch(position, header)

    def reset_accounting(self) -> None:
        self.largest_timestamp, self.offset_of_largest = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = None
        self.last_batch_offset = self.last_batch_position = -1
        self._unindexed_bytes = 0

    def account_batch(self, position: int, header: BatchHeader) -> None:
        """Account for a batch that is already in the file, as `append_batch` does for a new one."""
        if header.max_timestamp > self.largest_timestamp:  # type: ignore[operator]
            self.largest_timestamp, self.offset_of_largest = header.max_timestamp, header.last_offset
        if position == 0:
            self.first_timestamp = header.max_timestamp
        if (
            self._unindexed_bytes > self._index_interval_bytes
            and header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        ):
            self.offset_index.append(header.last_offset, position)
            self.time_index.maybe_append(self.largest_timestamp, self.offset_of_largest)  # type: ignore[arg-type]
            self._unindexed_bytes = 0
        self._unindexed_bytes += header.size_bytes
        self.last_batch_offset, self.last_batch_position = header.base_offset, position

    def __repr__(self) -> str:
        return f"Segment({self.directory.name}, base_offset={self.base_offset}, size_bytes={self.size_bytes})"
