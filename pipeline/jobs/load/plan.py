"""The plan of a load: the offsets to read, and the offsets that the table must have.

A topic partition in the table continues at its next offset; a new one begins where `start` says. Offsets that are no
longer in the log are data loss, and stop the plan, or are a gap recorded in the commit. So is a topic that was deleted
and created again: its offsets restart, and the table then has two records of one offset.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from klamm.pipeline.errors import BadOption, DataLoss, NotATable, UnknownTopic
from klamm.pipeline.ranges import NO_TOPIC_ID, OffsetRange, TopicPartition
from klamm.pipeline.spark.source.options import Bound, SourceOptions
from klamm.pipeline.spark.source.planning import Logs, offsets_at, subscribed
from klamm.pipeline.table import DataFile, Table
from klamm.pipeline.table.files import MIXED
from klamm.pipeline.table.offsets import is_recreated

Gap = tuple[int, int]


@dataclass(slots=True)
class Plan:
    """A commit to make. `ranges` may have empty ones; `gaps` are half-open, `recreated` are topics."""

    ranges: list[OffsetRange]
    expected: dict[TopicPartition, int | None]
    gaps: dict[TopicPartition, Gap] = field(default_factory=dict)
    recreated: list[str] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)
    since_ms: int | None = None
    job: str = "load"

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Return the next offsets after this commit."""
        return {item.topic_partition: item.end for item in self.ranges}

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {item.topic: item.topic_id for item in self.ranges}

    @property
    def count(self) -> int:
        return sum(item.count for item in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Return whether a commit would change nothing."""
        return not (
            self.removed
            or self.gaps
            or self.recreated
            or any(self.expected[item.topic_partition] != item.end for item in self.ranges)
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts to record in the commit."""
        found: dict[str, Any] = {
            "job": self.job,
            "ranges": _by_topic((item.topic_partition, [item.start, item.end]) for item in self.ranges if item.count),
        }
        if self.gaps:
            found["gaps"] = _by_topic((partition, [list(gap)]) for partition, gap in self.gaps.items())
        if self.recreated:
            found["recreated"] = self.recreated
        if self.since_ms is not None:
            found["rerun_from"] = shown_time(self.since_ms)
        return found

    def cut(self, ends: Mapping[TopicPartition, int]) -> Plan:
        """Return the same plan up to other ends."""
        ranges = [replace(item, end=min(item.end, ends.get(item.topic_partition, item.end))) for item in self.ranges]
        return replace(self, ranges=ranges)


@dataclass(slots=True)
class Planner:
    """What makes plans. `start` is for topic partitions that are not in the table yet."""

    logs: Logs
    options: SourceOptions
    start: Bound
    gaps_allowed: bool = False

    def plan(self, table: Table | None) -> Plan:
        """Plan from the table's offsets to the ends of the logs. Raises UnknownTopic, DataLoss."""
        committed = table.next_offsets if table is not None else {}
        ids = table.topic_ids if table is not None else {}
        partitions = subscribed(self.logs, self.options)
        recreated = {item.topic for item, number in partitions.items() if is_recreated(ids, item.topic, number)}
        if recreated:
            self._lost(f"topic {min(recreated)} was deleted and created again: it is not the one loaded before")
        known = {item: committed[item] for item in partitions if item in committed and item.topic not in recreated}
        return self._ranges(partitions, known, committed, sorted(recreated))

    def rerun(self, table: Table, since_ms: int) -> Plan:
        """Plan from the table's offsets at a time; files loaded later are removed in the same commit."""
        starts, version = loaded_since(table, since_ms)
        partitions = subscribed(self.logs, self.options)
        gone = sorted(set(starts) - set(partitions))
        topics = {item.topic for item in partitions}
        if lost := [item for item in gone if item.topic in topics]:
            raise UnknownTopic(f"{lost[0]} was loaded after {shown_time(since_ms)} and no longer exists")
        ids = table.topic_ids
        if recreated := [item for item, number in partitions.items() if is_recreated(ids, item.topic, number)]:
            raise DataLoss(f"topic {recreated[0].topic} was deleted and created again: its old records are gone")
        again = {item: offset for item, offset in starts.items() if item in partitions}
        known = {item: offset for item, offset in table.next_offsets.items() if item in partitions} | again
        plan = self._ranges(partitions, known, table.next_offsets, [])
        plan.removed = _added_since(table, version, again)
        plan.since_ms = since_ms
        return plan

    def rebuild(self, table: Table | None) -> Plan:
        """Plan everything from the starts of the logs, in place of the table's files of these topics."""
        partitions = subscribed(self.logs, self.options)
        plan = self._ranges(partitions, {}, table.next_offsets if table is not None else {}, [])
        topics = {item.topic for item in partitions}
        plan.removed = [file for file in table.files() if file.topic in topics] if table is not None else []
        return plan

    def _ranges(
        self,
        partitions: Mapping[TopicPartition, bytes],
        known: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
        recreated: list[str],
    ) -> Plan:
        earliest = self.logs.earliest(partitions)
        latest = self.logs.latest(partitions, self.options.isolation)
        new = offsets_at(self.logs, self.options, self._start(partitions, known), sorted(set(partitions) - set(known)))
        plan = Plan([], {item: committed.get(item) for item in partitions}, recreated=recreated)
        for item, topic_id in sorted(partitions.items()):
            start, end = known.get(item, new.get(item, 0)), latest[item]
            if item.topic in recreated:
                start = earliest[item]
            if start < earliest[item]:
                self._lost(f"{item}: offsets {start} to {earliest[item]} are no longer in the log")
                plan.gaps[item] = (start, earliest[item])
                start = earliest[item]
            if start > end and self.options.connection is not None:
                self._lost(f"{item}: the log ends at {end}, below {start} where this load would continue")
                plan.gaps[item] = (end, start)
                start = end if topic_id != NO_TOPIC_ID else earliest[item]
            plan.ranges.append(OffsetRange(item.topic, item.partition, start, max(start, end), topic_id))
        return plan

    def _start(self, partitions: Iterable[TopicPartition], known: Container[TopicPartition]) -> Bound:
        """Return the start, which may name partitions in the table by now, but none that is not read."""
        if self.start.offsets is None:
            return self.start
        if unread := sorted(set(self.start.offsets) - set(partitions)):
            raise BadOption(f"{self.start.option} names {unread[0]}, which is not read")
        offsets = {item: offset for item, offset in self.start.offsets.items() if item not in known}
        return replace(self.start, offsets=offsets)

    def _lost(self, reason: str) -> None:
        if not self.gaps_allowed:
            raise DataLoss(f"{reason}; nothing was written. --on-data-loss gap records it and continues")


def loaded_since(table: Table, since_ms: int) -> tuple[dict[TopicPartition, int], int | None]:
    """Return the lowest offset loaded by commits after a time, and the version before (None: there was no table)."""
    starts: dict[TopicPartition, int] = {}
    seen = table.version + 1
    for commit in table.commits():
        if commit.timestamp_ms <= since_ms:
            return starts, commit.version
        seen = commit.version
        for topic, partitions in commit.facts.get("ranges", {}).items():
            for number, (start, _) in partitions.items():
                partition = TopicPartition(topic, int(number))
                starts[partition] = min(start, starts.get(partition, start))
    if seen > 0:
        raise NotATable(
            f"{table.location}: its log begins at version {seen}, which is after {shown_time(since_ms)}; "
            "earlier loads are unknown"
        )
    return starts, None


def _added_since(table: Table, version: int | None, starts: Mapping[TopicPartition, int]) -> list[DataFile]:
    before = set() if version is None else {file.path for file in Table.open(table.location, version).files()}
    topics = {item.topic for item in starts}
    found = []
    for file in table.files():
        if file.path in before or file.topic not in topics:
            continue
        if file.partition == MIXED or file.first < starts.get(file.topic_partition, 0):
            raise NotATable(
                f"{table.location}: {file.path} holds records loaded before and after (was the table optimised?); "
                "choose an earlier time"
            )
        if file.topic_partition in starts:
            found.append(file)
    return found


def _by_topic(items: Iterable[tuple[TopicPartition, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (topic, partition), value in items:
        found.setdefault(topic, {})[str(partition)] = value
    return found


def shown_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
