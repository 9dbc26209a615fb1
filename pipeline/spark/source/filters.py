"""Filters that Spark pushes down: on topic, partition, offset and timestamp.

Topic and partition choose partitions, offsets cut the ranges; Spark need not check these again. A lower bound of the
timestamp moves the start to the first record at or after it, which the broker's time index finds; Spark still checks
the filter, as later records may be older. An upper bound cannot cut anything, for the same reason. All other filters
are left to Spark.

Spark pushes filters down when `spark.sql.python.filterPushdown.enabled` is set, as `klamm.pipeline.spark.session` does.
But Spark 4.2 keeps the plan of a Python source with the loaded DataFrame. When that is used again with other filters,
or with none, it gets the partitions of the filters that were pushed last, and rows are silently missing. So nothing is
pushed unless the option `pushFilters` is true. The option promises that the DataFrame has the same filters wherever it
is used:

    spark.read.format("klamm").option("pushFilters", "true")....load().where("partition = 3 and offset >= 1000")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from klamm.pipeline.ranges import OffsetRange, TopicPartition

COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda found, wanted: bool(found == wanted),
    EqualNullSafe: lambda found, wanted: bool(found == wanted),
    GreaterThan: lambda found, wanted: bool(found > wanted),
    GreaterThanOrEqual: lambda found, wanted: bool(found >= wanted),
    LessThan: lambda found, wanted: bool(found < wanted),
    LessThanOrEqual: lambda found, wanted: bool(found <= wanted),
    In: lambda found, wanted: found in wanted,
    StringStartsWith: lambda found, wanted: found.startswith(wanted),
    StringEndsWith: lambda found, wanted: found.endswith(wanted),
    StringContains: lambda found, wanted: wanted in found,
}
NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestamptype")
END: Final = 2**63 - 1
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Pushed:
    """The pushed filters: tests of partitions, offsets [first, end), and a time before which no record is wanted."""

    tests: list[Filter] = field(default_factory=list)
    first: int = 0
    end: int = END
    since_ms: int | None = None

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take the filters that can be applied here; return those that Spark must check."""
        return [item for item in filters if not self._take(item)]

    def keeps(self, partition: TopicPartition) -> bool:
        """Return whether any record of the partition can pass."""
        return all(_test(item, partition) for item in self.tests)

    def cut(self, ranges: Iterable[OffsetRange], since: Mapping[TopicPartition, int | None]) -> list[OffsetRange]:
        """Cut the ranges to the offsets that can pass; `since` has the offsets of `since_ms`."""
        found = []
        for item in ranges:
            partition = item.topic_partition
            if not self.keeps(partition):
                continue
            start = max(item.start, self.first)
            if self.since_ms is not None:
                offset = since[partition]
                start = max(start, item.end if offset is None else offset)
            end = min(item.end, self.end)
            if start < end:
                found.append(replace(item, start=start, end=end))
        return found

    def _take(self, item: Filter) -> bool:
        """Take a filter; return whether Spark need not check it any more."""
        column = column_of(item)
        if isinstance(item, IsNotNull):
            return column in NEVER_NULL
        if column in ("topic", "partition") and _is_comparison(item):
            self.tests.append(item)
            return True
        value = getattr(item, "value", None)
        if column == "offset" and isinstance(value, int):
            return self._take_offset(item, value)
        if column == "timestamp" and isinstance(value, datetime):
            self._take_time(item, value)
        return False

    def _take_offset(self, item: Filter, value: int) -> bool:
        first, end = 0, END
        if isinstance(item, EqualTo | EqualNullSafe):
            first, end = value, value + 1
        elif isinstance(item, GreaterThan | GreaterThanOrEqual):
            first = value + isinstance(item, GreaterThan)
        elif isinstance(item, LessThan | LessThanOrEqual):
            end = value + isinstance(item, LessThanOrEqual)
        else:
            return False
        self.first, self.end = max(self.first, first), min(self.end, end)
        return True

    def _take_time(self, item: Filter, value: datetime) -> None:
        since = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        micros = (since - EPOCH) // (datetime.resolution)
        if isinstance(item, GreaterThan):
            since_ms = micros // 1000 + 1
        elif isinstance(item, GreaterThanOrEqual | EqualTo | EqualNullSafe):
            since_ms = -(-micros // 1000)
        else:
            return
        if since_ms >= 0:
            self.since_ms = max(since_ms, self.since_ms or 0)


def column_of(item: Filter) -> str:
    """Return the column in lower case, "" for a part of a column."""
    inner = item.child if isinstance(item, Not) else item
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0].lower() if len(path) == 1 else ""


def _is_comparison(item: Filter) -> bool:
    inner = item.child if isinstance(item, Not) else item
    return type(inner) in COMPARISONS and getattr(inner, "value", None) is not None


def _test(item: Filter, partition: TopicPartition) -> bool:
    inner = item.child if isinstance(item, Not) else item
    found = partition.topic if column_of(item) == "topic" else partition.partition
    passed = COMPARISONS[type(inner)](found, getattr(inner, "value"))  # noqa: B009
    return passed is not isinstance(item, Not)
