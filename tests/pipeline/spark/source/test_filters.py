"""Filters that are pushed down leave the rows that Spark would leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.spark.source.filters import Pushed

RANGES = [OffsetRange("a", 0, 10, 20), OffsetRange("a", 1, 0, 5), OffsetRange("ab", 0, 0, 50)]
COMPARE = {
    EqualTo: int.__eq__,
    GreaterThan: int.__gt__,
    GreaterThanOrEqual: int.__ge__,
    LessThan: int.__lt__,
    LessThanOrEqual: int.__le__,
}


def left(*filters: Filter, since: dict[TopicPartition, int | None] | None = None) -> list[str]:
    pushed = Pushed()
    assert pushed.push(filters) == []
    return [str(item) for item in pushed.cut(RANGES, since or {})]


def test_topics_and_partitions_are_chosen() -> None:
    assert left(EqualTo(("topic",), "ab")) == ["ab-0 offsets 0 to 50"]
    assert left(StringStartsWith(("topic",), "ab"), EqualTo(("partition",), 1)) == []
    assert left(Not(EqualTo(("Topic",), "ab")), In(("PARTITION",), (1, 2))) == ["a-1 offsets 0 to 5"]
    assert left(IsNotNull(("topic",)), GreaterThan(("partition",), 0)) == ["a-1 offsets 0 to 5"]


@given(st.lists(st.tuples(st.sampled_from(sorted(COMPARE, key=str)), st.integers(-2, 60)), max_size=4))
def test_offsets_are_cut_as_spark_would_filter(filters: list[tuple[type[Filter], int]]) -> None:
    pushed = Pushed()
    assert pushed.push([kind(("offset",), value) for kind, value in filters]) == []  # type: ignore[call-arg]
    kept = {
        (item.topic_partition, offset)
        for item in RANGES
        for offset in range(item.start, item.end)
        if all(COMPARE[kind](offset, value) for kind, value in filters)
    }
    cut = pushed.cut(RANGES, {})
    assert {(item.topic_partition, offset) for item in cut for offset in range(item.start, item.end)} == kept
    assert all(item.count for item in cut)


@pytest.mark.parametrize(
    ("kind", "micros", "since_ms"),
    [
        (GreaterThanOrEqual, 5000, 5),
        (GreaterThanOrEqual, 5001, 6),
        (GreaterThan, 5000, 6),
        (GreaterThan, 4999, 5),
        (EqualTo, 5000, 5),
        (LessThan, 5000, None),
    ],
)
def test_a_lower_bound_of_the_time_is_used_and_still_checked_by_spark(
    kind: type[Filter], micros: int, since_ms: int | None
) -> None:
    pushed = Pushed()
    item = kind(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros))  # type: ignore[call-arg]
    assert pushed.push([item]) == [item]
    assert pushed.since_ms == since_ms


def test_times_move_the_start_of_each_partition() -> None:
    pushed = Pushed(since_ms=5)
    since = {TopicPartition("a", 0): 12, TopicPartition("a", 1): None, TopicPartition("ab", 0): 50}
    assert [str(item) for item in pushed.cut(RANGES, since)] == ["a-0 offsets 12 to 20"]


@pytest.mark.parametrize(
    "item",
    [
        EqualTo(("value",), b"x"),
        IsNotNull(("key",)),
        IsNull(("topic",)),
        Not(EqualTo(("offset",), 3)),
        In(("offset",), (1, 2)),
        EqualTo(("topic", "x"), "a"),
        EqualTo(("timestampType",), 0),
    ],
)
def test_other_filters_are_left_to_spark(item: Filter) -> None:
    pushed = Pushed()
    assert pushed.push([item]) == [item]
    assert pushed.cut(RANGES, {}) == RANGES
