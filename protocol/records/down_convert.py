"""Convert batches of a log for fetches of clients before 0.11."""

from __future__ import annotations

from klamm.protocol.errors import CorruptMessage, UnsupportedCompressionType
from klamm.protocol.records.batch import MAGIC_POSITION, MIN_MESSAGE_BYTES, read_header
from klamm.protocol.records.batch import records as batch_records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.crc import BytesLike
from klamm.protocol.records.message_set import ENTRY, SIZE, encode_set, read_message
from klamm.protocol.records.message_set import records as set_records


def down_convert(buf: BytesLike, to_magic: int, *, first_offset: int = 0, limit: int = 2**31 - 1) -> bytes:
    """Return the whole batches or messages in `buf` (as in a log) for a Fetch v0-v1 (magic 0) or v2-v3 (magic 1).

    Offsets, gaps and codecs stay; headers and control batches are dropped. Records below `first_offset` are left out,
    unless they are compressed with later ones. Messages of `to_magic` or less stay as they are. A batch cut short at
    the end is ignored. Raises UnsupportedCompressionType for zstd, CorruptMessage and InvalidRecord.
    """
    out = bytearray()
    view = memoryview(buf)
    pos = 0
    end = len(buf)
    while end - pos > MAGIC_POSITION:
        size = SIZE.unpack_from(buf, pos + 8)[0] + ENTRY.size
        if size < MIN_MESSAGE_BYTES + ENTRY.size:
            raise CorruptMessage(f"batch at position {pos} has size {size}")
        if size > end - pos:
            break
        magic = buf[pos + MAGIC_POSITION]
        if magic == 2:
            out += _batch_to_set(view[pos : pos + size], to_magic, first_offset, limit)
        elif magic <= to_magic:
            out += view[pos : pos + size]
        else:
            out += _set_to_magic_0(bytes(view[pos : pos + size]), first_offset, limit)
        pos += size
    return bytes(out)


def _batch_to_set(batch: memoryview, to_magic: int, first_offset: int, limit: int) -> bytes:
    header = read_header(batch)
    if header.is_control or header.last_offset < first_offset:
        return b""
    codec = header.codec
    if codec == Codec.ZSTD:
        raise UnsupportedCompressionType("a zstd batch cannot be fetched before Fetch v10")
    kept = batch_records(batch, header, limit)
    if codec == Codec.NONE:
        kept = (record for record in kept if record.offset >= first_offset)
    return encode_set(kept, to_magic, codec=codec, log_append_time=header.is_log_append_time)


def _set_to_magic_0(data: bytes, first_offset: int, limit: int) -> bytes:
    message = read_message(data, 0)
    assert message is not None, "the caller passes whole messages"
    if message.offset < first_offset:
        return b""
    return encode_set(set_records(data, limit), 0, codec=message.codec)
