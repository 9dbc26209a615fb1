from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import CorruptMessage, InvalidRecord, KafkaError, UnsupportedCompressionType
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec, compress
from klamm.protocol.records.down_convert import down_convert
from klamm.protocol.records.message_set import (
    Message,
    encode_message,
    encode_set,
    messages,
    produced_set,
    records,
)

LIMIT = 1 << 24
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
CONTENT = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    made = []
    for _ in range(draw(st.integers(1, 8))):
        made.append(Record(offset, draw(st.integers(-1, 2**50)), draw(CONTENT), draw(CONTENT), draw(HEADERS)))
        offset += draw(st.integers(1, 5))
    return made


def as_magic(made: list[Record], magic: int) -> list[Record]:
    return [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in made]


GOLDEN_V0 = bytes.fromhex(
    "0000000000000007"  # offset 7
    "00000011"  # message size 17
    "61505427"  # crc-32 from the magic on
    "00"  # magic
    "00"  # attributes: no codec
    "00000001"  # key size
    "6b"  # "k"
    "00000002"  # value size
    "7631"  # "v1"
)
GOLDEN_V1 = bytes.fromhex(
    "0000000000000008"  # offset 8
    "00000018"  # message size 24
    "fafd4cc4"  # crc-32 from the magic on
    "01"  # magic
    "08"  # attributes: LogAppendTime
    "0000018bcfe56800"  # timestamp 1700000000000
    "ffffffff"  # key null
    "00000002"  # value size
    "7632"  # "v2"
)


def test_golden_message_of_magic_0() -> None:
    assert encode_message(0, 7, 123, b"k", b"v1").hex() == GOLDEN_V0.hex()
    assert list(messages(GOLDEN_V0)) == [Message(7, 0, 0, -1, b"k", b"v1", 29)]


def test_golden_message_of_magic_1() -> None:
    assert encode_message(1, 8, 1700000000000, None, b"v2", 8).hex() == GOLDEN_V1.hex()
    assert list(messages(GOLDEN_V1)) == [Message(8, 1, 8, 1700000000000, None, b"v2", 36)]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_holds_absolute_offsets_in_magic_0_and_relative_ones_in_magic_1(magic: int) -> None:
    made = [Record(100, 5, b"a", b"1"), Record(102, 9, b"b", b"2"), Record(103, 7, b"c", b"3")]
    packed = encode_set(made, magic, codec=Codec.GZIP)
    (wrapper,) = messages(packed)
    assert (wrapper.offset, wrapper.attributes, wrapper.key) == (103, 1, None)
    assert wrapper.timestamp == (9 if magic else -1)
    assert wrapper.value is not None
    inner = list(messages(zlib.decompress(wrapper.value, 31)))
    assert [entry.offset for entry in inner] == ([0, 2, 3] if magic else [100, 102, 103])


@pytest.mark.parametrize("magic", [0, 1])
@given(made=record_lists(), codec=st.sampled_from(OLD_CODECS))
def test_round_trip(magic: int, made: list[Record], codec: Codec) -> None:
    packed = encode_set(made, magic, codec=codec)
    assert list(records(memoryview(packed), LIMIT)) == as_magic(made, magic)


@given(made=record_lists(), cut=st.integers(1, 30))
def test_a_message_that_is_cut_short_ends_the_set(made: list[Record], cut: int) -> None:
    packed = encode_set(made, 1)
    last = encode_message(1, 2**50, 0, None, b"a value of some size")
    assert list(records(packed + last[:-cut], LIMIT)) == as_magic(made, 1)


def test_log_append_time_of_a_wrapper_holds_for_all_inside() -> None:
    inner = encode_message(1, 0, 5, None, b"a") + encode_message(1, 1, 6, None, b"b")
    wrapper = encode_message(1, 11, 99, None, compress(Codec.GZIP, inner), 8 | 1)
    assert list(records(wrapper, LIMIT)) == [Record(10, 99, None, b"a"), Record(11, 99, None, b"b")]


def test_a_bad_crc_or_size_is_corrupt() -> None:
    for at in range(12, len(GOLDEN_V0)):
        broken = bytearray(GOLDEN_V0)
        broken[at] ^= 0x40
        with pytest.raises(CorruptMessage):
            list(messages(broken))
    for size in (-1, 0, 13):
        with pytest.raises(CorruptMessage):
            list(messages(GOLDEN_V0[:8] + struct.pack(">i", size) + GOLDEN_V0[12:]))


# produced sets


def produce(packed: bytes | bytearray) -> tuple[list[Record], Codec, bool]:
    made, codec, append_time = produced_set(packed, max_message_bytes=1 << 20, limit=LIMIT)
    return made, codec, append_time


@pytest.mark.parametrize("magic", [0, 1])
@given(made=record_lists(), codec=st.sampled_from(OLD_CODECS))
def test_produced_records_get_offsets_from_0(magic: int, made: list[Record], codec: Codec) -> None:
    expected = [record._replace(offset=index) for index, record in enumerate(as_magic(made, magic))]
    assert produce(encode_set(made, magic, codec=codec)) == (expected, codec, False)


def test_wrong_inner_offsets_of_old_clients_are_ignored() -> None:
    inner = b"".join(encode_message(1, 0, i, None, b"%d" % i) for i in range(3))
    wrapper = encode_message(1, 0, 2, None, compress(Codec.GZIP, inner), 1)
    assert produce(wrapper)[0] == [Record(i, i, None, b"%d" % i) for i in range(3)]


def test_offset_of_a_wrapper_is_0_or_that_of_its_last_message_or_later() -> None:
    inner = b"".join(encode_message(1, i, i, None, b"%d" % i) for i in range(3))
    for offset in (0, 2, 7):
        wrapper = encode_message(1, offset, 2, None, compress(Codec.GZIP, inner), 1)
        assert [record.offset for record in produce(wrapper)[0]] == [0, 1, 2]
        assert [record.offset - max(0, offset - 2) for record in records(wrapper, LIMIT)] == [0, 1, 2]
    for offset in (-1, 1):
        with pytest.raises(InvalidRecord):
            produce(encode_message(1, offset, 2, None, compress(Codec.GZIP, inner), 1))


def test_one_compressed_message_a_set() -> None:
    wrapper = encode_set([Record(0, 1, None, b"a")], 1, codec=Codec.GZIP)
    for mixed in (wrapper + wrapper, wrapper + GOLDEN_V1, GOLDEN_V1 + wrapper):
        with pytest.raises(InvalidRecord):
            produce(mixed)


def test_one_magic_a_set() -> None:
    with pytest.raises(InvalidRecord):
        produce(GOLDEN_V0 + GOLDEN_V1)
    wrapper = encode_message(1, 0, 0, None, compress(Codec.GZIP, GOLDEN_V0), 1)
    with pytest.raises(InvalidRecord) as caught:
        produce(wrapper)
    assert [index for index, _ in caught.value.record_errors] == [0]


def test_nested_compression_is_invalid() -> None:
    inner = encode_set([Record(0, 1, None, b"a")], 1, codec=Codec.SNAPPY)
    wrapper = encode_message(1, 0, 0, None, compress(Codec.GZIP, GOLDEN_V1 + inner), 1)
    with pytest.raises(InvalidRecord) as caught:
        produce(wrapper)
    assert [index for index, _ in caught.value.record_errors] == [1]


@pytest.mark.parametrize("value", [None, b"junk", compress(Codec.GZIP, b""), compress(Codec.GZIP, GOLDEN_V1[:-1])])
def test_wrappers_that_hold_no_whole_set_are_invalid(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        produce(encode_message(1, 0, 0, None, value, 1))


def test_a_bad_crc_inside_a_wrapper_is_corrupt() -> None:
    broken = GOLDEN_V1[:-1] + b"x"
    with pytest.raises(CorruptMessage):
        produce(encode_message(1, 0, 0, None, compress(Codec.GZIP, broken), 1))


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_codecs_that_message_sets_do_not_have_are_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        produce(encode_message(1, 0, 0, None, b"value", codec))


@pytest.mark.parametrize("magic", [0, 1])
@given(made=record_lists(), codec=st.sampled_from(OLD_CODECS), data=st.data())
def test_mutated_sets_raise_only_kafka_errors(
    magic: int, made: list[Record], codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(encode_set(made, magic, codec=codec))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):  # as a client with a broken writer would: wrong, but with a right CRC
        packed[12:16] = zlib.crc32(packed[16:]).to_bytes(4, "big")
    for consume in (lambda: list(records(packed, LIMIT)), lambda: produce(packed), lambda: down_convert(packed, 0)):
        with contextlib.suppress(KafkaError):
            consume()


# conversion for old fetches


@pytest.mark.parametrize("magic", [0, 1])
@given(lists=st.lists(record_lists(), min_size=1, max_size=3), codec=st.sampled_from(OLD_CODECS), data=st.data())
def test_down_converted_batches_keep_offsets_and_gaps(
    magic: int, lists: list[list[Record]], codec: Codec, data: st.DataObject
) -> None:
    log = bytearray()
    expected: list[Record] = []
    for made in lists:
        shift = expected[-1].offset + 1 if expected else 0
        moved = [record._replace(offset=record.offset + shift) for record in made]
        log += encode_batch(moved, codec=codec, base_offset=moved[0].offset)
        expected += as_magic(moved, magic)
    half = encode_batch([Record(0, 0, b"k", b"v")])
    log += half[: data.draw(st.integers(0, len(half) - 1))]
    converted = down_convert(memoryview(log), magic)
    assert list(records(converted, LIMIT)) == expected
    assert {message.magic for message in messages(converted)} == {magic}
    assert {message.codec for message in messages(converted)} == {codec}
    if codec:
        assert len(list(messages(converted))) == len(lists)  # one wrapper for each batch
    first = data.draw(st.sampled_from(expected)).offset
    later = list(records(down_convert(log, magic, first_offset=first), LIMIT))
    assert [r for r in later if r.offset >= first] == [r for r in expected if r.offset >= first]
    if not codec:
        assert later == [r for r in expected if r.offset >= first]
    assert list(records(down_convert(converted, magic), LIMIT)) == expected
    assert list(records(down_convert(converted, 0), LIMIT)) == as_magic(expected, 0)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_down_converted_log_append_time(codec: Codec) -> None:
    made = [Record(0, 5, None, b"a"), Record(1, 6, None, b"b")]
    converted = down_convert(encode_batch(made, codec=codec, log_append_time_ms=99), 1)
    assert all(message.attributes & 8 and message.timestamp == 99 for message in messages(converted))
    assert [record.timestamp for record in records(converted, LIMIT)] == [99, 99]


def test_control_batches_are_left_out() -> None:
    control = encode_batch([Record(0, 1, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True)
    data = encode_batch([Record(1, 1, b"k", b"v")], base_offset=1)
    assert [r.offset for r in records(down_convert(control + data, 1), LIMIT)] == [1]
    assert down_convert(control, 0) == b""


def test_batches_without_records_are_left_out() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        assert down_convert(encode_batch([], codec=codec, last_offset=3), 1) == b""


def test_zstd_batches_are_unsupported() -> None:
    with pytest.raises(UnsupportedCompressionType):
        down_convert(encode_batch([Record(0, 1, b"k", b"v")], codec=Codec.ZSTD), 1)


def test_lz4_changes_its_header_checksum_on_the_way_to_magic_0() -> None:
    made = [Record(4, 1, b"k", b"v" * 100)]
    v1 = down_convert(encode_batch(made, codec=Codec.LZ4, base_offset=4), 1)
    (wrapper,) = messages(v1)
    (older,) = messages(down_convert(v1, 0))
    assert wrapper.value is not None and older.value is not None
    assert (wrapper.value[6], older.value[6]) == (0x82, 0x1A)
