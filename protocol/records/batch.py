"""The record batch (magic 2): Kafka's unit on the wire and in the log.

    batch  = header (61 bytes, HEADER) + record_count records, as one compressed blob when a codec is set
    header = base_offset i64 | batch_length i32 | leader_epoch i32 | magic i8 | crc u32 | attributes i16
           | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 | producer_id i64 | producer_epoch i16
           | base_sequence i32 | record_count i32
    record = length varint | attributes i8 | timestamp_delta varlong | offset_delta varint | key | value | headers
    key, value = size varint (-1 is null) + bytes;  headers = count varint + (size varint + utf-8, value)*

batch_length counts the bytes after it. The CRC-32C covers everything from the attributes on, so a broker stamps the
base offset and leader epoch of a batch without touching it. Varints are zig-zag. Attributes: bits 0-2 codec, 3
LogAppendTime, 4 transactional, 5 control, 6 base_timestamp is a delete horizon (compaction).

Logs that Kafka wrote before 0.11 hold messages of magic 0 and 1 (`message_set.py`), alone or before batches. Code that
reads a log treats each of them, or a compressed wrapper with its content, as a batch: `read_header`, `batches`,
`crc_is_valid` and `records` accept any magic.

No count or size is trusted here; a wrong one raises InvalidRecord or CorruptMessage. `validate.py` decides whether a
batch may enter a log. Source: KIP-98, KIP-82, Kafka's protocol guide "Record Batch".
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator

from klamm.protocol.errors import CorruptMessage, InvalidRecord
from klamm.protocol.records import message_set
from klamm.protocol.records.compression import Codec, compress, decompress
from klamm.protocol.records.crc import BytesLike, crc32c
from klamm.protocol.records.header import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_BATCH_BYTES,
    MIN_MESSAGE_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    UNKNOWN_COUNT,
    BatchHeader,
    Header,
    Record,
)

__all__ = [
    "ATTRIBUTES_POSITION",
    "CONTROL_FLAG",
    "CRC_POSITION",
    "DELETE_HORIZON_FLAG",
    "HEADER",
    "HEADER_BYTES",
    "LOG_APPEND_TIME_FLAG",
    "LOG_OVERHEAD_BYTES",
    "MAGIC_POSITION",
    "MAX_TIMESTAMP_POSITION",
    "MIN_BATCH_BYTES",
    "MIN_MESSAGE_BYTES",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "TRANSACTIONAL_FLAG",
    "UNKNOWN_COUNT",
    "BatchHeader",
    "Header",
    "Record",
    "batches",
    "crc_is_valid",
    "encode_batch",
    "payload",
    "read_header",
    "read_record",
    "read_varint",
    "records",
    "seal",
    "stamp",
    "write_record",
    "write_varint",
]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21  # the CRC covers from here to the end
MAX_TIMESTAMP_POSITION = 35

_PLACE = struct.Struct(">qii")  # base_offset, batch_length, partition_leader_epoch
_CRC = struct.Struct(">I")


def read_header(buf: BytesLike, pos: int = 0) -> BatchHeader:
    """Return the header at `pos`, of any magic. Raises CorruptMessage when it is cut short, or is none."""
    available = len(buf) - pos
    if available > MAGIC_POSITION and buf[pos + MAGIC_POSITION] in (0, 1):
        return message_set.read_head(buf, pos)
    if available < HEADER_BYTES:
        raise CorruptMessage(f"{available} bytes are too few for a batch header")
    fields = HEADER.unpack_from(buf, pos)
    if fields[3] != 2:
        raise CorruptMessage(f"batch at position {pos} has magic {fields[3]}, expected 2 or less")
    size_bytes = fields[1] + LOG_OVERHEAD_BYTES
    if size_bytes < HEADER_BYTES:
        raise CorruptMessage(f"batch at position {pos} has size {size_bytes}, the least is {HEADER_BYTES}")
    return BatchHeader(fields[0], size_bytes, *fields[2:])


def batches(buf: BytesLike) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every whole batch in `buf`, up to a last one that is cut short, as in a fetch."""
    pos = 0
    end = len(buf)
    while end - pos >= MIN_BATCH_BYTES and (end - pos >= HEADER_BYTES or buf[pos + MAGIC_POSITION] < 2):
        header = read_header(buf, pos)
        if header.size_bytes > end - pos:
            return
        yield pos, header
        pos += header.size_bytes


def crc_is_valid(buf: BytesLike, header: BatchHeader, pos: int = 0) -> bool:
    """Return whether the CRC of the batch at `pos`, of any magic, is right."""
    if header.magic < 2:
        return zlib.crc32(memoryview(buf)[pos + MAGIC_POSITION : pos + header.size_bytes]) == header.crc
    return crc32c(memoryview(buf)[pos + ATTRIBUTES_POSITION : pos + header.size_bytes]) == header.crc


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset, leader epoch and length into one whole batch, in place. The CRC covers none of these."""
    _PLACE.pack_into(batch, 0, base_offset, len(batch) - LOG_OVERHEAD_BYTES, leader_epoch)


def payload(buf: BytesLike, header: BatchHeader, limit: int, pos: int = 0) -> bytes:
    """Return the decompressed records of the magic 2 batch at `pos`. Raises InvalidRecord beyond `limit`."""
    data = memoryview(buf)[pos + HEADER_BYTES : pos + header.size_bytes]
    return decompress(header.codec, data, limit)


def records(buf: BytesLike, header: BatchHeader, limit: int, pos: int = 0) -> Iterator[Record]:
    """Yield the records of the batch at `pos`, of any magic, inflated to at most `limit` bytes. Raises InvalidRecord.

    In the old formats the CRC is checked, too (CorruptMessage).
    """
    if header.magic < 2:
        yield from message_set.records(memoryview(buf)[pos : pos + header.size_bytes], limit)
        return
    data = payload(buf, header, limit, pos)
    append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.record_count):
        try:
            delta, offset_delta, key, value, headers, at = read_record(data, at)
        except IndexError:
            raise InvalidRecord("a record is cut short") from None
        timestamp = header.base_timestamp + delta if append_time is None else append_time
        yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    if at != len(data):
        raise InvalidRecord(f"{len(data) - at} bytes after the last record")


def read_record(data: bytes, pos: int) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]:
    """Return (timestamp delta, offset delta, key, value, headers, next position) of the record at `pos`.

    Raises InvalidRecord when its parts do not fill its length, IndexError when the data ends within a varint.
    """
    size, pos = read_varint(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise InvalidRecord(f"record size {size} is negative or larger than the batch")
    delta, pos = read_varint(data, pos + 1, 70)
    offset_delta, pos = read_varint(data, pos)
    key, pos = _read_bytes(data, pos, end)
    value, pos = _read_bytes(data, pos, end)
    count, pos = read_varint(data, pos)
    if count < 0 or count > end - pos:
        raise InvalidRecord(f"record has {count} headers in {end - pos} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos, end)
        if name is None:
            raise InvalidRecord("a record header has no key")
        content, pos = _read_bytes(data, pos, end)
        headers.append((name.decode("utf-8", "replace"), content))
    if pos != end:
        raise InvalidRecord(f"record ends at {pos}, its length says {end}")
    return delta, offset_delta, key, value, tuple(headers), pos


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = read_varint(data, pos)
    if size < 0:
        if size != -1:
            raise InvalidRecord(f"size {size} in a record")
        return None, pos
    if size > end - pos:
        raise InvalidRecord(f"{size} bytes in a record with {end - pos} left")
    return data[pos : pos + size], pos + size


def read_varint(data: bytes, pos: int, bits: int = 35) -> tuple[int, int]:
    """Return (value, next position) of the zig-zag varint at `pos`; `bits` is 35 for 32-bit values, 70 for 64-bit."""
    byte = data[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    raw = byte & 0x7F
    for shift in range(7, bits, 7):
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> (32 if bits == 35 else 64):
                break
            return (raw >> 1) ^ -(raw & 1), pos
    raise InvalidRecord("a varint is too long")


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` (up to 64 bits signed) as a zig-zag varint."""
    raw = (value << 1) ^ (value >> 63)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def write_record(out: bytearray, offset_delta: int, timestamp_delta: int, record: Record) -> None:
    """Append `record` with its length."""
    body = bytearray(b"\0")  # record attributes: none are defined
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, content in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, content)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)  # -1
    else:
        write_varint(out, len(content))
        out += content


def encode_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Return one batch of `records`, which have absolute offsets that ascend from `base_offset`, gaps allowed.

    `last_offset` is for batches that lost their last records to compaction (`records` may then be empty). With
    `log_append_time_ms` the batch gives every record that timestamp.
    """
    body = bytearray()
    base_timestamp = max_timestamp = NO_TIMESTAMP
    count = 0
    last_delta = -1
    for record in records:
        delta = record.offset - base_offset
        assert delta > last_delta, "offsets ascend"
        last_delta = delta
        if count == 0:
            base_timestamp = record.timestamp
        max_timestamp = max(max_timestamp, record.timestamp)
        write_record(body, delta, record.timestamp - base_timestamp, record)
        count += 1
    if last_offset is not None:
        assert last_offset - base_offset >= last_delta, "the last offset is at or after the last record"
        last_delta = last_offset - base_offset
    assert last_delta >= 0, "a batch without records still covers offsets"
    attributes = codec | (TRANSACTIONAL_FLAG if transactional else 0) | (CONTROL_FLAG if control else 0)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    packed: BytesLike = compress(codec, body, level) if codec else body
    batch = bytearray(HEADER_BYTES)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        leader_epoch,
        2,
        0,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    seal(batch)
    return batch


def seal(batch: bytearray | memoryview) -> None:
    """Compute and store the CRC of the one batch in `batch`."""
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
