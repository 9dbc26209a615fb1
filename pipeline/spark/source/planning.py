"""The plan of a read: options become partitions, start and end offsets, data loss, and tasks.

Works on a `Logs`: a cluster, or log directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from klamm.pipeline.errors import BadOption, DataLoss, UnknownTopic
from klamm.pipeline.kafka.cluster import Topic
from klamm.pipeline.kafka.topics import HasTopics, matching
from klamm.pipeline.ranges import EARLIEST, LATEST, OffsetRange, TopicPartition, split
from klamm.pipeline.spark.source.options import Bound, SourceOptions

Offsets = dict[TopicPartition, int]


class Logs(HasTopics, Protocol):
    """A source of topics and offsets."""

    def topics(self, names: Iterable[str] | None = None, *, missing_ok: bool = False) -> dict[str, Topic]: ...

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, partitions: Iterable[TopicPartition], isolation: int = ...) -> Offsets: ...

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], isolation: int = ...
    ) -> dict[TopicPartition, int | None]: ...


@dataclass(slots=True)
class Lost:
    """The handling of data loss: ignored, or raised."""

    fail: bool
    option: str = "failOnDataLoss"

    def tell(self, reason: str) -> None:
        if self.fail:
            raise DataLoss(f"{reason}; set failOnDataLoss to false to continue without")


def subscribed(logs: Logs, options: SourceOptions, *, missing_ok: bool = False) -> dict[TopicPartition, bytes]:
    """Return all selected partitions with their topic ids. Raises UnknownTopic."""
    if options.assigned is not None:
        return _assigned(logs, options.assigned, missing_ok=missing_ok)
    if options.pattern is not None:
        try:
            topics = matching(logs, options.pattern)
        except UnknownTopic:
            if not missing_ok:
                raise
            topics = {}
    else:
        topics = logs.topics(options.topics, missing_ok=missing_ok)
    return {partition: topic.topic_id for topic in topics.values() for partition in topic.topic_partitions}


def _assigned(logs: Logs, assigned: Iterable[TopicPartition], *, missing_ok: bool) -> dict[TopicPartition, bytes]:
    topics = logs.topics({partition.topic for partition in assigned}, missing_ok=missing_ok)
    found = {}
    for partition in assigned:
        topic = topics.get(partition.topic)
        if topic is not None and partition.partition in topic.partitions:
            found[partition] = topic.topic_id
        elif not missing_ok:
            raise UnknownTopic(f"assign: topic {partition.topic} has no partition {partition.partition}")
    return found


def offsets_at(logs: Logs, options: SourceOptions, bound: Bound, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return one end of the range in each partition. Raises BadOption for offsets and times of other partitions."""
    wanted = sorted(partitions)
    if bound.timestamp is not None:
        return _at_times(logs, options, bound, dict.fromkeys(wanted, bound.timestamp))
    if bound.timestamps is not None:
        _check_complete(bound.option, bound.timestamps, wanted)
        return _at_times(logs, options, bound, bound.timestamps)
    if bound.offsets is not None:
        _check_complete(bound.option, bound.offsets, wanted)
        return _with_ends(logs, options, bound.offsets)
    return _with_ends(logs, options, dict.fromkeys(wanted, bound.everywhere))


def _with_ends(logs: Logs, options: SourceOptions, offsets: Mapping[TopicPartition, int]) -> Offsets:
    """Replace EARLIEST and LATEST by the current offsets."""
    earliest = logs.earliest([partition for partition, offset in offsets.items() if offset == EARLIEST])
    latest = logs.latest([partition for partition, offset in offsets.items() if offset == LATEST], options.isolation)
    return {**offsets, **earliest, **latest}


def _at_times(logs: Logs, options: SourceOptions, bound: Bound, times: Mapping[TopicPartition, int]) -> Offsets:
    found = logs.offsets_for_times(times, options.isolation)
    none = sorted(partition for partition, offset in found.items() if offset is None)
    if none and bound is options.starting and not options.latest_without_match:
        raise BadOption(
            f"{bound.option}: {none[0]} has no record at or after {times[none[0]]};"
            " startingOffsetsByTimestampStrategy=latest begins at its end"
        )
    latest = logs.latest(none, options.isolation)
    return {partition: latest[partition] if offset is None else offset for partition, offset in found.items()}


def _check_complete(option: str, given: Mapping[TopicPartition, int], wanted: list[TopicPartition]) -> None:
    missing = sorted(set(wanted) - set(given))
    if missing:
        raise BadOption(f"{option} has nothing for {missing[0]}: it must name every partition that is read")
    if surplus := sorted(set(given) - set(wanted)):
        raise BadOption(f"{option} names {surplus[0]}, which is not read")


def batch_ranges(logs: Logs, options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges that a batch reads: one for each partition, perhaps empty."""
    partitions = subscribed(logs, options)
    starts = offsets_at(logs, options, options.starting, partitions)
    ends = offsets_at(logs, options, options.ending, partitions)
    earliest = logs.earliest(partitions)
    latest = logs.latest(partitions, options.isolation)
    lost = Lost(options.fail_on_data_loss)
    found = []
    for partition, topic_id in sorted(partitions.items()):
        start, end = starts[partition], ends[partition]
        if end > latest[partition] and options.ending.offsets is not None:
            raise BadOption(f"{options.ending.option}: {partition} ends at {latest[partition]}, there is no {end}")
        if start > latest[partition]:
            raise BadOption(f"{options.starting.option}: {partition} ends at {latest[partition]}, there is no {start}")
        if start < earliest[partition]:
            lost.tell(f"{partition}: offsets {start} to {earliest[partition]} are gone")
            start = earliest[partition]
        found.append(OffsetRange(partition.topic, partition.partition, start, max(start, end), topic_id))
    return found


def tasks(ranges: Iterable[OffsetRange], options: SourceOptions) -> list[OffsetRange]:
    """Cut the ranges as the options say."""
    return split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
