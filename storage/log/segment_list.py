"""The segments of a log in their order, and how they are removed.

The current list is replaced, never changed, so a reader may go on using the one it has. A segment is removed in steps:
it leaves the list, on the loop, which takes no time; a thread renames its files (`.deleted`); once no reader can want
to open them, they are unlinked.
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
"""How many closed segments, of all logs, remember their readers' next offsets: 64 readers each take 32 KB."""


class ClosedReads:
    """The closed segments of all logs that were read last. Others forget their readers' next offsets."""

    def __init__(self, limit: int = CLOSED_WITH_READS) -> None:
        self._limit = limit
        self._segments: OrderedDict[weakref.ref[Segment], None] = OrderedDict()

    def note(self, segment: Segment) -> None:
        reference = weakref.ref(segment)
        self._segments.pop(reference, None)  # readers may be in several threads: each step here is atomic
        self._segments[reference] = None
        if len(self._segments) > self._limit:
            oldest = self._segments.popitem(last=False)[0]()
            if oldest is not None:
                oldest.forget_reads()


CLOSED_READS: Final = ClosedReads()


class SegmentList:
    """Segments, oldest first, never empty; the last one is active."""

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
        """Update the list of segments with aborted transactions. Most logs have none, and need no search."""
        self.aborting = [segment for segment in self.all if segment.transaction_index.count]

    def append_segment(self, segment: Segment) -> None:
        self.active.forget_reads()
        self.set_segments([*self.all, segment])

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`, if any does; the first one for offsets below it."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def read_records(self, offset: int, end: int, *, max_bytes: int, max_offset: int, min_one: bool) -> LogRead:
        """Return batches, as `Log.read_records` does; `end` is the log end. Raises CorruptMessage, OSError."""
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
        """Return the aborted transactions with records in [start, end), which a read_committed reader leaves out.

        Raises KafkaStorageError.
        """
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
        """Take the segments that end at or below `offset` out of the list, and return them; the active one stays."""
        count = self.index_of(offset)
        removed = self.all[:count]
        if removed:
            self.set_segments(self.all[count:])
        return removed

    def inherit_damage(self, source: SegmentList) -> None:
        """Copy the known damage of `source` where the bytes were copied unchanged."""
        known = {segment.base_offset: segment.damage for segment in source.all if segment.damage}
        for segment in self.all if known else ():
            found = known.get(segment.base_offset, ())
            segment.damage = tuple(each for each in found if each.end_position <= segment.size_bytes)

    def substitute(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace adjacent segments of the list with `new`."""
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
    """Return the bytes of a segment from the batch at `position` on. `next_offset` applies if they reach its end."""
    end = segment.good_end(position) if segment.damage else segment.size_bytes
    if max_offset is not None:
        with suppress(CorruptMessage):  # if damaged, the read ends below it anyway
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
    """Give the files of detached segments the suffix `.deleted`, durably; return the new names. Blocks. Raises OSError.

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
