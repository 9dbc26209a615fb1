"""The bytes of MirrorMaker 2's topics, and which offset becomes which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.jobs.mirror.syncs import (
    MAX_KEPT,
    NOWHERE,
    Checkpoint,
    Run,
    Translation,
    checkpoint_key,
    checkpoint_value,
    read_sync,
    sync_key,
    sync_value,
)
from klamm.pipeline.ranges import TopicPartition


def test_bytes_of_an_offset_sync() -> None:
    key = bytes.fromhex("0002 6162 00000003")  # topic "ab", partition 3
    value = bytes.fromhex("0000000000000005 0000000000000007")  # upstream 5, downstream 7
    assert (sync_key(TopicPartition("ab", 3)), sync_value(5, 7)) == (key, value)
    assert read_sync(key, value) == (TopicPartition("ab", 3), 5, 7)


def test_bytes_of_a_checkpoint() -> None:
    one = Checkpoint("g", TopicPartition("ab", 3), 5, 7, "m")
    key = bytes.fromhex("0001 67 0002 6162 00000003")
    value = bytes.fromhex("0000 0000000000000005 0000000000000007 0001 6d")  # version 0 comes first
    assert (checkpoint_key(one), checkpoint_value(one)) == (key, value)


@pytest.mark.parametrize(
    ("key", "value"), [(b"", b""), (b"\0\1a\0\0\0\0", b"1234"), (b"\0\5a", bytes(16)), (b"\xff\xff", bytes(16))]
)
def test_what_is_no_sync_is_a_value_error(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_sync(key, value)


def translated(runs: list[Run], upstream: int) -> int | None:
    known = Translation()
    known.add(runs)
    return known.downstream(upstream)


def test_exact_within_a_run_and_never_too_far_below_it() -> None:
    runs = [Run(10, 100, 5), Run(20, 105, 2)]
    assert [translated(runs, at) for at in (9, 10, 14, 15, 17, 20, 21, 22, 50)] == [
        None,
        100,
        104,
        105,
        105,
        105,
        106,
        107,
        107,
    ]


def test_a_copy_that_began_again_further_back_makes_the_rest_void() -> None:
    assert translated([Run(10, 100, 5), Run(20, 105, 5), Run(12, 300, 5)], 21) == 305
    assert translated([Run(10, 100), Run(10, 100, 5)], 12) == 102
    assert translated([Run(10, NOWHERE, 0)], 12) is None


def test_old_runs_are_forgotten() -> None:
    known = Translation()
    known.add(Run(10 * at, 7 * at, 3) for at in range(MAX_KEPT + 1))
    assert len(known.runs) <= MAX_KEPT
    assert known.downstream(10 * MAX_KEPT) == 7 * MAX_KEPT
    assert known.downstream(0) is None


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 3)), max_size=30),
    st.integers(0, 200),
    st.data(),
)
def test_no_consumer_misses_a_record(steps: list[tuple[int, int, int]], asked: int, data: st.DataObject) -> None:
    """Against a list of all records, with any of the runs left out, as compaction may."""
    records: dict[int, int] = {}
    runs = []
    up = down = 0
    for count, gap_up, gap_down in steps:
        up, down = up + gap_up, down + gap_down
        runs.append(Run(up, down, data.draw(st.sampled_from([0, count]))))
        records |= {up + at: down + at for at in range(count)}
        up, down = up + count, down + count
    kept = [run for run in runs if data.draw(st.booleans())]
    found = translated(kept, asked)
    first = min((there for at, there in records.items() if at >= asked), default=None)
    if found is not None and first is not None:
        assert found <= first
