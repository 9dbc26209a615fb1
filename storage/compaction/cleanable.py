"""Decide whether a log should be compacted, and make the job.

    |  clean  |  dirty: cleanable now  |  not yet  |
    log start  first dirty              first uncleanable                 log end
The first dirty offset is the end of the last run (`cleaner-offset-checkpoint`). Not cleanable are the active segment,
offsets at or above the last stable offset, and segments with a record younger than `min.compaction.lag.ms`. A log is
due when its dirty part is more than `min.cleanable.dirty.ratio` of the clean and dirty parts together, or when the
dirty part has a record older than `max.compaction.lag.ms`. Everything counts in whole segments.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from klamm.storage.compaction.cleaner import Job, Source
from klamm.storage.log.index import NO_TIMESTAMP, OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LONG_MAX
from klamm.storage.log.segment import Segment


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The parts of a log, as the cleaner divides it."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)


def cleanable(log: Log, checkpoint: int, now_ms: int) -> Cleanable | None:
    """Return the parts, or None when there is nothing to clean. Reads only dirty segments. Raises OSError."""
    segments = log.local.segments.all
    bases = [segment.base_offset for segment in segments]
    first_dirty = checkpoint
    if not log.log_start_offset <= checkpoint <= log.log_end_offset:
        first_dirty = log.log_start_offset
    first = max(0, bisect_right(bases, first_dirty) - 1)
    dirty = segments[first:-1]
    count = 0
    while count < len(dirty) and _may_be_cleaned(log, dirty[count], bases[first + count + 1], now_ms):
        count += 1
    dirty = dirty[:count]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if not dirty_bytes or bases[first + count] <= first_dirty:
        return None
    clean_bytes = sum(segment.size_bytes for segment in segments[:first])
    return Cleanable(first_dirty, bases[first + count], clean_bytes, dirty_bytes, _is_overdue(log, dirty, now_ms))


def _may_be_cleaned(log: Log, segment: Segment, end_offset: int, now_ms: int) -> bool:
    if end_offset > log.last_stable_offset:
        return False
    lag_ms = log.local.config.min_compaction_lag_ms
    return lag_ms <= 0 or segment.load_largest_timestamp() <= now_ms - lag_ms


def _is_overdue(log: Log, dirty: list[Segment], now_ms: int) -> bool:
    lag_ms = log.local.config.max_compaction_lag_ms
    if lag_ms == LONG_MAX:
        return False
    first = [segment.load_first_timestamp() for segment in dirty]
    return any(timestamp != NO_TIMESTAMP and now_ms - timestamp > lag_ms for timestamp in first)


def is_due(log: Log, found: Cleanable) -> bool:
    return found.overdue or found.ratio > log.local.config.min_cleanable_dirty_ratio


def make_job(
    log: Log, found: Cleanable, now_ms: int, *, map_bytes: int, map_load_factor: float, bytes_per_second: float
) -> Job:
    """Make the job for a worker. Everything below `first_uncleanable` must have been flushed."""
    config = log.local.config
    segments = log.local.segments.all
    sources = tuple(
        Source(
            segment.base_offset,
            segments[index + 1].base_offset,
            segment.size_bytes,
            segment.offset_index.count * OFFSET_ENTRY.size,
            segment.time_index.count * TIME_ENTRY.size,
        )
        for index, segment in enumerate(segments[:-1])
        if segment.base_offset < found.first_uncleanable
    )
    return Job(
        directory=str(log.local.directory),
        sources=sources,
        first_dirty=found.first_dirty,
        first_uncleanable=found.first_uncleanable,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        decompress_limit=config.max_decompressed_bytes,
        last_offsets={
            producer.producer_id: producer.batches[-1].last_offset for producer in log.producers if producer.batches
        },
        last_epochs={producer.producer_id: producer.epoch for producer in log.producers if not producer.batches},
        aborted=tuple(log.local.segments.aborted(found.first_uncleanable, found.first_uncleanable)),
        map_bytes=map_bytes,
        map_load_factor=map_load_factor,
        bytes_per_second=bytes_per_second,
        cut_count=log.local.segment_swap.cut_count,
    )
