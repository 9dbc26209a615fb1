"""Finding records by their timestamps: the only place where a log looks at records, and at one batch of them.

Timestamps need not ascend, so an answer is the first record in the order of offsets. Time indexes tell where to begin:
no batch before that place reaches the timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence

from klamm.protocol.records.batch import BatchHeader, records
from klamm.storage.index import NO_TIMESTAMP
from klamm.storage.results import TimestampOffset
from klamm.storage.segment import Segment

DECOMPRESS_LIMIT = 100 << 20
"""How far a batch is inflated."""


def lookup(segments: Sequence[Segment], log_start_offset: int, timestamp: int) -> TimestampOffset | None:
    """The first record, at or above the log start, with a timestamp at or after `timestamp`."""
    for segment in segments:
        if segment.load_largest_timestamp() < timestamp:
            continue
        for position, head in segment.heads_from_timestamp(timestamp):
            if head.max_timestamp >= timestamp and head.last_offset >= log_start_offset:
                found = _find_in_batch(segment, position, head, timestamp, log_start_offset)
                if found is not None:
                    return found
    return None


def largest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp; None when no record has one."""
    timestamp = max(segment.load_largest_timestamp() for segment in segments)
    if timestamp == NO_TIMESTAMP:
        return None
    return lookup(segments, log_start_offset, timestamp) or _search_largest(segments, log_start_offset)


def _search_largest(segments: Sequence[Segment], log_start_offset: int) -> TimestampOffset | None:
    """The slow way, for when the record that has the largest timestamp is below the log start."""
    best: TimestampOffset | None = None
    for segment in segments:
        for position, head in segment.heads():
            if head.last_offset < log_start_offset:
                continue
            floor = best.timestamp + 1 if best else 0
            while head.max_timestamp >= floor and (
                found := _find_in_batch(segment, position, head, floor, log_start_offset)
            ):
                best, floor = found, found.timestamp + 1
    return best


def _find_in_batch(
    segment: Segment, position: int, head: BatchHeader, timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    if not head.record_count:  # left by compaction for its producer's sake
        return None
    if head.is_log_append_time:
        return TimestampOffset(head.max_timestamp, max(head.base_offset, log_start_offset), head.leader_epoch)
    data = segment.file.read_at(head.size_bytes, position)
    for record in records(data, head, DECOMPRESS_LIMIT):
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp, record.offset, head.leader_epoch)
    return None


def last_written_ms(segment: Segment) -> int:
    """The largest timestamp of a segment; when it has none, when its file was last written."""
    timestamp = segment.load_largest_timestamp()
    return timestamp if timestamp != NO_TIMESTAMP else segment.file.modified_ms()
