"""A segment made by compaction: the description that its file must match before it replaces the old segments.

The cleaner counts what it writes, then reads the file again from its beginning and compares: once the segment is
swapped in, the sources are deleted, and nothing else holds their records. A start that finishes a swap checks again
(`swap_manifest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.protocol.errors import CorruptMessage
from klamm.storage.filesystem import File
from klamm.storage.log.scan import batches, problem_of


@dataclass(frozen=True, slots=True)
class Cleaned:
    """`<base_offset>.log.cleaned`, which is to replace the segments at `sources`."""

    base_offset: int
    sources: tuple[int, ...]
    size_bytes: int
    record_count: int
    end_offset: int
    """The base offset of the segment after the sources."""
    cut_count: int = 0
    """The log's cut count when its segments were listed."""


def check(file: File, cleaned: Cleaned) -> None:
    """Raise CorruptMessage unless every batch in the file is as described. Raises OSError."""
    size, end, next_offset, count = file.size(), 0, cleaned.base_offset, 0
    problem = None if size == cleaned.size_bytes else f"{size} bytes instead of {cleaned.size_bytes}"
    for position, header, data in batches(file, 0, size if problem is None else 0):
        problem = problem_of(header, data, next_offset, cleaned.base_offset)
        if problem is not None:
            break
        end, next_offset, count = position + header.size_bytes, header.next_offset, count + header.record_count
    if problem is None and end != size:
        problem = "no whole batch"
    if problem is None and count != cleaned.record_count:
        problem = f"{count} records instead of {cleaned.record_count}"
    if problem is None and next_offset > cleaned.end_offset:
        problem = f"it ends at offset {next_offset}, its sources at {cleaned.end_offset}"
    if problem is not None:
        raise CorruptMessage(f"compacted segment {cleaned.base_offset}: position {end} offset {next_offset}: {problem}")
