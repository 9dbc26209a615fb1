"""OffsetCommit (8): store the positions of a consumer group.

v0 went to ZooKeeper. v1 brings the generation and the member, and a timestamp per partition that v2 replaces by one
retention time; v5 drops that, too (KIP-211). v3 adds the throttle time, v6 the leader epoch (KIP-320), v7 static
members (KIP-345). v8 is flexible. v9 serves the new consumer protocol (KIP-848), v10 names topics by id.
Apache Kafka 4.0 removed v0 and v1.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32 = field()
    committed_offset: Int64 = field()
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    commit_timestamp: Int64 = field("1", default=-1)
    committed_metadata: String | None = field(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    name: String = field("0-9", ignorable=True)
    topic_id: Uuid = field("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field()


@message(key=8, kind="request", versions="0-10", flexible="8+")
class OffsetCommitRequest:
    group_id: String = field()
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", ignorable=True)
    group_instance_id: String | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field()


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class OffsetCommitResponseTopic:
    name: String = field("0-9", ignorable=True)
    topic_id: Uuid = field("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field()


@message(key=8, kind="response", versions="0-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: Int32 = field("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field()
