"""Streams groups (KIP-1071) in `__consumer_offsets`: kinds 17 and 19 to 23."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String, UInt16


@message(key=17, kind="coordinator-key", versions="0")
class StreamsGroupMetadataKey(Message):
    group_id: String = field()


@struct
class LastAssignmentConfig:
    key: String = field()
    value: String = field()


@message(key=17, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupMetadataValue(Message):
    epoch: Int32 = field()
    metadata_hash: Int64 = field()
    validated_topology_epoch: Int32 = field(default=-1, tag=0, tagged="0+")
    last_assignment_configs: list[LastAssignmentConfig] | None = field(nullable="0+", tag=1, tagged="0+")
    stored_description_topology_epoch: Int32 = field(default=-1, tag=2, tagged="0+")
    failed_description_topology_epoch: Int32 = field(default=-1, tag=3, tagged="0+")


@message(key=19, kind="coordinator-key", versions="0")
class StreamsGroupMemberMetadataKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class Endpoint:
    host: String = field()
    port: UInt16 = field()


@struct
class KeyValue:
    key: String = field()
    value: String = field()


@message(key=19, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue(Message):
    instance_id: String | None = field(nullable="0+")
    rack_id: String | None = field(nullable="0+")
    client_id: String = field()
    client_host: String = field()
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32 = field()
    process_id: String = field()
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] = field()


@message(key=20, kind="coordinator-key", versions="0")
class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: String = field()


@message(key=20, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32 = field()
    assignment_timestamp: Int64 = field(default=0, tag=0, tagged="0+", ignorable=True)


@message(key=21, kind="coordinator-key", versions="0")
class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TargetTaskIds:
    """Kafka's TaskIds of this message."""

    subtopology_id: String = field()
    partitions: list[Int32] = field()


@message(key=21, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue(Message):
    active_tasks: list[TargetTaskIds] = field()
    standby_tasks: list[TargetTaskIds] = field()
    warmup_tasks: list[TargetTaskIds] = field()


@message(key=22, kind="coordinator-key", versions="0")
class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TaskIds:
    """`assignment_epochs`, of active tasks only, has one epoch for each of `partitions`."""

    subtopology_id: String = field()
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0, tagged="0+")


@message(key=22, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()
    active_tasks_pending_revocation: list[TaskIds] = field()
    standby_tasks_pending_revocation: list[TaskIds] = field()
    warmup_tasks_pending_revocation: list[TaskIds] = field()


@message(key=23, kind="coordinator-key", versions="0")
class StreamsGroupTopologyKey(Message):
    group_id: String = field()


@struct
class TopicConfig:
    key: String = field()
    value: String = field()


@struct
class TopicInfo:
    name: String = field()
    partitions: Int32 = field()
    replication_factor: Int16 = field()
    topic_configs: list[TopicConfig] = field()


@struct
class CopartitionGroup:
    """Indexes into the arrays of the subtopology."""

    source_topics: list[Int16] = field()
    source_topic_regex: list[Int16] = field()
    repartition_source_topics: list[Int16] = field()


@struct
class Subtopology:
    subtopology_id: String = field()
    source_topics: list[String] = field()
    source_topic_regex: list[String] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[String] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@message(key=23, kind="coordinator-value", versions="0", flexible="0+")
class StreamsGroupTopologyValue(Message):
    epoch: Int32 = field()
    subtopologies: list[Subtopology] = field()
