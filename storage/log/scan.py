"""Walk the batches of a segment by their headers, without touching records (format: `protocol.records.batch`).

Batches have magic 2 and are handled in tight loops. Messages of the formats 0 and 1, from before Kafka 0.11, take a
slower path.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_BATCH_BYTES,
    BatchHeader,
    crc_is_valid,
)
from klamm.protocol.records.message_set import read_head
from klamm.storage.filesystem import File
from klamm.storage.log.index import MAX_RELATIVE_OFFSET

MAGIC = 2
MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
"""The smallest valid value of the length field of a v2 batch."""

_PEEK = Struct(">qi4xb4x2xi")
"""Base offset, length, magic and last offset delta of a header."""

SCAN_BYTES = 4096
BULK_BYTES = 1 << 18  # fits into the cache of the processor


def batch_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in [position, end); stop before bytes that cannot be a batch.

    Sizes are checked against `end`, contents are not: for bytes that are known to be good.
    """
    chunk = b""
    chunk_start = position
    while position + MIN_BATCH_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = file.read_at(min(SCAN_BYTES, end - position), position)
            chunk_start, at = position, 0
        if at + HEADER_BYTES <= len(chunk) and chunk[at + MAGIC_POSITION] == MAGIC:
            found = _header(chunk, at)
            if found.size_bytes < HEADER_BYTES or position + found.size_bytes > end:
                return
            yield position, found
            position += found.size_bytes
            continue
        header = _old_header(chunk, at)
        if header is None or position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes


def _header(chunk: bytes | memoryview, at: int) -> BatchHeader:
    """Return the header of the batch of magic 2 at `at`, in half the time of `BatchHeader(...)`."""
    fields = HEADER.unpack_from(chunk, at)
    return tuple.__new__(BatchHeader, (fields[0], fields[1] + LOG_OVERHEAD_BYTES, *fields[2:]))


def _old_header(chunk: bytes | memoryview, at: int) -> BatchHeader | None:
    """Return the header of a message of an older format, None if there is none. Only the end of the file may cut it."""
    try:
        return read_head(chunk, at)
    except CorruptMessage:
        return None


def find_offset(file: File, position: int, end: int, offset: int) -> tuple[int, BatchHeader] | None:
    """Return position and header of the first batch, from `position` on, with a last offset of at least `offset`.

    The same walk as `batch_headers`, in the tightest loop: every fetch begins with it.
    """
    unpack = _PEEK.unpack_from
    while position + HEADER_BYTES <= end:
        chunk = file.read_at(min(SCAN_BYTES, end - position), position)
        at = 0
        last_at = len(chunk) - HEADER_BYTES
        if last_at < 0:
            return None
        while at <= last_at:
            base_offset, length, magic, last_offset_delta = unpack(chunk, at)
            if length < MIN_LENGTH or magic != MAGIC or position + at + length + LOG_OVERHEAD_BYTES > end:
                return _find_old(file, position + at, end, offset)
            if base_offset + last_offset_delta >= offset:
                return position + at, _header(chunk, at)
            at += length + LOG_OVERHEAD_BYTES
        position += at
    return _find_old(file, position, end, offset)


def _find_old(file: File, position: int, end: int, offset: int) -> tuple[int, BatchHeader] | None:
    """Return the same as `find_offset` where there may be messages of an older format."""
    return next(
        ((at, header) for at, header in batch_headers(file, position, end) if header.last_offset >= offset), None
    )


def batches(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield (position, header, bytes) of each batch; stop as `batch_headers` does.

    The bytes are valid until the next batch is requested. Reads ahead in large steps into one buffer: fresh memory for
    each step would cost more than reading from the page cache.
    """
    buffer = bytearray(min(BULK_BYTES, max(0, end - position)))
    chunk = memoryview(b"")
    chunk_start = position
    while position + MIN_BATCH_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = _fill(file, buffer, position, end)
            chunk_start, at = position, 0
        header: BatchHeader | None
        if at + HEADER_BYTES <= len(chunk) and chunk[at + MAGIC_POSITION] == MAGIC:
            header = _header(chunk, at)
            size = header.size_bytes
            if size < HEADER_BYTES or position + size > end:
                return
        else:
            header = _old_header(chunk, at)
            if header is None or position + header.size_bytes > end:
                return
            size = header.size_bytes
        if at + size > len(chunk):
            if size > len(buffer):
                buffer = bytearray(size)
            chunk = _fill(file, buffer, position, end)
            chunk_start, at = position, 0
            if len(chunk) < size:
                return
        yield position, header, chunk[at : at + size]
        position += size


def _fill(file: File, buffer: bytearray, position: int, end: int) -> memoryview:
    view = memoryview(buffer)[: end - position]
    return view[: file.read_into(view, position)]


def problem_of(header: BatchHeader, data: memoryview, next_offset: int, segment_base_offset: int) -> str | None:
    """Return the defect of a batch with plausible magic and size; None when it is good."""
    if not crc_is_valid(data, header):
        return "wrong CRC"
    if header.base_offset < next_offset:
        return f"base offset {header.base_offset} where {next_offset} or more is due"
    if header.last_offset_delta < 0 or header.last_offset - segment_base_offset > MAX_RELATIVE_OFFSET:
        return f"last offset delta {header.last_offset_delta}"
    return None
