"""The codecs of record batches and message sets, with every framing that clients write.

- GZIP: RFC 1952, with up to `GZIP_MAX_MEMBERS` consecutive members. Levels -1, 1..9 (-1).
- SNAPPY: raw snappy blocks in the frame of Java's SnappyOutputStream ("xerial"), or one raw block without a frame. `82
  "SNAPPY" 00 | version int32 | lowest compatible version int32 | (size int32, block)*`, 32 KiB of input a block.
- LZ4: the LZ4 frame format with independent blocks. Clients of magic 0 computed the header checksum over the magic
  number as well (KAFKA-3160); magic 0 is written that way here and read either way. Levels 1..17 (9, the fast one).
- ZSTD: RFC 8878. Levels -131072..22 (3).

The input is hostile: output stops at a limit, and a declared size is compared with the limit before anything is
allocated (CVE-2023-34455). Data that does not decompress to its very end raises InvalidRecord. An undefined codec
number raises UnsupportedCompressionType.
"""

from __future__ import annotations

import struct
import threading
import zlib
from enum import IntEnum

import lz4.frame
import snappy
import zstandard

from klamm.protocol.errors import InvalidRecord, UnsupportedCompressionType
from klamm.protocol.records.crc import BytesLike

CODEC_MASK = 0x07
"""The bits of a batch's or message's attributes that hold the codec."""


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's default levels by codec; the others have no level. -1 is zlib's own choice."""

XERIAL_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic, version, lowest compatible version
XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_MAGIC_AS_SIZE = int.from_bytes(XERIAL_HEAD[:4], "big")  # another header in the place of a block's size
_SNAPPY_WORST_RATIO = 32  # a 3-byte copy yields 64 bytes; nothing yields more per byte

GZIP_MAX_MEMBERS = 4096
"""No known client writes more than one. A member costs more than its bytes, since each begins a new window."""
_GZIP_SLICE_BYTES = 16 * 1024

LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE = 0x08
_LZ4_INDEPENDENT = 0x20
_LZ4_DICTIONARY = 0x01

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_RLE = 1

_CHUNK_BYTES = 64 * 1024
_MAX_STEP_BYTES = 4 * 1024 * 1024  # the output of a step is copied with the interpreter locked
_local = threading.local()  # zstd contexts are expensive to make and must not be shared between threads


def codec_of(attributes: int) -> Codec:
    """Return the codec in the attributes of a batch or message. Raises UnsupportedCompressionType for 5, 6 and 7."""
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"codec {codec} is unknown")
    return Codec(codec)


def compress(codec: Codec, data: BytesLike, level: int | None = None, *, magic: int = 2) -> bytes:
    """Compress `data` as a Java producer would; `level` None is Kafka's default for the codec."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip_compress(data, level)
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if codec == Codec.LZ4:
        return _lz4_compress(data, level, magic)
    return _zstd_compress(data, level)


def decompress(codec: Codec, data: BytesLike, limit: int, *, magic: int = 2) -> bytes:
    """Decompress `data` to at most `limit` bytes. Raises InvalidRecord when it is more, malformed or cut short."""
    if codec == Codec.NONE:
        return bytes(data) if len(data) <= limit else _too_large(len(data), limit)
    if codec == Codec.GZIP:
        return _gzip_decompress(data, limit)
    if codec == Codec.SNAPPY:
        return _snappy_decompress(data, limit)
    if codec == Codec.LZ4:
        return _lz4_decompress(data, limit, magic)
    return _zstd_decompress(data, limit)


class TooLargeInflated(InvalidRecord):
    """The data decompresses to more than the limit."""


def _too_large(size: int, limit: int) -> bytes:
    raise TooLargeInflated(f"decompressed records have {size} bytes or more, the limit is {limit}")


# gzip


def _gzip_compress(data: BytesLike, level: int | None) -> bytes:
    deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return deflate.compress(data) + deflate.flush()


def _gzip_decompress(data: BytesLike, limit: int) -> bytes:
    """Decompress in slices, so that at most one slice is copied after the end of a member."""
    view = memoryview(data)
    parts: list[bytes] = []
    size = pos = 0
    for _ in range(GZIP_MAX_MEMBERS):
        inflate = zlib.decompressobj(31)
        while not inflate.eof:
            piece = view[pos : pos + _GZIP_SLICE_BYTES]
            if not piece:
                raise InvalidRecord("gzip: the data is cut short")
            try:
                part = inflate.decompress(piece, limit - size + 1)
            except zlib.error as error:
                raise InvalidRecord(f"gzip: {error}") from None
            size += len(part)
            if size > limit:
                _too_large(size, limit)
            parts.append(part)
            pos += len(piece) - len(inflate.unused_data)
        if pos == len(view):
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise InvalidRecord(f"gzip: more than {GZIP_MAX_MEMBERS} members")


# snappy


def _snappy_compress(data: BytesLike) -> bytes:
    parts = [XERIAL_HEAD]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(data[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: BytesLike, limit: int) -> bytes:
    packed = bytes(data)
    if not packed.startswith(XERIAL_HEAD[:8]):
        return _snappy_block(packed, limit)
    parts: list[bytes] = []
    size = 0
    pos = len(XERIAL_HEAD)
    end = len(packed)
    while pos < end:
        block_size = int.from_bytes(packed[pos : pos + 4], "big")
        if block_size == _XERIAL_MAGIC_AS_SIZE:
            pos += len(XERIAL_HEAD)
            continue
        pos += 4
        if block_size > end - pos:
            raise InvalidRecord("snappy: a block is cut short")
        part = _snappy_block(packed[pos : pos + block_size], limit - size)
        parts.append(part)
        size += len(part)
        pos += block_size
    if pos != end:
        raise InvalidRecord("snappy: the header is cut short")
    return b"".join(parts)


def _snappy_block(block: bytes, limit: int) -> bytes:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise InvalidRecord("snappy: no block length")
    if declared > limit:
        _too_large(declared, limit)
    if declared > len(block) * _SNAPPY_WORST_RATIO:
        raise InvalidRecord(f"snappy: {len(block)} bytes cannot hold the declared {declared}")
    try:
        return bytes(snappy.uncompress(block))
    except snappy.UncompressError as error:
        raise InvalidRecord(f"snappy: {error.__cause__ or error}") from None


# lz4


def _lz4_compress(data: BytesLike, level: int | None, magic: int) -> bytes:
    # Java's level 9 is its fast compressor; every other level is a high-compression one, which start at 3 here.
    fast = level is None or level == DEFAULT_LEVELS[Codec.LZ4]
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if fast or level is None else max(level, 3),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic == 0:
        return frame[:6] + bytes([_xxh32(frame[:6]) >> 8 & 0xFF]) + frame[7:]
    return frame


def _lz4_decompress(data: BytesLike, limit: int, magic: int) -> bytes:
    frame = bytes(data)
    if len(frame) < 7 or not frame.startswith(LZ4_MAGIC):
        raise InvalidRecord("lz4: not an LZ4 frame")
    flags = frame[4]
    if flags & _LZ4_DICTIONARY or not flags & _LZ4_INDEPENDENT:
        raise InvalidRecord("lz4: dictionaries and dependent blocks are not supported")  # no Java consumer reads them
    head_end = 14 if flags & _LZ4_CONTENT_SIZE else 6
    if head_end >= len(frame):
        raise InvalidRecord("lz4: the header is cut short")
    if head_end == 14 and (declared := int.from_bytes(frame[6:14], "little")) > limit:
        _too_large(declared, limit)
    if magic == 0:
        frame = frame[:head_end] + bytes([_xxh32(frame[4:head_end]) >> 8 & 0xFF]) + frame[head_end + 1 :]
    return _lz4_inflate(frame, limit)


def _lz4_inflate(frame: bytes, limit: int) -> bytes:
    inflate = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    size = 0
    step = min(max(_CHUNK_BYTES, 4 * len(frame)), _MAX_STEP_BYTES)
    source = frame
    while not inflate.eof:
        try:
            part = inflate.decompress(source, max_length=min(step, limit - size + 1))
        except (RuntimeError, EOFError) as error:
            raise InvalidRecord(f"lz4: {error}") from None
        size += len(part)
        if size > limit:
            _too_large(size, limit)
        if not part and not inflate.eof:
            raise InvalidRecord("lz4: the data is cut short")
        parts.append(part)
        source = b""
        step = min(2 * step, _MAX_STEP_BYTES)
    if inflate.unused_data:
        raise InvalidRecord("lz4: bytes after the frame")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xxh32(data: bytes) -> int:
    """Return xxHash32, with seed 0, of fewer than 16 bytes: enough for a frame header."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    words = len(data) // 4 * 4
    for pos in range(0, words, 4):
        value = value + int.from_bytes(data[pos : pos + 4], "little") * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
    for byte in data[words:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


# zstd


def _zstd_compress(data: BytesLike, level: int | None) -> bytes:
    level = DEFAULT_LEVELS[Codec.ZSTD] if level is None else level
    cache: dict[int, zstandard.ZstdCompressor] = _local.__dict__.setdefault("compressors", {})
    compressor = cache.get(level)
    if compressor is None:
        compressor = cache[level] = zstandard.ZstdCompressor(level=level)
    return compressor.compress(data)


def _zstd_decompress(data: BytesLike, limit: int) -> bytes:
    """Decompress block by block: no block yields more than 128 KiB, so the limit is exceeded by at most that."""
    frame = bytes(data)
    decompressor: zstandard.ZstdDecompressor | None = _local.__dict__.get("decompressor")
    if decompressor is None:
        decompressor = _local.decompressor = zstandard.ZstdDecompressor()
    parts: list[bytes] = []
    size = 0
    pos = 0
    end = len(frame)
    try:
        while pos < end or not parts:
            inflate = decompressor.decompressobj()
            blocks_start, declared, checksum_bytes = _zstd_head(frame[pos : pos + 18])
            if declared > limit - size:
                _too_large(size + declared, limit)
            start, pos = pos, pos + blocks_start
            last = False
            while not last:
                block = int.from_bytes(frame[pos : pos + 3], "little")
                last = bool(block & 1)
                pos += 3 + (1 if block >> 1 & 3 == _ZSTD_BLOCK_RLE else block >> 3)
                if last:
                    pos += checksum_bytes
                if pos > end:
                    raise InvalidRecord("zstd: the data is cut short")
                part = inflate.decompress(frame[start:pos])
                start = pos
                parts.append(part)
                size += len(part)
                if size > limit:
                    _too_large(size, limit)
            if not inflate.eof:
                raise InvalidRecord("zstd: the data is cut short")
    except zstandard.ZstdError as error:
        raise InvalidRecord(f"zstd: {error}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_head(head: bytes) -> tuple[int, int, int]:
    """Return a frame header's size, the declared content size (0 for none), and the size of the checksum."""
    if not head.startswith(ZSTD_MAGIC):
        raise InvalidRecord("zstd: not a zstd frame")
    parameters = zstandard.get_frame_parameters(head)
    declared = parameters.content_size
    known = declared != zstandard.CONTENTSIZE_UNKNOWN
    return zstandard.frame_header_size(head), declared if known else 0, 4 if parameters.has_checksum else 0
