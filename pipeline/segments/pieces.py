"""Pieces: a range of offsets, cut at the starts of batches.

The offset index has positions of batches, one for every 4 KiB or so. Before a piece begins at one, the batch there is
read and checked: the index may be that of another file by now, or wrong. Segments in the old formats are not cut, since
the header of a compressed message set does not hold its first offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from klamm.pipeline.ranges import NO_TOPIC_ID, OffsetRange, TopicPartition
from klamm.pipeline.segments.files import OpenSegment, Segment, index_entries

PIECE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """The offsets from `start` up to, not including, `end`, which began at `position` of `path` when they were planned.

    `size_bytes` is about how much must be read.
    """

    directories: tuple[str, ...]
    topic: str
    partition: int
    start: int
    end: int
    path: Path
    position: int
    size_bytes: int
    topic_id: bytes = NO_TOPIC_ID

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic_partition} offsets {self.start} to {self.end} at position {self.position} of {self.path}"


class _Place(NamedTuple):
    """The start of the batch with `offset`, or of an earlier one; `bytes_before` of the range are before it."""

    offset: int
    path: Path
    position: int
    bytes_before: int


def cut(directories: tuple[str, ...], wanted: OffsetRange, listed: list[Segment], piece_bytes: int) -> list[Piece]:
    """Cut pieces of at least `piece_bytes`, except the last; one may span several segments. Raises Vanished."""
    places: list[_Place] = []
    size = 0
    for segment in listed:
        after = segment.next_base_offset
        if segment.base_offset < wanted.end and (after is None or after > wanted.start):
            size += _add_places(places, wanted, segment, max(piece_bytes, 1), size)
    end = _Place(wanted.end, Path(), 0, size)
    return [
        Piece(
            directories,
            wanted.topic,
            wanted.partition,
            here.offset,
            there.offset,
            here.path,
            here.position,
            there.bytes_before - here.bytes_before,
            wanted.topic_id,
        )
        for here, there in pairwise([*places, end])
    ]


def _add_places(places: list[_Place], wanted: OffsetRange, segment: Segment, piece_bytes: int, before: int) -> int:
    """Add the starts of pieces in this segment; return its size. `before` is the size of the segments before it."""
    entries = index_entries(segment)
    with OpenSegment(segment, check=False) as file:  # pieces cover the range wherever they begin
        begin = file.position_of(wanted.start) if wanted.start > segment.base_offset else 0
        above = entries[entries[:, 0] >= wanted.end]
        end = int(above[0, 1]) if len(above) else file.size()
        if not places or before - places[-1].bytes_before >= piece_bytes:
            places.append(_Place(max(wanted.start, segment.base_offset), segment.path, begin, before))
        for position in entries[:, 1].tolist():
            bytes_before = before + position - begin
            if bytes_before - places[-1].bytes_before < piece_bytes or position >= end:
                continue
            header = file.valid_header(position)
            if header is None or header.magic < 2 or not places[-1].offset < header.base_offset < wanted.end:
                return max(end - begin, 0)
            places.append(_Place(header.base_offset, segment.path, position, bytes_before))
    return max(end - begin, 0)
