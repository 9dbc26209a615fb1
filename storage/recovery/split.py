"""Split a segment with more offsets than its indexes can express: relative offsets are int32.

Brokers before Kafka 1.1 made such segments: the cleaner merged neighbours, or a follower copied a compacted log, by
size alone. Apache Kafka splits them when it meets them (KAFKA-6264). A start of Klamm does so first of all: the new
segments are written as `.cleaned` with their indexes, synced, and replace the old one as compacted segments do
(`log/swap_manifest.py`), so a crash leaves either the old segment or the new ones.

Nothing is lost: the first batch with a wrong CRC and everything after it go into the last segment unchanged, for
recovery to decide. A cut or damaged file is not taken for such a segment, unless its offsets ascend and end below those
of the next one. The newest segment can be one only in a compacted topic, since other topics have no gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from klamm.protocol.records.batch import BatchHeader, crc_is_valid
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY
from klamm.storage.log.scan import batch_headers, batches
from klamm.storage.log.segment import Segment
from klamm.storage.log.swap_manifest import SwapManifest, announce, carry_out

logger = logging.getLogger(__name__)

COPY_BYTES = 1 << 20


def overflows(
    filesystem: Filesystem, segment: Segment, next_base_offset: int | None, *, last_may: bool, names: Collection[str]
) -> bool:
    """Return whether a segment must be split. Reads nothing if the next segment's name rules it out.

    The newest segment has no next one: `last_may` says whether it can need a split at all.
    """
    if next_base_offset is None:
        if not last_may:
            return False
    elif next_base_offset - segment.base_offset <= MAX_RELATIVE_OFFSET + 1:
        return False
    last_offset = segment.base_offset
    start = _last_indexed_position(filesystem, segment) if segment.offset_index.path.name in names else 0
    for _, header in batch_headers(segment.file, start, segment.size_bytes):
        if header.last_offset < last_offset:
            return False
        last_offset = header.last_offset
    if next_base_offset is not None and last_offset >= next_base_offset:
        return False
    return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET


def _last_indexed_position(filesystem: Filesystem, segment: Segment) -> int:
    """Return a position near the end to start from; 0 when the index has none."""
    file = filesystem.open_read(segment.offset_index.path)
    entry = (
        file.read_at(OFFSET_ENTRY.size, file.size() - OFFSET_ENTRY.size) if file.size() >= OFFSET_ENTRY.size else b""
    )
    if len(entry) < OFFSET_ENTRY.size:
        return 0
    relative, position = OFFSET_ENTRY.unpack(entry)
    found = next(batch_headers(segment.file, position, segment.size_bytes), None) if position >= 0 else None
    return position if found is not None and found[1].last_offset == segment.base_offset + relative else 0


def split(
    filesystem: Filesystem, directory: Path, segment: Segment, new_segment: Callable[[int, str], Segment]
) -> list[int]:
    """Split a segment; return the base offsets of the new ones, which are in place. Blocks. Raises OSError.

    `new_segment` makes a segment without files for a base offset and a suffix.
    """
    parts: list[Segment] = []
    end = 0
    next_offset = segment.base_offset
    for position, header, data in batches(segment.file, 0, segment.size_bytes):
        if not crc_is_valid(data, header) or header.last_offset < next_offset:
            break
        if not parts or header.last_offset - parts[-1].base_offset > MAX_RELATIVE_OFFSET:
            base_offset = _base_of_part(segment, header, next_offset, is_first=not parts)
            parts.append(new_segment(base_offset, paths.CLEANED_SUFFIX))
            parts[-1].create()
        parts[-1].append_batch(data, header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp)
        next_offset = header.next_offset
        end = position + header.size_bytes
    if len(parts) < 2 and (not parts or parts[0].base_offset == segment.base_offset):
        _discard(parts)
        return []
    _copy_rest(segment, end, parts[-1])
    for part in parts:
        part.become_inactive()
        for file in (part.file, *part.write_indexes()):
            file.sync()
    bases = [part.base_offset for part in parts]
    swap = SwapManifest(bases[0], (segment.base_offset,), tuple(bases[1:]))
    announce(filesystem, directory, swap)
    carry_out(filesystem, directory, swap)
    logger.warning("%s: split, as it spanned more than 2^31 offsets: base_offsets=%s", segment.path, bases)
    return bases


def _base_of_part(segment: Segment, header: BatchHeader, next_offset: int, *, is_first: bool) -> int:
    if is_first and header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
        return segment.base_offset
    # The first offset in a wrapper of an old format is unknown, but at most this far below its last one.
    return header.base_offset if header.magic == 2 else max(next_offset, header.last_offset - MAX_RELATIVE_OFFSET)


def _copy_rest(segment: Segment, position: int, part: Segment) -> None:
    size = part.size_bytes
    for at in range(position, segment.size_bytes, COPY_BYTES):
        content = segment.file.read_at(min(COPY_BYTES, segment.size_bytes - at), at)
        part.file.write_at(content, size + at - position)


def _discard(parts: list[Segment]) -> None:
    for part in parts:
        part.delete()
