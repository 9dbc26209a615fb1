"""The segments of a log in their order, and those that leave it.

The list of this moment is replaced, never changed, so whoever holds one may go on using it. A segment goes in steps:
out of the list, on the loop, which takes no time; its files are retired (`.deleted`) in a thread; then, when no reader
can want to open them any more, they are unlinked.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.regions import FileRegion
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem, storage_errors
from klamm.storage.log.results import NOTHING, LogRead
from klamm.storage.log.segment import Segment
from klamm.storage.log.transaction_index import AbortedTransaction

CLOSED_WITH_READS: Final = 256
"""Closed segments of all logs that know where their readers will go on: with 64 readers each it is 32 KB."""


class ClosedReads:
    """The closed segments that were read last, of all logs: the others forget what they know of their readers."""

    def __init__(self, limit: int = CLOSED_WITH_READS) -> None:
        self._limit = limit
        self._segments: OrderedDict[weakref.ref[Segment], None] = OrderedDict()

    def note(self, segment: Segment) -> None:
        reference = weakref.ref(segment)
        self._segments.pop(reference, None)  # readers may be in several threads: each of these steps is one of its own
        self._segments[reference] = None
        if len(self._segments) > self._limit:
            oldest = self._segments.popitem(last=False)[0]()
            if oldest is not None:
                oldest.forget_reads()


CLOSED_READS: Final = ClosedReads()


class SegmentList:
    """Oldest first, never empty; the last one is the active one."""

    __slots__ = ("aborting", "active", "all", "bases", "closed_bytes")

    def __init__(self, segments: list[Segment]) -> None:
        self.set_segments(segments)

    def set_segments(self, segments: list[Segment]) -> None:
        assert segments
        self.all = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.closed_bytes = sum(segment.size_bytes for segment in segments) - segments[-1].size_bytes
        self.note_aborts()

    def note_aborts(self) -> None:
        """Transactions were aborted, or are not any more: most logs have none, and are not searched for them."""
        self.aborting = [segment for segment in self.all if segment.transaction_index.count]

    def append_segment(self, segment: Segment) -> None:
        self.active.forget_reads()
        self.set_segments([*self.all, segment])

    def index_of(self, offset: int) -> int:
        """The index of the segment that holds `offset`, if any does; the first one for offsets below it."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def read_records(self, offset: int, end: int, *, max_bytes: int, max_offset: int, min_one: bool) -> LogRead:
        """See `Log.read`; `end` is the log end. CorruptMessage, OSError."""
        segments = self.all
        for index in range(self.index_of(offset), len(segments)):
            found = segments[index].find_batch(offset)
            if found is None:
                continue
            if found[1].base_offset >= max_offset:
                break
            after = end
            if index + 1 < len(segments):
                after = segments[index + 1].base_offset
                CLOSED_READS.note(segments[index])
            bound = max_offset if max_offset < end else None
            return _region(segments[index], *found, max_bytes, bound, min_one, min(after, max_offset))
        return NOTHING

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end): a read_committed reader leaves them out. Raises
        KafkaStorageError."""
        found: list[AbortedTransaction] = []
        if not self.aborting:
            return found
        first = self.bases[self.index_of(start)]
        with storage_errors(f"{self.active.directory.name}: transaction index"):
            for segment in self.aborting:
                if segment.base_offset >= first and segment.transaction_index.collect(start, end, found):
                    break
        return found

    def detach_below(self, offset: int) -> list[Segment]:
        """Take the segments that end at or below `offset` out; the active one stays."""
        count = self.index_of(offset)
        removed = self.all[:count]
        if removed:
            self.set_segments(self.all[count:])
        return removed

    def inherit_damage(self, source: SegmentList) -> None:
        """What is known to be damaged in `source` is so here, too, where the bytes were copied as they were."""
        known = {segment.base_offset: segment.damage for segment in source.all if segment.damage}
        for segment in self.all if known else ():
            found = known.get(segment.base_offset, ())
            segment.damage = tuple(each for each in found if each.end_position <= segment.size_bytes)

    def substitute(self, old: list[Segment], new: list[Segment]) -> None:
        """Put `new` in the place of neighbours that are in the list."""
        index = self.all.index(old[0])
        assert self.all[index : index + len(old)] == old, "nothing cuts the log while files are swapped"
        self.set_segments([*self.all[:index], *new, *self.all[index + len(old) :]])


def _region(
    segment: Segment,
    position: int,
    header: BatchHeader,
    max_bytes: int,
    max_offset: int | None,
    min_one: bool,
    next_offset: int,
) -> LogRead:
    """The bytes of a segment from the batch at `position` on. `next_offset` follows when they reach its end."""
    end = segment.good_end(position) if segment.damage else segment.size_bytes
    if max_offset is not None:
        with suppress(CorruptMessage):  # then it ends below that in any case
            if (bound := segment.find_batch(max_offset)) is not None:
                end = min(end, bound[0])
    if end <= position:
        return NOTHING
    size = min(end - position, max_bytes)
    if size < header.size_bytes:
        if min_one:
            size = header.size_bytes
        elif size <= 0:
            return NOTHING
        else:
            return LogRead(FileRegion(segment.file, position, size), size, True)
    if position + size != end or segment.damage:
        next_offset = segment.offset_behind(position, position + size)
    return LogRead(FileRegion(segment.file, position, size), size, False, next_offset)


def retire(filesystem: Filesystem, directory: Path, segments: Iterable[Segment]) -> list[Path]:
    """Give the files of detached segments the suffix `.deleted`, durably; returns the new names. Blocks, OSError.

    From then on a start removes them.
    """
    renamed: list[Path] = []
    for segment in segments:
        snapshot = paths.offset_file(directory, segment.base_offset, paths.SNAPSHOT_SUFFIX)
        for path in (*segment.files(), snapshot):
            target = path.with_name(path.name + paths.DELETED_SUFFIX)
            with suppress(FileNotFoundError):
                filesystem.rename(path, target)
                renamed.append(target)
        segment.close()
    with suppress(FileNotFoundError):  # the partition is being deleted
        filesystem.sync_directory(directory)
    return renamed
