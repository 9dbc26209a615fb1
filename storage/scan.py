"""Walking the batches of a segment by their headers, without touching records (format: `protocol.records.batch`)."""

from __future__ import annotations

from collections.abc import Iterator

from klamm.protocol.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from klamm.storage.filesystem import File

MAGIC = 2
MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
"""The least that the length field of a v2 batch may say."""

SCAN_BYTES = 4096
BULK_BYTES = 1 << 20


def heads(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch that lies in [position, end); stops before bytes that cannot be a batch.

    Sizes are checked against `end`, contents are not: for bytes that are known to be good.
    """
    chunk = b""
    chunk_start = position
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read_at(min(SCAN_BYTES, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                return
        base_offset, length, *rest = HEADER.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD_BYTES
        if length < MIN_LENGTH or rest[1] != MAGIC or position + size > end:
            return
        yield position, BatchHeader(base_offset, size, *rest)
        position += size


def batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch; stops as `heads` does. Reads ahead in large steps."""
    chunk = memoryview(b"")
    chunk_start = position
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = memoryview(file.read_at(min(BULK_BYTES, end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < HEADER_BYTES:
                return
        base_offset, length, *rest = HEADER.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD_BYTES
        if length < MIN_LENGTH or rest[1] != MAGIC or position + size > end:
            return
        if at + size > len(chunk):
            chunk = memoryview(file.read_at(min(max(size, BULK_BYTES), end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < size:
                return
        yield position, BatchHeader(base_offset, size, *rest), chunk[at : at + size]
        position += size
