"""How work is shared out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.spark.tasks import grouped


@given(counts=st.lists(st.integers(0, 1000), min_size=1, max_size=50), most=st.integers(1, 10))
def test_every_item_is_in_one_group_and_no_group_is_much_larger(counts: list[int], most: int) -> None:
    items = [OffsetRange("t", number, 0, count) for number, count in enumerate(counts)]
    groups = grouped(items, most)
    assert len(groups) == min(most, len(items))
    assert sorted((pair for group in groups for pair in group), key=lambda pair: pair[0]) == list(enumerate(items))
    weights = [sum(item.count + 1 for _, item in group) for group in groups]
    if len(items) > most:
        assert max(weights) - min(weights) <= max(counts) + 1


def test_each_item_alone_by_default() -> None:
    items = [OffsetRange("t", number, 0, 1) for number in range(3)]
    assert grouped(items, None) == [[(0, items[0])], [(1, items[1])], [(2, items[2])]]
