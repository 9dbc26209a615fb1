from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import InvalidRecord, KafkaError, UnsupportedCompressionType
from klamm.protocol.records.compression import (
    GZIP_MAX_MEMBERS,
    LEVELS,
    XERIAL_HEAD,
    Codec,
    _xxh32,
    codec_of,
    compress,
    decompress,
)

LIMIT = 1 << 20
PACKED = [codec for codec in Codec if codec]
SAMPLE = b"".join(b"record %d of some text, " % i for i in range(20_000))  # 500 kB: several blocks in every codec


@pytest.mark.parametrize("magic", [0, 1, 2])
@given(codec=st.sampled_from(list(Codec)), data=st.binary(max_size=500), times=st.integers(1, 400))
def test_round_trip(magic: int, codec: Codec, data: bytes, times: int) -> None:
    whole = data * times
    packed = compress(codec, memoryview(whole), magic=magic)
    assert decompress(codec, memoryview(packed), len(whole), magic=magic) == whole


@pytest.mark.parametrize(("codec", "level"), [(c, v) for c, (low, high) in LEVELS.items() for v in (low, 1, 2, high)])
def test_every_level_is_readable(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, SAMPLE, level), LIMIT) == SAMPLE


@pytest.mark.parametrize("codec", PACKED)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, SAMPLE)
    assert decompress(codec, packed, len(SAMPLE)) == SAMPLE
    with pytest.raises(InvalidRecord):
        decompress(codec, packed, len(SAMPLE) - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(InvalidRecord):
        decompress(codec, bomb, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * LIMIT + 4 * len(bomb)


@pytest.mark.parametrize("codec", PACKED)
def test_what_is_cut_short_is_refused_at_every_length(codec: Codec) -> None:
    packed = compress(codec, b"some text, some text, some text")
    for size in range(len(packed)):
        if codec == Codec.SNAPPY and size == len(XERIAL_HEAD):
            continue  # a header alone is the frame of nothing
        with pytest.raises(InvalidRecord):
            decompress(codec, packed[:size], LIMIT)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("junk", [b"\0", b"junk" * 10])
def test_bytes_after_the_end_are_refused(codec: Codec, junk: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decompress(codec, compress(codec, b"some text") + junk, LIMIT)


@pytest.mark.parametrize("codec", PACKED)
@given(data=st.data())
def test_mutated_data_raises_only_kafka_errors(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, SAMPLE[:3000]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    for magic in (0, 2):
        with contextlib.suppress(KafkaError):
            decompress(codec, packed, 5000, magic=magic)


@pytest.mark.parametrize("codec", PACKED)
@given(junk=st.binary(max_size=200))
def test_random_data_raises_only_invalid_record(codec: Codec, junk: bytes) -> None:
    batch_headers = {Codec.GZIP: b"\x1f\x8b\x08", Codec.SNAPPY: XERIAL_HEAD, Codec.LZ4: b"\x04\x22\x4d\x18\x60"}
    for data in (junk, batch_headers.get(codec, b"\x28\xb5\x2f\xfd") + junk):
        with contextlib.suppress(InvalidRecord):
            decompress(codec, data, 1000)


def test_unknown_codecs_are_unsupported() -> None:
    assert [codec_of(attributes | 0x38) for attributes in range(5)] == list(Codec)
    for attributes in (5, 6, 7):
        with pytest.raises(UnsupportedCompressionType):
            codec_of(attributes)


@pytest.mark.parametrize("size", [1, 20_000, 300_000])
def test_many_gzip_members_cost_what_they_weigh(size: int) -> None:
    """All bytes after the end of a member used to be copied for each one."""
    members = min(GZIP_MAX_MEMBERS, 600_000 // size)
    data = random.Random(1).randbytes(size)
    assert decompress(Codec.GZIP, gzip.compress(data) * members, size * members) == data * members


def test_gzip_members_are_bounded_in_number() -> None:
    packed = gzip.compress(b"x") * GZIP_MAX_MEMBERS
    assert decompress(Codec.GZIP, packed, LIMIT) == b"x" * GZIP_MAX_MEMBERS
    with pytest.raises(InvalidRecord, match="members"):
        decompress(Codec.GZIP, packed + gzip.compress(b"x"), LIMIT)


def test_gzip_copies_a_slice_after_a_member_at_most() -> None:
    packed = gzip.compress(b"x") + gzip.compress(random.Random(1).randbytes(8 << 20), 0)
    tracemalloc.start()
    with pytest.raises(InvalidRecord):
        decompress(Codec.GZIP, packed, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LIMIT


def test_gzip_members_follow_each_other() -> None:
    packed = gzip.compress(b"one, ") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed, 8) == b"one, two"
    with pytest.raises(InvalidRecord):
        decompress(Codec.GZIP, packed, 7)


def test_snappy_without_a_frame_is_read() -> None:
    assert decompress(Codec.SNAPPY, snappy.compress(SAMPLE), LIMIT) == SAMPLE


def test_snappy_frame_is_javas() -> None:
    packed = compress(Codec.SNAPPY, SAMPLE[:40_000])
    assert packed[:16].hex() == (
        "82534e4150505900"  # 0x82 "SNAPPY" 0
        "00000001"  # version
        "00000001"  # lowest compatible version
    )
    (first,) = struct.unpack_from(">i", packed, 16)
    assert snappy.uncompress(packed[20 : 20 + first]) == SAMPLE[: 32 * 1024]
    (second,) = struct.unpack_from(">i", packed, 20 + first)
    assert snappy.uncompress(packed[24 + first :]) == SAMPLE[32 * 1024 : 40_000]
    assert len(packed) == 24 + first + second


def test_snappy_frames_follow_each_other() -> None:
    packed = compress(Codec.SNAPPY, b"one, ") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, packed, LIMIT) == b"one, two"


def test_snappy_declared_size_is_checked_before_anything_is_allocated() -> None:
    declared = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x07])  # 2 GiB
    for packed in (declared, XERIAL_HEAD + struct.pack(">i", 5) + declared):
        for limit in (LIMIT, 2**31):
            tracemalloc.start()
            with pytest.raises(InvalidRecord):
                decompress(Codec.SNAPPY, packed, limit)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 100_000


def test_declared_content_sizes_are_checked() -> None:
    plain = lz4.frame.compress(bytes(5000), block_linked=False, store_size=True)
    assert decompress(Codec.LZ4, plain, 5000) == bytes(5000)
    with pytest.raises(InvalidRecord, match="5000 bytes or more"):
        decompress(Codec.LZ4, plain, 4999)
    sized = zstandard.ZstdCompressor().compress(bytes(5000))
    with pytest.raises(InvalidRecord, match="5000 bytes or more"):
        decompress(Codec.ZSTD, sized, 4999)


def test_zstd_streams_without_sizes_with_checksums_and_in_several_frames() -> None:
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    stream = compressor.compressobj()
    noise = random.Random(5).randbytes(200_000)  # raw blocks
    packed = stream.compress(SAMPLE) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    packed += stream.compress(noise) + stream.compress(bytes(300_000)) + stream.flush()  # and repeated ones
    whole = SAMPLE + noise + bytes(300_000)
    assert decompress(Codec.ZSTD, packed, len(whole)) == whole
    assert decompress(Codec.ZSTD, packed + packed, 2 * len(whole)) == whole + whole
    with pytest.raises(InvalidRecord):
        decompress(Codec.ZSTD, packed + packed, 2 * len(whole) - 1)


@pytest.mark.parametrize(("data", "value"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32_vectors(data: bytes, value: int) -> None:
    assert _xxh32(data) == value


@pytest.mark.parametrize("sized", [False, True])
def test_lz4_header_checksum_of_magic_0_covers_the_magic_number_too(sized: bool) -> None:
    right = lz4.frame.compress(SAMPLE, block_linked=False, store_size=sized)
    at = 14 if sized else 6
    assert right[at] == _xxh32(right[4:at]) >> 8 & 0xFF
    wrong = right[:at] + bytes([_xxh32(right[:at]) >> 8 & 0xFF]) + right[at + 1 :]
    assert wrong != right
    assert decompress(Codec.LZ4, wrong, LIMIT, magic=0) == SAMPLE
    assert decompress(Codec.LZ4, right, LIMIT, magic=0) == SAMPLE  # some clients of magic 0 had it right
    for magic in (1, 2):
        with pytest.raises(InvalidRecord):
            decompress(Codec.LZ4, wrong, LIMIT, magic=magic)


def test_lz4_header_is_javas() -> None:
    assert compress(Codec.LZ4, b"x")[:7].hex() == (
        "04224d18"  # magic number, little endian
        "60"  # version 1, independent blocks, no checksums, no content size
        "40"  # blocks of 64 KiB at most
        "82"  # second byte of xxh32 of the two
    )
    assert compress(Codec.LZ4, b"x", magic=0)[:7].hex() == "04224d1860401a"


def test_lz4_dependent_blocks_and_dictionaries_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="not supported"):
        decompress(Codec.LZ4, lz4.frame.compress(SAMPLE, block_linked=True), LIMIT)
