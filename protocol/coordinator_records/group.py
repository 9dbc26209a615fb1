"""The records of ``__consumer_offsets``: offsets and groups, as Kafka's coordinator keeps them in its log.

        key   = version i16 | fields        the version is the kind of record; the fields are those of version 0
    value = version i16 | fields        null: a tombstone

    key 0, 1  OffsetCommitKey                          value OffsetCommitValue 0-4
    key 2     GroupMetadataKey                         value GroupMetadataValue 0-4     a classic group
    key 3     ConsumerGroupMetadataKey                 value ...                        epoch of a consumer group
    key 4     ConsumerGroupPartitionMetadataKey        value ...                        its topics, before Kafka 4.1
        key 5     ConsumerGroupMemberMetadataKey           value ...                        subscription of a member
    key 6     ConsumerGroupTargetAssignmentMetadataKey value ...                        epoch of the target assignment
        key 7     ConsumerGroupTargetAssignmentMemberKey   value ...                        target assignment of a
        member
        key 8     ConsumerGroupCurrentMemberAssignmentKey  value ...                        current assignment of a
        member
        key 16    ConsumerGroupRegularExpressionKey        value ...                        topics that an expression
        matches

Keys 9-15 belong to share groups and 17-23 to streams groups. Key 0 was written by 0.8.2. `RECORDS` is the table.
Source: the definitions in Kafka's group coordinator, KIP-848.
"""

from __future__ import annotations

import struct as binary
from typing import Final

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Bytes, Int8, Int32, Int64, Malformed, String, Uuid

VERSION = binary.Struct(">h")


@message(key=1, kind="coordinator-key", versions="0")
class OffsetCommitKey(Message):
    """The key of both versions; on disk the version is the kind of record."""

    group: String = field()
    topic: String = field()
    partition: Int32 = field()


@message(key=1, kind="coordinator-value", versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """Version 3 adds the leader epoch (KIP-320), 4 the topic's id."""

    offset: Int64 = field()
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = field()
    commit_timestamp: Int64 = field()
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, tagged="4+", ignorable=True)


@message(key=2, kind="coordinator-key", versions="0")
class GroupMetadataKey(Message):
    """One classic group."""

    group: String = field()


@struct
class MemberMetadata:
    """One member of the generation; ``subscription`` is its metadata for the chosen protocol."""

    member_id: String = field()
    group_instance_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)
    client_id: String = field()
    client_host: String = field()
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = field()
    subscription: Bytes = field()
    assignment: Bytes = field()


@message(key=2, kind="coordinator-value", versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A generation. Version 1 adds rebalance timeouts, 2 the time of the last change, 3 static members."""

    protocol_type: String = field()
    generation: Int32 = field()
    protocol: String | None = field(nullable="0+")
    leader: String | None = field(nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field()


# -- consumer groups (KIP-848) ----------------------------------------------------------------------------------


@message(key=3, kind="coordinator-key", versions="0")
class ConsumerGroupMetadataKey(Message):
    """One consumer group."""

    group_id: String = field()


@message(key=3, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    """The epoch and a hash that changes with the subscribed topics (KIP-1101); 0: compute the hash again."""

    epoch: Int32 = field()
    metadata_hash: Int64 = field(default=0, tag=0)


@message(key=4, kind="coordinator-key", versions="0")
class ConsumerGroupPartitionMetadataKey(Message):
    """One consumer group; since Kafka 4.1 the hash replaces this record."""

    group_id: String = field()


@struct
class PartitionMetadata:
    """The racks of a partition's replicas."""

    partition: Int32 = field()
    racks: list[String] = field()


@struct
class TopicMetadata:
    """A topic to which the group is subscribed."""

    topic_id: Uuid = field()
    topic_name: String = field()
    num_partitions: Int32 = field()
    partition_metadata: list[PartitionMetadata] = field()


@message(key=4, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    """The topics to which the group is subscribed."""

    topics: list[TopicMetadata] = field()


@message(key=5, kind="coordinator-key", versions="0")
class ConsumerGroupMemberMetadataKey(Message):
    """One member."""

    group_id: String = field()
    member_id: String = field()


@struct
class ClassicProtocol:
    """A protocol that a classic member supports."""

    name: String = field()
    metadata: Bytes = field()


@struct
class ClassicMemberMetadata:
    """The metadata of a member that uses the classic protocol."""

    session_timeout_ms: Int32 = field()
    supported_protocols: list[ClassicProtocol] = field()


@message(key=5, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """The description that a member has sent of itself."""

    instance_id: String | None = field(nullable="0+")
    rack_id: String | None = field(nullable="0+")
    client_id: String = field()
    client_host: String = field()
    subscribed_topic_names: list[String] = field()
    subscribed_topic_regex: String | None = field(nullable="0+")
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(nullable="0+", tag=0)


@message(key=6, kind="coordinator-key", versions="0")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """The target assignment of one group."""

    group_id: String = field()


@message(key=6, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The group epoch of the target assignment, and the time when it was computed (KIP-1263)."""

    assignment_epoch: Int32 = field()
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(key=7, kind="coordinator-key", versions="0")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """The target assignment of one member."""

    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartition:
    """Partitions of one topic."""

    topic_id: Uuid = field()
    partitions: list[Int32] = field()


@message(key=7, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions that the member is to have."""

    topic_partitions: list[TopicPartition] = field()


@message(key=8, kind="coordinator-key", versions="0")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """The current assignment of one member."""

    group_id: String = field()
    member_id: String = field()


@struct
class TopicPartitions:
    """Partitions of one topic; the epochs, one for each partition, are those at which the member got them."""

    topic_id: Uuid = field()
    partitions: list[Int32] = field()
    assignment_epochs: list[Int32] | None = field(nullable="0+", tag=0)


@message(key=8, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Epoch and state of a member, its partitions, and those it must give up."""

    member_epoch: Int32 = field()
    previous_member_epoch: Int32 = field()
    state: Int8 = field()
    assigned_partitions: list[TopicPartitions] = field()
    partitions_pending_revocation: list[TopicPartitions] = field()


@message(key=16, kind="coordinator-key", versions="0")
class ConsumerGroupRegularExpressionKey(Message):
    """A regular expression to which members of the group are subscribed."""

    group_id: String = field()
    regular_expression: String = field()


@message(key=16, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    """The matched topics, with the version of the metadata and the time of the match."""

    topics: list[String] = field()
    version: Int64 = field()
    timestamp: Int64 = field()


RECORDS: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}


def encode_key(kind: int, key: Message) -> bytes:
    """Encode the kind of record, then the fields, always in the layout of version 0."""
    out = bytearray(VERSION.pack(kind))
    type(key).encode[0](key, out)
    return bytes(out)


def encode_value(value: Message, version: int = 0) -> bytes:
    """Encode the version, then the fields."""
    out = bytearray(VERSION.pack(version))
    type(value).encode[version](value, out)
    return bytes(out)


def decode_record(key: bytes | None, value: bytes | None) -> tuple[int, Message, Message | None] | None:
    """Return kind, key and value (None: a tombstone); None for a kind that is not in `RECORDS`. Raises Malformed."""
    if key is None or len(key) < VERSION.size:
        raise Malformed("a record of __consumer_offsets without a key")
    (kind,) = VERSION.unpack_from(key)
    known = RECORDS.get(kind)
    if known is None:
        return None
    key_class, value_class = known
    named, _ = key_class.decode[0](memoryview(key), VERSION.size)
    if value is None:
        return kind, named, None
    if len(value) < VERSION.size:
        raise Malformed("a value of __consumer_offsets without a version")
    (version,) = VERSION.unpack_from(value)
    first, last = value_class.versions
    if not first <= version <= last:
        raise Malformed(f"value version {version} is not known, only {first}-{last}")
    content, _ = value_class.decode[version](memoryview(value), VERSION.size)
    return kind, named, content
