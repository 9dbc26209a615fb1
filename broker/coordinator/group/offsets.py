"""Committed offsets in memory: group, topic, partition -> offset, and when they expire.

All of them are in the log: a commit is added after its record is durable, a load adds those of the log. An offset
expires (KIP-211) when it is unused for ``offsets.retention.minutes``. The time counts from the moment its group became
empty; if the group consumes other topics, or never had members, from the commit itself. A commit with a retention time
of its own (OffsetCommit v2-4) expires at that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

NO_EPOCH = -1

Offset = tuple[str, int]  # topic, partition


class CommittedOffset(NamedTuple):
    """The committed offset of one partition. A topic id of zeros: not known."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_UUID

    def expired(self, now_ms: int, *, base_ms: int | None, retention_ms: int) -> bool:
        """Return whether the offset has expired. ``base_ms`` is the start of its unused time; None: the commit."""
        if self.expire_timestamp_ms is not None:
            return now_ms >= self.expire_timestamp_ms
        since_ms = self.commit_timestamp_ms if base_ms is None else base_ms
        return now_ms - since_ms >= retention_ms

    def is_stale(self, topic: TopicImage | None) -> bool:
        """Return whether the offset's topic was deleted, or replaced by the current `topic` of the same name."""
        return topic is None or self.topic_id not in (ZERO_UUID, topic.topic_id)


Topics = dict[str, dict[int, CommittedOffset]]


class OffsetTable:
    """The offsets of all groups of this broker."""

    def __init__(self) -> None:
        self._groups: dict[str, Topics] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, group: str) -> Topics:
        """Return topic -> partition -> offset; empty for an unknown group. Read-only."""
        return self._groups.get(group, {})

    def get(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        return partitions.get(partition) if partitions is not None else None

    def put(self, group: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        partitions = self._groups.setdefault(group, {}).setdefault(topic, {})
        if partition not in partitions:
            self._count += 1
        partitions[partition] = committed

    def remove(self, group: str, topic: str, partition: int) -> None:
        """Remove one offset, if it is there."""
        topics = self._groups.get(group)
        partitions = topics.get(topic) if topics is not None else None
        if topics is None or partitions is None or partitions.pop(partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[topic]
        if not topics:
            del self._groups[group]

    def forget(self, group: str) -> None:
        """Remove all offsets of a group from memory."""
        for partitions in self._groups.pop(group, {}).values():
            self._count -= len(partitions)

    def groups(self) -> Iterator[str]:
        """Return the groups that have offsets."""
        return iter(self._groups)
