"""Share groups (KIP-932) in `__consumer_offsets`: kinds 10 to 15."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Int8, Int32, Int64, String, Uuid


@message(key=10, kind="coordinator-key", versions="0")
class ShareGroupMemberMetadataKey(Message):
    group_id: String = field()
    member_id: String = field()


@message(key=10, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMemberMetadataValue(Message):
    rack_id: String | None = field(nullable="0+")
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: list[String] = field()


@message(key=11, kind="coordinator-key", versions="0")
class ShareGroupMetadataKey(Message):
    group_id: String = field()


@message(key=11, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupMetadataValue(Message):
    epoch: Int32 = field()
    metadata_hash: Int64 = field()


@message(key=12, kind="coordinator-key", versions="0")
class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: String = field()


@message(key=12, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: Int32 = field()
    assignment_timestamp: Int64 = field(default=0, tag=0, tagged="0+", ignorable=True)


@message(key=13, kind="coordinator-key", versions="0")
class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartition:
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


@message(key=13, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue(Message):
    topic_partitions: list[TopicPartition] = field()


@message(key=14, kind="coordinator-key", versions="0")
class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartitions:
    topic_id: Uuid = field()
    partitions: list[Int32] = field()


@message(key=14, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue(Message):
    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    assigned_partitions: list[TopicPartitions] = field()


@message(key=15, kind="coordinator-key", versions="0")
class ShareGroupStatePartitionMetadataKey(Message):
    group_id: String = field()


@struct
class TopicPartitionsInfo:
    topic_id: Uuid = field()
    topic_name: String = field()
    partitions: list[Int32] = field()


@struct
class TopicInfo:
    topic_id: Uuid = field()
    topic_name: String = field()


@message(key=15, kind="coordinator-value", versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue(Message):
    initializing_topics: list[TopicPartitionsInfo] = field()
    initialized_topics: list[TopicPartitionsInfo] = field()
    deleting_topics: list[TopicInfo] = field()
