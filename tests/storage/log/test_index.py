from __future__ import annotations

import errno
from bisect import bisect_right
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.log.index import OffsetIndex, TimeIndex
from tests.support.memory_filesystem import MemoryFilesystem

PATH = Path("/i")


def test_offset_index_format() -> None:
    filesystem = MemoryFilesystem()
    index = OffsetIndex(filesystem, PATH, 1000)
    index.append(1004, 0)
    index.append(1017, 4200)
    index.write_out()
    assert filesystem.read_bytes(PATH) == bytes.fromhex(
        "00000004"  # relative offset 4
        "00000000"  # position 0
        "00000011"  # relative offset 17
        "00001068"  # position 4200
    )


def test_time_index_format() -> None:
    filesystem = MemoryFilesystem()
    index = TimeIndex(filesystem, PATH, 1000)
    index.maybe_append(1_700_000_000_000, 1004)
    index.maybe_append(1_700_000_000_000, 1005)  # not above the last one: left out
    index.maybe_append(1_700_000_000_001, 1017)
    index.write_out()
    assert filesystem.read_bytes(PATH) == bytes.fromhex(
        "0000018bcfe56800"  # timestamp
        "00000004"  # relative offset 4
        "0000018bcfe56801"  # timestamp
        "00000011"  # relative offset 17
    )


def test_write_out_cuts_a_preallocated_file() -> None:
    filesystem = MemoryFilesystem()
    filesystem.open_file(PATH, create=True).truncate(10 << 20)
    index = OffsetIndex(filesystem, PATH, 0)
    index.append(5, 0)
    index.write_out()
    assert len(filesystem.read_bytes(PATH)) == 8


def test_truncate_below_first_entry_empties_the_index() -> None:
    filesystem = MemoryFilesystem()
    index = OffsetIndex(filesystem, PATH, 100)
    index.append(105, 0)
    index.truncate(100)
    assert (index.count, index.lookup(200)) == (0, 0)


def test_entries_stay_in_memory_while_the_disk_is_full() -> None:
    filesystem = MemoryFilesystem()
    filesystem.inject("write", errno.ENOSPC)
    index = OffsetIndex(filesystem, PATH, 0)
    for number in range(5000):
        index.append(number * 2, number)
    assert [index.lookup(number * 2 + 1) for number in (0, 2500, 4999)] == [0, 2500, 4999]
    filesystem.heal()
    index.append(10_000, 5000)
    index.write_out()
    assert len(filesystem.read_bytes(PATH)) == 5001 * 8


@pytest.mark.parametrize("padding", [2, 7, 5000])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 1000])
def test_zeros_after_the_entries_are_skipped_and_cut_off(count: int, padding: int) -> None:
    """Apache Kafka leaves its preallocated indexes like this when it is killed."""
    filesystem = MemoryFilesystem()
    offsets, times = OffsetIndex(filesystem, PATH, 50), TimeIndex(filesystem, Path("/t"), 50)
    for number in range(count):
        offsets.append(51 + number, number * 9)
        times.maybe_append(number, 50 + number)  # the first is all zeros, and an entry
    for index, size in ((offsets, 8), (times, 12)):
        index.write_out().truncate((count + padding) * size)
    again, times_again = OffsetIndex(filesystem, PATH, 50), TimeIndex(filesystem, Path("/t"), 50)
    again.open_existing((count + padding) * 8)
    times_again.open_existing((count + padding) * 12)
    assert again.count == count
    assert times_again.count == (count if count != 1 else 0)  # zeros alone are no entry
    assert again.lookup(10_000) == max(0, count - 1) * 9
    again.append(5000, 77_777)
    again.write_out()
    assert len(filesystem.read_bytes(PATH)) == (count + 1) * 8
    assert again.lookup(5000) == 77_777


class Watched:
    """A Struct that notes where it is asked to look."""

    def __init__(self, field: Struct) -> None:
        self.size = field.size
        self._field = field
        self.looked_at: list[int] = []

    def unpack_from(self, buffer: bytes, position: int = 0) -> tuple[int, ...]:
        self.looked_at.append(position)
        return self._field.unpack_from(buffer, position)


def looked_at(keys: list[int], value: int) -> list[int]:
    """The bytes of the file that a look-up touches."""
    filesystem = MemoryFilesystem()
    index = OffsetIndex(filesystem, PATH, 0)
    for number, key in enumerate(keys):
        index.append(key, number)
    index.write_out()
    again = OffsetIndex(filesystem, PATH, 0)
    again.open_existing(len(keys) * 8)
    watched = Watched(Struct(">i"))
    again._key = watched  # type: ignore[assignment]
    assert again.lookup(value) == bisect_right(keys, value) - 1
    return [position for position in watched.looked_at if position]


def test_a_look_up_among_even_entries_touches_few_of_them() -> None:
    keys = [number * 200 + number % 7 for number in range(100_000)]
    for number in (0, 1, 5, 50_000, 77_777, 99_990, 99_998):
        touched = looked_at(keys, number * 200 + 100)
        assert len(touched) <= 8
        page = number * 8 // 4096
        assert {position // 4096 for position in touched} <= {page - 1, page, page + 1, 99_998 * 8 // 4096}


def test_a_look_up_among_uneven_entries_takes_no_longer_than_twice_a_bisection() -> None:
    keys = [number**3 // 1_000_000 + number for number in range(1000)] + [2**30 + number for number in range(1000)]
    for value in (0, 1, 500, 999, 2000, 2**30 - 1, 2**30, 2**30 + 500, 2**31 - 1):
        assert len(looked_at(keys, value)) <= 2 * 11 + 3


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 900)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=12,
)


@given(steps)
def test_offset_index_against_bisect(script: list[tuple[str, int]]) -> None:
    filesystem = MemoryFilesystem()
    index = OffsetIndex(filesystem, PATH, 50)
    model: list[tuple[int, int]] = []
    for step, amount in script:
        if step == "append":
            for _ in range(amount):
                entry = (model[-1][0] + 3, model[-1][1] + 7) if model else (53, 0)
                model.append(entry)
                index.append(*entry)
        elif step == "truncate":
            offset = 50 + (model[-1][0] - 50) * amount // 100 if model else 50
            model = [entry for entry in model if entry[0] < offset]
            index.truncate(offset)
        else:
            index.write_out()
            index = OffsetIndex(filesystem, PATH, 50)
            index.open_existing(len(filesystem.read_bytes(PATH)))
        assert index.count == len(model)
        offsets = [offset for offset, _ in model]
        for offset in {50, 51, 53, *range(55, 50 + 3 * len(model) + 9, 97), *(offsets[-2:])}:
            at = bisect_right(offsets, offset) - 1
            assert index.lookup(offset) == (model[at][1] if at >= 0 else 0)


@given(steps)
def test_time_index_against_bisect(script: list[tuple[str, int]]) -> None:
    filesystem = MemoryFilesystem()
    index = TimeIndex(filesystem, PATH, 50)
    model: list[tuple[int, int]] = []
    offset = 50
    for step, amount in script:
        if step == "append":
            for number in range(amount):
                offset += 3
                timestamp = 1000 + offset * 2 - (number % 3) * 7
                index.maybe_append(timestamp, offset)
                if timestamp > (model[-1][0] if model else -1):
                    model.append((timestamp, offset))
        elif step == "truncate":
            offset = 50 + (offset - 50) * amount // 100
            model = [entry for entry in model if entry[1] < offset]
            index.truncate(offset)
        else:
            index.write_out()
            index = TimeIndex(filesystem, PATH, 50)
            index.open_existing(len(filesystem.read_bytes(PATH)))
        assert index.count == len(model)
        assert index.last() == (model[-1] if model else (-1, 50))
        times = [time for time, _ in model]
        for timestamp in {0, *range(1100, 1100 + offset * 2, 211), *times[-2:]}:
            at = bisect_right(times, timestamp) - 1
            assert index.lookup(timestamp) == (model[at] if at >= 0 else (-1, 50))
