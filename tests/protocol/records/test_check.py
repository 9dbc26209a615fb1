"""Both twins: each alone against expected results; then that they agree, in results and errors, over any bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records._check import check_records as compiled
from klamm.protocol.records.batch import Record, read_record, write_record, write_varint
from klamm.protocol.records.check import IS_COMPILED, check_records, portable_check_records

Shape: TypeAlias = "tuple[int, int | None, int | None, list[tuple[str, int | None]]]"
Check: TypeAlias = "Callable[[bytes, int], tuple[int, int, int, bool]]"

BOTH = pytest.mark.parametrize("check", [portable_check_records, compiled], ids=["portable", "compiled"])
DELTAS = st.integers(-(2**40), 2**40) | st.integers(-70, 70) | st.sampled_from([0, 8191, 8192, -8192, -8193])
SIZES = st.none() | st.sampled_from([0, 1, 63, 64, 8191, 8192, 20000])
HEADERS = st.lists(st.tuples(st.sampled_from(["", "h", "k" * 70]), SIZES), max_size=2)
SHAPES = st.tuples(DELTAS, SIZES, SIZES, HEADERS)


def content(size: int | None) -> bytes | None:
    return None if size is None else b"\x81" * size


def encode(shapes: list[Shape]) -> bytes:
    out = bytearray()
    for index, (delta, key, value, headers) in enumerate(shapes):
        made = tuple((name, content(size)) for name, size in headers)
        write_record(out, index, delta, Record(0, 0, content(key), content(value), made))
    return bytes(out)


def test_the_compiled_one_is_taken() -> None:
    assert check_records is compiled and IS_COMPILED


@BOTH
@given(st.lists(SHAPES, min_size=1, max_size=5))
def test_summary_is_that_of_the_records(check: Check, shapes: list[Shape]) -> None:
    deltas = [shape[0] for shape in shapes]
    expected = (min(deltas), max(deltas), deltas.index(max(deltas)), any(shape[1] is None for shape in shapes))
    assert check(encode(shapes), len(shapes)) == expected


@BOTH
@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 20_000])
def test_offset_deltas_of_every_width(check: Check, count: int) -> None:
    assert check(encode([(i, None, 1, []) for i in range(count)]), count) == (0, count - 1, count - 1, True)


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


@BOTH
@given(st.lists(SHAPES, min_size=1, max_size=4), st.integers(-1, 1), st.data())
def test_agrees_with_the_record_reader_on_mutated_batches(
    check: Check, shapes: list[Shape], more: int, data: st.DataObject
) -> None:
    packed = bytearray(encode(shapes))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, min(len(packed) - 1, 40)))] = data.draw(st.integers(0, 255))
    cut = bytes(packed[: len(packed) - data.draw(st.sampled_from([0, 0, 0, 1, 5]))])
    count = max(1, len(shapes) + more)
    try:
        check(cut, count)
        accepted = True
    except InvalidRecord:
        accepted = False
    assert accepted == parses_one_by_one(cut, count)


@BOTH
@given(st.binary(max_size=80), st.integers(1, 3))
def test_agrees_with_the_record_reader_on_random_bytes(check: Check, data: bytes, count: int) -> None:
    try:
        check(data, count)
        accepted = True
    except InvalidRecord:
        accepted = False
    assert accepted == parses_one_by_one(data, count)


@BOTH
@pytest.mark.parametrize("overlong", ["8000", "808000", "8080808000"])
def test_overlong_varints_are_read_as_kafka_reads_them(check: Check, overlong: str) -> None:
    zero = bytes.fromhex(overlong)
    body = b"\0" + zero + zero + zero + zero + zero  # both deltas 0, key and value empty, no headers
    data = bytearray()
    write_varint(data, len(body))
    assert check(bytes(data + body), 1) == (0, 0, 0, False)


@BOTH
def test_a_huge_count_ends_with_the_data(check: Check) -> None:
    with pytest.raises(InvalidRecord, match="ends within record 1"):
        check(encode([(0, None, 1, [])]), 2**31 - 1)


# -- the twins beside each other


def outcome(check: Check, data: bytes, count: int) -> object:
    """The result, or the error as a whole: class, message, and the errors of single records."""
    try:
        return check(data, count)
    except InvalidRecord as error:
        return type(error), error.args, error.message, error.record_errors, error.__cause__


def assert_the_same(data: bytes, count: int) -> None:
    assert outcome(compiled, data, count) == outcome(portable_check_records, data, count), (data.hex(), count)


WHOLE = encode([(5, None, 70, [("h", 3), ("", None)]), (-(2**40), 2, None, []), (2**62, 64, 0, [("k" * 64, 0)])])
VARINTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.sampled_from([2**31 - 1, -(2**31), 2**32])


@given(st.lists(SHAPES, min_size=1, max_size=4), st.integers(-2, 2), st.data())
def test_twins_agree_on_mutated_batches(shapes: list[Shape], more: int, data: st.DataObject) -> None:
    packed = bytearray(encode(shapes))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    assert_the_same(bytes(packed[: len(packed) - data.draw(st.sampled_from([0, 0, 0, 1, 5]))]), len(shapes) + more)


@given(st.binary(max_size=80), st.integers(-1, 3))
def test_twins_agree_on_random_bytes(data: bytes, count: int) -> None:
    assert_the_same(data, count)


@given(st.lists(VARINTS, min_size=5, max_size=9), st.binary(max_size=40), st.integers(1, 2))
def test_twins_agree_on_lengths_that_lie(numbers: list[int], content: bytes, count: int) -> None:
    """Size, deltas, key, value and headers say anything; now and then the offset delta is right and the size fits."""
    for is_fitting in (False, True):
        body = bytearray(b"\0")
        write_varint(body, numbers[1])
        write_varint(body, 0 if is_fitting else numbers[2])
        for number in numbers[3:]:
            write_varint(body, number)
            body += content[: max(0, number)]
        packed = bytearray()
        write_varint(packed, len(body) if is_fitting else numbers[0])
        assert_the_same(bytes(packed + body), count)


def test_twins_agree_wherever_a_batch_is_cut() -> None:
    for size in range(len(WHOLE) + 1):
        for count in (0, 1, 3, 4):
            assert_the_same(WHOLE[:size], count)


def test_twins_agree_whatever_a_byte_is() -> None:
    for position in range(len(WHOLE)):
        for value in range(256):
            assert_the_same(WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :], 3)


def test_twins_agree_on_varints_of_every_length() -> None:
    for size in range(12):
        for last in (0, 1, 2, 0x0F, 0x10, 0x1F, 0x7F):
            odd = b"\x80" * size + bytes([last])
            for field in range(6):
                parts = [bytes([0])] * 6
                parts[field] = odd
                body = b"\0" + b"".join(parts[1:])
                assert_the_same((parts[0] if field == 0 else bytes([len(body) << 1])) + body, 1)


def test_twins_agree_on_many_records_with_a_wrong_byte() -> None:
    seed = random.randrange(2**32)
    print(f"{seed=}")
    source = random.Random(seed)
    count = 300
    packed = encode([(source.randrange(-9, 900), 3, source.randrange(90), []) for _ in range(count)])
    for _ in range(300):
        changed = bytearray(packed)
        changed[source.randrange(len(changed))] = source.randrange(256)
        assert_the_same(bytes(changed), count)


def test_any_memory_is_taken() -> None:
    expected = portable_check_records(WHOLE, 3)
    for check in (portable_check_records, compiled):
        for data in (WHOLE, bytearray(WHOLE), memoryview(bytearray(b"xx" + WHOLE))[2:]):
            assert check(data, 3) == expected
