from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import Record, read_record, write_record, write_varint
from klamm.protocol.records.check import check_records

DELTAS = st.integers(-(2**40), 2**40) | st.integers(-70, 70) | st.sampled_from([0, 8191, 8192, -8192, -8193])
SIZES = st.none() | st.sampled_from([0, 1, 63, 64, 8191, 8192, 20000])
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "k" * 70]), SIZES), max_size=2)
SHAPES = st.tuples(DELTAS, SIZES, SIZES, HEADERS)


def content(size: int | None) -> bytes | None:
    return None if size is None else b"\x81" * size


def encode(shapes: list[tuple[int, int | None, int | None, list[tuple[str, int | None]]]]) -> bytes:
    out = bytearray()
    for index, (delta, key, value, headers) in enumerate(shapes):
        made = tuple((name, content(size)) for name, size in headers)
        write_record(out, index, delta, Record(0, 0, content(key), content(value), made))
    return bytes(out)


@given(st.lists(SHAPES, min_size=1, max_size=5))
def test_summary_is_that_of_the_records(
    shapes: list[tuple[int, int | None, int | None, list[tuple[str, int | None]]]],
) -> None:
    deltas = [shape[0] for shape in shapes]
    expected = (min(deltas), max(deltas), deltas.index(max(deltas)), any(shape[1] is None for shape in shapes))
    assert check_records(encode(shapes), len(shapes)) == expected


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 20_000])
def test_offset_deltas_of_every_width(count: int) -> None:
    assert check_records(encode([(i, None, 1, []) for i in range(count)]), count) == (0, count - 1, count - 1, True)


def parses_one_by_one(data: bytes, count: int) -> bool:
    pos = 0
    try:
        for index in range(count):
            _, offset_delta, _, _, _, pos = read_record(data, pos)
            if offset_delta != index:
                return False
    except (InvalidRecord, IndexError):
        return False
    return pos == len(data)


@given(st.lists(SHAPES, min_size=1, max_size=4), st.integers(-1, 1), st.data())
def test_agrees_with_the_record_reader_on_mutated_batches(
    shapes: list[tuple[int, int | None, int | None, list[tuple[str, int | None]]]], more: int, data: st.DataObject
) -> None:
    packed = bytearray(encode(shapes))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, min(len(packed) - 1, 40)))] = data.draw(st.integers(0, 255))
    cut = bytes(packed[: len(packed) - data.draw(st.sampled_from([0, 0, 0, 1, 5]))])
    count = max(1, len(shapes) + more)
    try:
        check_records(cut, count)
        accepted = True
    except InvalidRecord:
        accepted = False
    assert accepted == parses_one_by_one(cut, count)


@given(st.binary(max_size=80), st.integers(1, 3))
def test_agrees_with_the_record_reader_on_random_bytes(data: bytes, count: int) -> None:
    try:
        check_records(data, count)
        accepted = True
    except InvalidRecord:
        accepted = False
    assert accepted == parses_one_by_one(data, count)


@pytest.mark.parametrize("overlong", ["8000", "808000", "8080808000"])
def test_overlong_varints_are_read_as_kafka_reads_them(overlong: str) -> None:
    zero = bytes.fromhex(overlong)
    body = b"\0" + zero + zero + zero + zero + zero  # both deltas 0, key and value empty, no headers
    data = bytearray()
    write_varint(data, len(body))
    assert check_records(bytes(data + body), 1) == (0, 0, 0, False)


def test_a_huge_count_ends_with_the_data() -> None:
    with pytest.raises(InvalidRecord, match="ends within record 1"):
        check_records(encode([(0, None, 1, [])]), 2**31 - 1)
