"""Message sets (magic 0 and 1): produced and fetched by clients before 0.11, and stored in logs from that time.

Whatever was sent, an append writes magic 2.

    set     = entry*;  entry = offset i64 | size i32 | message
    message = crc u32 | magic i8 | attributes i8 | [timestamp i64, magic 1] | key | value
    key, value = size i32 (-1 is null) + bytes

The CRC is zlib's CRC-32 of everything from the magic on. Attributes: bits 0-2 codec, bit 3 LogAppendTime (magic 1).
With a codec, the value is a compressed message set and the message its wrapper, with the offset of the last inner
message. Inner offsets are absolute in magic 0; in magic 1 they are relative to the first (KIP-31), the wrapper's
timestamp is the largest inside (KIP-32), and its LogAppendTime holds for all inside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

from klamm.protocol.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType
from klamm.protocol.records.compression import CODEC_MASK, Codec, codec_of, compress, decompress
from klamm.protocol.records.crc import BytesLike
from klamm.protocol.records.header import (
    LOG_APPEND_TIME_FLAG,
    MIN_BATCH_BYTES,
    MIN_MESSAGE_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    UNKNOWN_COUNT,
    BatchHeader,
    Record,
)

ENTRY = struct.Struct(">qi")  # offset, size of the message
MESSAGE = struct.Struct(">Ibb")  # crc, magic, attributes
HEAD = struct.Struct(">qiIbb")  # entry and message
TIMESTAMP = struct.Struct(">q")
SIZE = struct.Struct(">i")
_HEAD_BYTES = {0: MESSAGE.size, 1: MESSAGE.size + TIMESTAMP.size}  # by magic, up to the key


class Message(NamedTuple):
    """One entry of a message set as stored; `size_bytes` counts the whole entry."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    size_bytes: int

    @property
    def codec(self) -> Codec:
        return codec_of(self.attributes)


def read_head(buf: BytesLike, pos: int) -> BatchHeader:
    """Return the entry at `pos`, unopened, as if it were a batch. The CRC is not checked.

    Raises CorruptMessage for an invalid entry. The bytes after the head may be missing.
    """
    if len(buf) - pos < MIN_BATCH_BYTES:
        raise CorruptMessage(f"{len(buf) - pos} bytes are too few for a message")
    offset, size, crc, magic, attributes = HEAD.unpack_from(buf, pos)
    if magic not in _HEAD_BYTES:
        raise CorruptMessage(f"message has magic {magic}, expected 0 or 1")
    if size < _HEAD_BYTES[magic] + 2 * SIZE.size:
        raise CorruptMessage(f"message of {size} bytes, the least is {_HEAD_BYTES[magic] + 2 * SIZE.size}")
    timestamp = TIMESTAMP.unpack_from(buf, pos + HEAD.size)[0] if magic else NO_TIMESTAMP
    attributes &= CODEC_MASK | (LOG_APPEND_TIME_FLAG if magic else 0)
    count = UNKNOWN_COUNT if attributes & CODEC_MASK else 1
    return BatchHeader(
        base_offset=offset,
        size_bytes=ENTRY.size + size,
        leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def read_message(data: bytes, pos: int) -> Message | None:
    """Return the entry at `pos`, or None when it is cut short. Raises CorruptMessage."""
    if len(data) - pos < ENTRY.size:
        return None
    offset, size = ENTRY.unpack_from(data, pos)
    if size < MIN_MESSAGE_BYTES:
        raise CorruptMessage(f"message of {size} bytes, the least is {MIN_MESSAGE_BYTES}")
    pos += ENTRY.size
    end = pos + size
    if end > len(data):
        return None
    crc, magic, attributes = MESSAGE.unpack_from(data, pos)
    if magic not in _HEAD_BYTES:
        raise CorruptMessage(f"message has magic {magic}, expected 0 or 1")
    if crc32(memoryview(data)[pos + 4 : end]) != crc:
        raise CorruptMessage(f"CRC of the message does not match: stored {crc:#010x}")
    body = pos + _HEAD_BYTES[magic]
    timestamp = TIMESTAMP.unpack_from(data, pos + MESSAGE.size)[0] if magic and body <= end else NO_TIMESTAMP
    key, body = _read_bytes(data, body, end)
    value, body = _read_bytes(data, body, end)
    if body != end:
        raise CorruptMessage(f"{end - body} bytes after the value of a message")
    return Message(offset, magic, attributes, timestamp, key, value, ENTRY.size + size)


def _read_bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    if pos + 4 > end:
        raise CorruptMessage("a message is too short for its fields")
    (size,) = SIZE.unpack_from(data, pos)
    pos += 4
    if size < 0:
        return None, pos
    if size > end - pos:
        raise CorruptMessage(f"{size} bytes in a message with {end - pos} left")
    return data[pos : pos + size], pos + size


def messages(buf: BytesLike) -> Iterator[Message]:
    """Yield the entries of a set, wrappers unopened, up to one that is cut short, as in old fetches."""
    data = bytes(buf)
    pos = 0
    while (message := read_message(data, pos)) is not None:
        yield message
        pos += message.size_bytes


def records(buf: BytesLike, limit: int) -> Iterator[Record]:
    """Yield all records of a set, wrappers opened, with absolute offsets. Raises CorruptMessage, InvalidRecord."""
    for message in messages(buf):
        if not message.attributes & CODEC_MASK:
            yield Record(message.offset, message.timestamp, message.key, message.value)
            continue
        inner = inner_messages(message, limit)
        base = message.offset - inner[-1].offset if message.magic and message.offset else 0
        append_time = message.attributes & LOG_APPEND_TIME_FLAG
        for entry in inner:
            timestamp = message.timestamp if append_time else entry.timestamp
            yield Record(base + entry.offset, timestamp, entry.key, entry.value)


def inner_messages(wrapper: Message, limit: int) -> list[Message]:
    """Return the messages in a wrapper: at least one, of its magic, not compressed again. Raises InvalidRecord.

    A producer may leave the offset of the wrapper at 0; any other must leave room for the messages before the last.
    """
    if wrapper.value is None:
        raise InvalidRecord("a compressed message has no value")
    data = decompress(wrapper.codec, wrapper.value, limit, magic=wrapper.magic)
    inner = list(messages(data))
    if not inner or sum(entry.size_bytes for entry in inner) != len(data):
        raise InvalidRecord("a compressed message set is empty or cut short")
    if wrapper.magic and wrapper.offset and wrapper.offset < inner[-1].offset:
        raise InvalidRecord(f"wrapper has offset {wrapper.offset}, the last message in it {inner[-1].offset}")
    errors = []
    for index, entry in enumerate(inner):
        if entry.attributes & CODEC_MASK:
            errors.append((index, "a compressed message inside a compressed message"))
        elif entry.magic != wrapper.magic:
            errors.append((index, f"magic {entry.magic} inside a wrapper of magic {wrapper.magic}"))
    if errors:
        raise InvalidRecord("a compressed message set holds messages that it must not hold", record_errors=errors)
    return inner


class ProducedSet(NamedTuple):
    """A produced message set as records with the offsets 0, 1, 2, ..., ready to be encoded as one batch."""

    records: list[Record]
    codec: Codec
    log_append_time: bool
    """Whether the producer set the timestamp type that only a broker may set."""


def produced_set(buf: BytesLike, *, max_message_bytes: int, limit: int) -> ProducedSet:
    """Read a Produce v0-v2 request's data for a partition: messages, or one compressed message, of one magic.

    Inner offsets are ignored, because some old clients set them wrongly. A last message that is cut short is dropped.
    Raises CorruptMessage, InvalidRecord, MessageTooLarge, UnsupportedCompressionType.
    """
    shallow = list(messages(buf))
    if not shallow:
        raise InvalidRecord("a produce request must have messages for each partition")
    first = shallow[0]
    append_time = False
    compressed = False
    for message in shallow:
        if message.magic != first.magic:
            raise InvalidRecord(f"message of magic {message.magic} in a set of magic {first.magic}")
        if message.size_bytes > max_message_bytes:
            raise MessageTooLarge(f"message of {message.size_bytes} bytes, max.message.bytes is {max_message_bytes}")
        compressed |= message.attributes & CODEC_MASK != 0
        append_time |= bool(message.magic and message.attributes & LOG_APPEND_TIME_FLAG)
    if not compressed:
        deep, codec = shallow, Codec.NONE
    elif len(shallow) > 1:
        raise InvalidRecord("a set with a compressed message must have no other message")
    else:
        codec = first.codec
        if codec == Codec.ZSTD:
            raise UnsupportedCompressionType("zstd needs magic 2")
        deep = inner_messages(first, limit)
    outer = first.timestamp if compressed and append_time else None
    return ProducedSet(
        [Record(i, m.timestamp if outer is None else outer, m.key, m.value) for i, m in enumerate(deep)],
        codec,
        append_time,
    )


def encode_message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    """Return one entry of a message set."""
    body = bytearray(struct.pack(">bb", magic, attributes))
    if magic:
        body += TIMESTAMP.pack(timestamp)
    for content in (key, value):
        body += SIZE.pack(-1 if content is None else len(content))
        body += content or b""
    return ENTRY.pack(offset, len(body) + 4) + crc32(body).to_bytes(4, "big") + body


def encode_set(
    records: Iterable[Record],
    magic: int,
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    log_append_time: bool = False,
) -> bytes:
    """Return a message set of `records`, with a codec as one wrapper; headers are lost. b"" for no records.

    `log_append_time` says that the timestamps are a broker's, the same in all records.
    """
    flag = LOG_APPEND_TIME_FLAG if magic and log_append_time else 0
    if codec == Codec.NONE:
        return b"".join(encode_message(magic, r.offset, r.timestamp, r.key, r.value, flag) for r in records)
    listed = list(records)
    if not listed:
        return b""
    if codec == Codec.ZSTD:
        raise UnsupportedCompressionType("zstd needs magic 2")
    base = listed[0].offset if magic else 0
    inner = b"".join(encode_message(magic, r.offset - base, r.timestamp, r.key, r.value) for r in listed)
    timestamp = max(r.timestamp for r in listed)
    packed = compress(codec, inner, level, magic=magic)
    return encode_message(magic, listed[-1].offset, timestamp, None, packed, codec | flag)
