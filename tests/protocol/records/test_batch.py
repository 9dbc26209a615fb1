from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import CorruptMessage, InvalidRecord
from klamm.protocol.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    batches,
    crc_is_valid,
    encode_batch,
    read_header,
    read_varint,
    records,
    stamp,
    write_varint,
)
from klamm.protocol.records.compression import Codec

LIMIT = 1 << 24
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.integers(-1, 2**62)
CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, max_gap: int = 300) -> list[Record]:
    offset = 0
    made = []
    for _ in range(draw(st.integers(1, 8))):
        made.append(Record(offset, draw(TIMESTAMPS), draw(CONTENT), draw(CONTENT), draw(HEADERS)))
        offset += draw(st.integers(1, max_gap))
    return made


GOLDEN = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "0000004b"  # batch length 75, from the leader epoch on
    "00000003"  # leader epoch 3
    "02"  # magic
    "69bfb5e7"  # crc-32c from the attributes on
    "0018"  # attributes: transactional, LogAppendTime, no codec
    "00000001"  # last offset delta 1
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56bff"  # max timestamp: the append time 1700000001023
    "00000000000003e9"  # producer id 1001
    "0005"  # producer epoch 5
    "0000000a"  # base sequence 10
    "00000002"  # record count
    "20"  # record: length 16
    "00"  # attributes
    "00"  # timestamp delta 0
    "00"  # offset delta 0
    "026b"  # key "k"
    "047631"  # value "v1"
    "02"  # one header
    "0268"  # its key "h"
    "0801020304"  # its value
    "10"  # record: length 8
    "00"  # attributes
    "c801"  # timestamp delta 100
    "02"  # offset delta 1
    "01"  # key null
    "0278"  # value "x"
    "00"  # no headers
)
GOLDEN_RECORDS = [
    Record(7, 1700000000000, b"k", b"v1", (("h", b"\1\2\3\4"),)),
    Record(8, 1700000000100, None, b"x"),
]


def test_golden_batch_is_written_byte_for_byte() -> None:
    batch = encode_batch(
        GOLDEN_RECORDS,
        base_offset=7,
        leader_epoch=3,
        producer_id=1001,
        producer_epoch=5,
        base_sequence=10,
        transactional=True,
        log_append_time_ms=1700000001023,
    )
    assert batch.hex() == GOLDEN.hex()


def test_golden_batch_is_read() -> None:
    header = read_header(GOLDEN)
    assert header == BatchHeader(
        base_offset=7,
        size_bytes=87,
        leader_epoch=3,
        magic=2,
        crc=0x69BFB5E7,
        attributes=0x18,
        last_offset_delta=1,
        base_timestamp=1700000000000,
        max_timestamp=1700000001023,
        producer_id=1001,
        producer_epoch=5,
        base_sequence=10,
        record_count=2,
    )
    assert (header.last_offset, header.next_offset, header.last_sequence) == (8, 9, 11)
    assert header.is_transactional and header.is_log_append_time and not header.is_control
    assert header.codec is Codec.NONE and not header.is_compressed and header.delete_horizon_ms is None
    assert crc_is_valid(GOLDEN, header)
    assert list(records(GOLDEN, header, LIMIT)) == [r._replace(timestamp=1700000001023) for r in GOLDEN_RECORDS]


@given(record_lists(), st.sampled_from(list(Codec)), st.integers(0, 2**40), st.integers(0, 1000))
def test_round_trip(made: list[Record], codec: Codec, base: int, lost: int) -> None:
    made = [record._replace(offset=record.offset + base) for record in made]
    last = made[-1].offset + lost
    batch = encode_batch(made, codec=codec, base_offset=base, last_offset=last)
    header = read_header(batch)
    assert header.codec is codec
    assert header.size_bytes == len(batch)
    assert header.last_offset == last
    assert header.max_timestamp == max(record.timestamp for record in made)
    assert crc_is_valid(batch, header)
    shifted = b"some bytes" + batch
    assert list(records(memoryview(shifted), read_header(shifted, 10), LIMIT, 10)) == made


@given(record_lists(), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_stamp_changes_offset_and_epoch_only(made: list[Record], base: int, epoch: int) -> None:
    batch = encode_batch(made)
    before = read_header(batch)
    stamp(memoryview(batch), base, epoch)
    after = read_header(batch)
    assert after == before._replace(base_offset=base, leader_epoch=epoch)
    assert crc_is_valid(batch, after)


def test_batches_stops_at_one_that_is_cut_short() -> None:
    one = encode_batch([Record(0, 1, b"k", b"v")])
    two = encode_batch([Record(1, 1, b"k", b"longer value")], base_offset=1)
    both = bytes(one + two)
    assert [(pos, h.base_offset) for pos, h in batches(both)] == [(0, 0), (len(one), 1)]
    for cut in range(len(one), len(both)):
        assert [h.base_offset for _, h in batches(both[:cut])] == [0]
    assert list(batches(b"")) == []


def test_headers_that_cannot_be_are_corrupt() -> None:
    good = encode_batch([Record(0, 1, b"k", b"v")])
    for broken in (good[: HEADER_BYTES - 1], good[:16] + b"\3" + good[17:], good[:8] + b"\0\0\0\x30" + good[12:]):
        with pytest.raises(CorruptMessage):
            read_header(broken)
        if len(broken) >= HEADER_BYTES:
            with pytest.raises(CorruptMessage):
                list(batches(broken))


def test_a_batch_that_lost_all_records_keeps_its_offsets() -> None:
    batch = encode_batch([], base_offset=5, last_offset=9, producer_id=1, producer_epoch=0, base_sequence=3)
    header = read_header(batch)
    assert (header.record_count, header.last_offset, header.last_sequence, header.max_timestamp) == (0, 9, 7, -1)
    assert list(records(batch, header, LIMIT)) == []


def test_sequences_wrap_after_the_largest() -> None:
    batch = encode_batch([Record(i, 0, None, b"") for i in range(5)], base_sequence=2**31 - 2, producer_id=1)
    assert read_header(batch).last_sequence == 2
    assert read_header(encode_batch([Record(0, 0, None, b"")])).last_sequence == -1


def test_control_batches() -> None:
    batch = encode_batch([Record(0, 5, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True)
    header = read_header(batch)
    assert header.is_control and header.is_transactional


@given(record_lists(), st.data())
def test_a_wrong_record_count_is_invalid(made: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(made)
    wrong = data.draw(st.integers(-3, 20).filter(lambda count: count != len(made)))
    batch[57:61] = wrong.to_bytes(4, "big", signed=True)
    with pytest.raises(InvalidRecord):
        list(records(batch, read_header(batch), LIMIT))


@given(record_lists(), st.sampled_from(list(Codec)), st.data())
def test_mutated_records_raise_only_invalid_record(made: list[Record], codec: Codec, data: st.DataObject) -> None:
    batch = encode_batch(made, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidRecord):
        list(records(batch, read_header(batch), 100_000))


def test_a_header_key_that_is_not_utf8_is_replaced() -> None:
    batch = encode_batch([Record(0, 0, None, None, (("ab", b"1"),))])
    batch[batch.index(b"ab")] = 0xFF
    (record,) = records(batch, read_header(batch), LIMIT)
    assert record.headers == (("�b", b"1"),)


@given(INT64)
def test_varint_round_trip(value: int) -> None:
    out = bytearray(b"x")
    write_varint(out, value)
    assert read_varint(bytes(out), 1, 70) == (value, len(out))
    if -(2**31) <= value < 2**31:
        assert read_varint(bytes(out), 1) == (value, len(out))
    else:
        with pytest.raises(InvalidRecord):
            read_varint(bytes(out), 1)


def test_varints_are_kafkas() -> None:
    for value, encoded in ((0, "00"), (-1, "01"), (63, "7e"), (-64, "7f"), (64, "8001"), (2**31 - 1, "feffffff0f")):
        out = bytearray()
        write_varint(out, value)
        assert out.hex() == encoded
    with pytest.raises(InvalidRecord):
        read_varint(b"\x80" * 9 + b"\x02", 0, 70)
