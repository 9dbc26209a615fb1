"""Intervals of offsets beside plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.jobs.verify.intervals import Interval, common, count, merged, runs, shown, without

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair))))


def members(intervals: list[Interval]) -> set[int]:
    return {offset for start, end in intervals for offset in range(start, end)}


@given(INTERVALS, INTERVALS)
def test_as_sets(one: list[Interval], other: list[Interval]) -> None:
    assert members(merged(one)) == members(one)
    assert members(without(one, other)) == members(one) - members(other)
    assert members(common(one, other)) == members(one) & members(other)
    assert count(merged(one)) == len(members(one))
    assert list(runs(np.array(sorted(members(one)), np.int64))) == merged(one)


def test_shown() -> None:
    assert shown([(3, 4), (7, 10)]) == "3, 7-9"
    assert shown([(at, at + 1) for at in range(0, 10, 2)], most=2) == "0, 2 and 3 more ranges"
