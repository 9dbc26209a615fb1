"""Find the damaged bytes of a segment, and the offsets that are lost with them.

The check is that of recovery, but does not end at the first bad batch: it searches for the next good one. If the length
of a bad batch leads to a good one (or to the end), that length is trusted; otherwise every position is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from klamm.storage.filesystem import File
from klamm.storage.log.scan import batches, problem_of
from klamm.storage.recovery.recovery import find_batch_after


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged part of a segment: bytes [position, end_position); the offsets [first_offset, next_offset) are lost."""

    position: int
    end_position: int
    first_offset: int
    next_offset: int
    problem: str

    def __str__(self) -> str:
        return (
            f"position={self.position} size_bytes={self.end_position - self.position} "
            f"offsets=[{self.first_offset}, {self.next_offset}): {self.problem}"
        )


def find_damage(
    file: File,
    base_offset: int,
    end_position: int,
    *,
    next_offset: int | None = None,
    end_offset: int | None = None,
    on_batch: Callable[[BatchHeader], None] = lambda _: None,
) -> Iterator[Damage]:
    """Yield all damage in the first `end_position` bytes of the segment, in order.

    Offsets are expected from `next_offset` (default: the base offset) to below `end_offset`, the start of the next
    segment (None: not known). `on_batch` is called for every good batch. Raises OSError.
    """
    position = 0
    due = base_offset if next_offset is None else next_offset
    while position < end_position:
        problem, size = "no whole batch", 0
        for at, header, data in batches(file, position, end_position):
            found = _problem(header, data, due, base_offset, end_offset)
            if found is not None:
                problem, size = found, header.size_bytes
                break
            on_batch(header)
            due = header.last_offset + 1
            position = at + header.size_bytes
        if position >= end_position:
            return
        good = _next_good(file, position, size, end_position, due, end_offset)
        if good is None:
            yield Damage(position, end_position, due, due if end_offset is None else max(due, end_offset), problem)
            return
        yield Damage(position, good[0], due, good[1].base_offset, problem)
        position = good[0]


def _problem(header: BatchHeader, data: memoryview, due: int, base_offset: int, end_offset: int | None) -> str | None:
    problem = problem_of(header, data, due, base_offset)
    if problem is None and end_offset is not None and header.last_offset >= end_offset:
        problem = f"last offset {header.last_offset} where the next segment begins with {end_offset}"
    return problem


def _next_good(
    file: File, position: int, size: int, end_position: int, due: int, end_offset: int | None
) -> tuple[int, BatchHeader] | None:
    """Return position and header of the next good batch after the bad one at `position`; `size` is its length field."""
    if size and position + size == end_position:
        return None
    if size and (header := _good_at(file, position + size, end_position, due, end_offset)) is not None:
        return position + size, header
    at = position
    while (found := find_batch_after(file, at + 1, end_position, due)) is not None:
        header = _good_at(file, found, end_position, due, end_offset)
        if header is not None:
            return found, header
        at = found
    return None


def _good_at(file: File, position: int, end_position: int, due: int, end_offset: int | None) -> BatchHeader | None:
    try:
        header = read_header(file.read_at(min(HEADER_BYTES, end_position - position), position))
    except CorruptMessage:
        return None
    if header.base_offset < due or position + header.size_bytes > end_position:
        return None
    if end_offset is not None and header.last_offset >= end_offset:
        return None
    return header if crc_is_valid(file.read_at(header.size_bytes, position), header) else None
