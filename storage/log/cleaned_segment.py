"""A segment that compaction has made of others: what it has to be before it takes their place.

The cleaner counts what it writes, then reads the file again from its beginning and compares: the sources go once it is
swapped in, and nothing else has their records. A start that finishes a swap looks again (`swap_manifest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.protocol.errors import CorruptMessage
from klamm.storage.filesystem import File
from klamm.storage.log.scan import batches, problem_of


@dataclass(frozen=True, slots=True)
class Cleaned:
    """`<base_offset>.log.cleaned`, written to take the place of the segments at `sources`."""

    base_offset: int
    sources: tuple[int, ...]
    size_bytes: int
    record_count: int
    end_offset: int
    """Where the segment behind the sources begins."""
    cut_count: int = 0
    """That of the log when its segments were listed."""


def check(file: File, cleaned: Cleaned) -> None:
    """Raise CorruptMessage unless the file is the segment, batch for batch. OSError."""
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
