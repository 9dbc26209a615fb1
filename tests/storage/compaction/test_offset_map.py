"""The map of keys against a dict, and its density."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.compaction import offset_map
from klamm.storage.compaction.offset_map import BUCKET_SLOTS, DICT_ENTRY_BYTES, DICT_SHARE, SLOT_BYTES, OffsetMap

KEYS = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 300).map(lambda number: b"%d" % number),
    st.integers(0, 20).map(bytes),  # zeros, as in what fills up a short key
    st.tuples(st.integers(0, 15), st.integers(0, 3)).map(lambda each: bytes(each[0]) + bytes([each[1]])),
)


@pytest.mark.parametrize("slots", [1, 5, 33, 100, 100_000])
@given(keys=st.lists(KEYS, max_size=300))
def test_a_map_is_a_dict_that_may_be_full(slots: int, keys: list[bytes]) -> None:
    found, model = OffsetMap(slots * SLOT_BYTES, 0.9), dict[bytes, int]()
    assert found.capacity == max(1, int(slots * 0.9))
    for offset, key in enumerate(keys):
        fits = key in model or len(model) < found.capacity
        latest = found.latest
        assert found.put(key, offset) == fits
        assert found.latest == (offset if fits else latest)
        if fits:
            model[key] = offset
    assert len(found) == len(model)
    for key in keys:
        assert found.get(key) == model.get(key, -1)


@pytest.mark.parametrize("load_factor", [0.9, 1.0])
def test_a_full_table_holds_every_key(load_factor: float) -> None:
    rng = random.Random(1)
    found = OffsetMap(20_000 * SLOT_BYTES, load_factor)
    keys = [rng.randbytes(rng.randint(8, 24)) for _ in range(found.capacity)]
    assert all(found.put(key, offset) for offset, key in enumerate(keys))
    assert not found.put(b"one more", 1 << 40)
    assert found.latest == found.capacity - 1 == len(found) - 1
    assert [found.get(key) for key in keys] == list(range(len(keys)))
    assert found.get(b"one more") == -1
    assert found.put(keys[0], 1 << 40)
    assert found.get(keys[0]) == 1 << 40


def test_one_key_at_the_end_of_another_is_not_there() -> None:
    """The end of one slot and the beginning of the next look like a third key."""
    found = OffsetMap(BUCKET_SLOTS * SLOT_BYTES)
    for size in range(16):
        assert found.put(bytes(size), size)
    assert not any(found._few)
    slots = [bytes(found._keys[at : at + 16]) for at in range(0, 16 * 16, 16)]
    for one, other in itertools.pairwise(slots):
        for at in range(1, 16):
            assert found._find((one + other)[at : at + 16]) < 0 or (one + other)[at : at + 16] in slots


def test_the_memory_is_what_was_asked_for() -> None:
    """The default buffer of 128 MiB has room for as many keys as Apache Kafka's: 5 million."""
    assert OffsetMap(128 << 20, 0.9).capacity == 5_033_164
    memory = 1 << 20
    tracemalloc.start()
    try:
        found = OffsetMap(memory, 0.9)
        for number in range(found.capacity):
            assert found.put(b"key-%d" % number, number)
            if number % 100 == 0:
                assert tracemalloc.get_traced_memory()[0] < memory * 1.1
        assert tracemalloc.get_traced_memory()[1] < memory * 1.3  # while the dict is given up
    finally:
        tracemalloc.stop()
    assert len(found) == found.capacity


def test_few_keys_stay_in_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    found = OffsetMap(DICT_SHARE * DICT_ENTRY_BYTES * 10)
    monkeypatch.setattr(offset_map.OffsetMap, "_give_dict_up", lambda self: pytest.fail("too early"))
    for number in range(10):
        assert found.put(b"%d" % number, number)
    assert found.put(b"0", 10)
    assert [found.get(b"%d" % number) for number in range(11)] == [10, *range(1, 10), -1]
