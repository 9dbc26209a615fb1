"""Find records by timestamp: the only place where a log decodes records, and then only those of a batch or two.

Timestamps need not ascend, so the result is the first match in offset order. The time indexes tell where to begin: no
earlier batch reaches the timestamp. The offset indexes tell where the log start is: nothing below it is read.

A search may still read long stretches of a cold disk, or a batch that inflates to a hundred megabytes. So it is made on
the thread of the appends, and run in another one.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

from klamm.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    KafkaStorageError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from klamm.protocol.records.batch import UNKNOWN_COUNT, BatchHeader, records
from klamm.storage.filesystem import describe
from klamm.storage.log.index import NO_TIMESTAMP
from klamm.storage.log.results import TimestampOffset
from klamm.storage.log.scan import batch_headers
from klamm.storage.log.segment import Segment
from klamm.storage.log.segment_list import SegmentList

DECOMPRESS_LIMIT = 100 << 20
"""The minimum of the limit to which a batch is inflated."""


class Search:
    """A search for one record in the current segments.

    It finds the first record, from the log start on, with a timestamp at or after `timestamp`; or, with None, the first
    with the largest timestamp. Only the newest segment changes during the search, so its state in memory is read now. A
    segment that has left the log meanwhile counts as empty, since its files may be gone.
    """

    __slots__ = (
        "_active",
        "_largest",
        "_limit",
        "_log_start",
        "_name",
        "_range",
        "_segments",
        "_served",
        "_timestamp",
    )

    def __init__(
        self,
        name: str,
        served: SegmentList,
        log_start_offset: int,
        timestamp: int | None,
        max_decompressed_bytes: int,
    ) -> None:
        segments = served.all
        first = max(0, bisect_right(segments, log_start_offset, key=lambda segment: segment.base_offset) - 1)
        self._name = name
        self._segments = segments[first:]
        self._log_start = log_start_offset
        self._timestamp = timestamp
        self._served = served
        self._limit = max(DECOMPRESS_LIMIT, max_decompressed_bytes)
        active = self._active = segments[-1]
        self._largest = active.load_largest_timestamp()
        wanted = self._largest if timestamp is None else timestamp
        self._range = (active.position_of(log_start_offset), active.position_of_timestamp(wanted), active.size_bytes)

    def run(self) -> TimestampOffset | None:
        """Return the record found; None when none matches.

        Raises KafkaStorageError, CorruptMessage for a damaged batch, or UnsupportedForMessageFormat when nothing is
        found in a log that ends with messages of format 0, which has no timestamps.
        """
        try:
            found = self._find()
            if found is None and self._ends_without_timestamps():
                raise UnsupportedForMessageFormat(f"{self._name}: messages of format 0 have no timestamps")
            return found
        except OSError as error:
            raise KafkaStorageError(f"{self._name}: {describe(error)}") from error
        except (InvalidRecord, UnsupportedCompressionType) as error:
            raise CorruptMessage(f"{self._name}: a stored batch is damaged: {error.message}") from error
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise KafkaStorageError(f"{self._name}: an index or a batch is damaged: {error}") from error

    def _find(self) -> TimestampOffset | None:
        if self._timestamp is not None:
            return self._first(self._timestamp)
        timestamp = max(self._largest_of(segment) for segment in self._segments)
        if timestamp == NO_TIMESTAMP:
            return None
        return self._first(timestamp) or self._first_of_largest()

    def _ends_without_timestamps(self) -> bool:
        for segment in reversed(self._segments):
            if segment.size_bytes:
                try:
                    return [header.magic for _, header in segment.last_batch_headers(1)][-1:] == [0]
                except FileNotFoundError:
                    if segment in self._served.all:
                        raise
        return False

    def _first(self, timestamp: int) -> TimestampOffset | None:
        for segment in self._segments:
            if self._largest_of(segment) < timestamp:
                continue
            for position, header in self._heads(segment, timestamp):
                if header.max_timestamp < timestamp:
                    continue
                for found in self._records(segment, position, header):
                    if found.timestamp >= timestamp:
                        return found
        return None

    def _first_of_largest(self) -> TimestampOffset | None:
        """Find the largest timestamp when the record of the indexes is below the log start, or compacted away.

        This is slower: it walks the headers of the segments that may hold the result, and decodes two batches of each.
        """
        best: TimestampOffset | None = None
        for segment in sorted(self._segments, key=self._largest_of, reverse=True):
            if best is not None and self._largest_of(segment) < best.timestamp:
                break
            found = self._largest_in(segment)
            if found is not None and (best is None or _rank(found) > _rank(best)):
                best = found
        return best

    def _largest_in(self, segment: Segment) -> TimestampOffset | None:
        best: TimestampOffset | None = None  # within the batch that holds the log start
        largest, place = NO_TIMESTAMP, None  # of the later batches
        for position, header in self._heads(segment, None):
            if header.base_offset < self._log_start or (
                header.record_count == UNKNOWN_COUNT and best is None and place is None
            ):
                best = max(self._records(segment, position, header), key=_rank, default=None)
            elif header.max_timestamp > largest:
                largest, place = header.max_timestamp, (position, header)
        if place is not None and (best is None or largest > best.timestamp):
            best = max(self._records(segment, *place), key=_rank, default=best)
        return best if best is not None and best.timestamp > NO_TIMESTAMP else None

    def _heads(self, segment: Segment, timestamp: int | None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of the batches above the log start that may hold the timestamp; None: of all."""
        try:
            if segment is self._active:
                start, timestamp_start, end = self._range
            else:
                start, timestamp_start, end = segment.position_of(self._log_start), 0, segment.size_bytes
                if timestamp is not None:
                    timestamp_start = segment.position_of_timestamp(timestamp)
            if timestamp is not None:
                start = max(start, timestamp_start)
            for position, header in batch_headers(segment.file, start, end):
                # Compaction leaves empty batches that keep a producer's state.
                if header.last_offset >= self._log_start and header.record_count:
                    yield position, header
        except FileNotFoundError:
            if segment in self._served.all:
                raise

    def _records(self, segment: Segment, position: int, header: BatchHeader) -> Iterator[TimestampOffset]:
        """Yield the records of a batch that are above the log start."""
        if header.is_log_append_time and header.record_count != UNKNOWN_COUNT:
            yield TimestampOffset(header.max_timestamp, max(header.base_offset, self._log_start), header.leader_epoch)
            return
        for record in records(segment.file.read_at(header.size_bytes, position), header, self._limit):
            if record.offset >= self._log_start:
                yield TimestampOffset(record.timestamp, record.offset, header.leader_epoch)

    def _largest_of(self, segment: Segment) -> int:
        return self._largest if segment is self._active else segment.load_largest_timestamp()


def _rank(found: TimestampOffset) -> tuple[int, int]:
    """Return the sort key of a result: the larger timestamp is better, then the lower offset."""
    return found.timestamp, -found.offset


def last_written_ms(segment: Segment) -> int:
    """Return the largest timestamp of a segment; if it has none, the time of the file's last write."""
    timestamp = segment.load_largest_timestamp()
    return timestamp if timestamp != NO_TIMESTAMP else segment.file.modified_ms()


def segment_offsets(
    segments: list[Segment], timestamp: int, max_count: int, log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[int]:
    """Return the result of `Log.segment_offsets`."""
    if timestamp == -2:
        return [log_start_offset][:max_count]
    offsets = []
    if segments[-1].size_bytes and (timestamp == -1 or timestamp >= now_ms):
        offsets.append(log_end_offset)
    offsets += [
        max(segment.base_offset, log_start_offset)
        for segment in reversed(segments)
        if timestamp == -1 or last_written_ms(segment) <= timestamp
    ]
    return list(dict.fromkeys(offsets))[:max_count]
