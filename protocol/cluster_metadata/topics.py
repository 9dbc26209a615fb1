"""Topics, their partitions and all configs in the cluster metadata.

A `PartitionChangeRecord` has the changes as tagged fields. `leader` -2 keeps the leader; any other value, even the same
one, begins a new leader epoch. Configs of topics (resource type 2) and brokers (4) share one record.
"""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message
from klamm.protocol.wire import Int8, Int32, String, Uuid


@message(key=2, kind="metadata", versions="0", flexible="0+")
class TopicRecord(Message):
    name: String = field()
    topic_id: Uuid = field()


@message(key=9, kind="metadata", versions="0", flexible="0+")
class RemoveTopicRecord(Message):
    topic_id: Uuid = field()


@message(key=3, kind="metadata", versions="0-2", flexible="0+")
class PartitionRecord(Message):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid = field()
    replicas: list[Int32] = field()
    isr: list[Int32] = field()
    removing_replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+")
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", default=None, tag=2)


@message(key=5, kind="metadata", versions="0-2", flexible="0+")
class PartitionChangeRecord(Message):
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid = field()
    isr: list[Int32] | None = field(nullable="0+", default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: list[Int32] | None = field(nullable="0+", default=None, tag=2)
    removing_replicas: list[Int32] | None = field(nullable="0+", default=None, tag=3)
    adding_replicas: list[Int32] | None = field(nullable="0+", default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", nullable="2+", default=None, tag=7)


@message(key=28, kind="metadata", versions="0", flexible="0+")
class ClearElrRecord(Message):
    topic_name: String = field()


@message(key=4, kind="metadata", versions="0", flexible="0+")
class ConfigRecord(Message):
    resource_type: Int8 = field()
    resource_name: String = field()
    name: String = field()
    value: String | None = field(nullable="0+", sensitive=True)
