"""OffsetFetch (9): read the committed positions of consumer groups.

v0 read from ZooKeeper; Apache Kafka 4.0 removed it. From v2 null `topics` asks for all and the answer has a group
error. v3 adds the throttle time, v5 the leader epoch (KIP-320). v6 is flexible. v7 can insist on stable offsets
(KIP-447). v8 asks for several groups at once, in fields of their own (KIP-709); v9 brings the member for the new
consumer protocol (KIP-848), v10 names topics by id.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetFetchRequestTopic:
    name: String = field("0-7")
    partition_indexes: list[Int32] = field("0-7")


@struct
class OffsetFetchRequestTopics:
    name: String = field("8-9", ignorable=True)
    topic_id: Uuid = field("10+", ignorable=True)
    partition_indexes: list[Int32] = field("8+")


@struct
class OffsetFetchRequestGroup:
    group_id: String = field("8+")
    member_id: String | None = field("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", nullable="8+")


@message(key=9, kind="request", versions="0-10", flexible="6+")
class OffsetFetchRequest:
    group_id: String = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: Bool = field("7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32 = field("0-7")
    committed_offset: Int64 = field("0-7")
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field("0-7", nullable="0-7")
    error_code: Int16 = field("0-7")


@struct
class OffsetFetchResponseTopic:
    name: String = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32 = field("8+")
    committed_offset: Int64 = field("8+")
    committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
    metadata: String | None = field("8+", nullable="8+")
    error_code: Int16 = field("8+")


@struct
class OffsetFetchResponseTopics:
    name: String = field("8-9", ignorable=True)
    topic_id: Uuid = field("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


@struct
class OffsetFetchResponseGroup:
    group_id: String = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: Int16 = field("8+", default=0)


@message(key=9, kind="response", versions="0-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+")
