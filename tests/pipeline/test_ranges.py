"""Ranges of offsets, and how they are cut into tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.errors import BadOption
from klamm.pipeline.ranges import (
    OffsetRange,
    TopicPartition,
    flat,
    nested,
    parse_assignment,
    parse_offsets,
    split,
)

RANGES = st.lists(
    st.builds(
        lambda partition, start, count: OffsetRange("t", partition, start, start + count),
        st.integers(0, 5),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=8,
)
LIMITS = st.none() | st.integers(1000, 10**7)


@given(RANGES, st.none() | st.integers(1, 50), LIMITS)
def test_the_parts_of_a_split_are_the_whole(
    ranges: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    parts = split(ranges, min_partitions=min_partitions, max_records=max_records)
    joined: list[OffsetRange] = []
    for part in parts:
        assert part.count > 0
        assert max_records is None or part.count <= max_records
        last = joined[-1] if joined else None
        if last is not None and last.partition == part.partition and last.end == part.start:
            joined[-1] = OffsetRange("t", last.partition, last.start, part.end)
        else:
            joined.append(part)
    whole: list[OffsetRange] = []
    for item in ranges:  # neighbours that happen to touch are joined in both
        if whole and whole[-1].partition == item.partition and whole[-1].end == item.start and item.count:
            whole[-1] = OffsetRange("t", item.partition, whole[-1].start, item.end)
        elif item.count:
            whole.append(item)
    assert joined == whole


def test_large_ranges_get_more_of_the_tasks() -> None:
    parts = split([OffsetRange("t", 0, 0, 300), OffsetRange("t", 1, 0, 100)], min_partitions=4)
    assert [(part.partition, part.start, part.end) for part in parts] == [
        (0, 0, 100),
        (0, 100, 200),
        (0, 200, 300),
        (1, 0, 100),
    ]


def test_offsets_are_read_and_written_as_the_connector_has_them() -> None:
    offsets = parse_offsets("startingOffsets", '{"b": {"10": 5, "2": -1}, "a": {"0": -2}}')
    assert offsets == {TopicPartition("b", 10): 5, TopicPartition("b", 2): -1, TopicPartition("a", 0): -2}
    assert list(nested(offsets)["b"]) == ["2", "10"]
    assert flat(nested(offsets)) == offsets
    assert parse_assignment("assign", '{"t": [1, 0]}') == [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"t": 1}', '{"t": {"0": "1"}}', '{"t": {"-1": 1}}', '{"t": {"0": true}}']
)
def test_offsets_of_another_form_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadOption, match="startingOffsets has the form"):
        parse_offsets("startingOffsets", text)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"t": 1}', '{"t": [-1]}', '{"t": ["0"]}'])
def test_assignments_of_another_form_are_refused_by_name(text: str) -> None:
    with pytest.raises(BadOption, match="assign has the form"):
        parse_assignment("assign", text)
