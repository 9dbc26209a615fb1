"""DescribeQuorum (55): leader, voters and observers of the metadata log (KIP-595).

v1 tells when a replica last fetched and last was caught up (KIP-836). v2 adds directory ids, the listeners of the
voters and error messages (KIP-853). Kafka has a `TopicData` and a `PartitionData` in the request and others in the
response; those of the request have its name in front here.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, UInt16, Uuid


@struct
class DescribeQuorumRequestPartitionData:
    partition_index: Int32 = field()


@struct
class DescribeQuorumRequestTopicData:
    topic_name: String = field()
    partitions: list[DescribeQuorumRequestPartitionData] = field()


@message(key=55, kind="request", versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    topics: list[DescribeQuorumRequestTopicData] = field()


@struct
class ReplicaState:
    replica_id: Int32 = field()
    replica_directory_id: Uuid = field("2+")
    log_end_offset: Int64 = field()
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


@struct
class PartitionData:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field("2+", nullable="2+", ignorable=True)
    leader_id: Int32 = field()
    leader_epoch: Int32 = field()
    high_watermark: Int64 = field()
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


@struct
class TopicData:
    topic_name: String = field()
    partitions: list[PartitionData] = field()


@struct
class Listener:
    name: String = field("2+")
    host: String = field("2+")
    port: UInt16 = field("2+")


@struct
class Node:
    node_id: Int32 = field("2+")
    listeners: list[Listener] = field("2+")


@message(key=55, kind="response", versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: Int16 = field()
    error_message: String | None = field("2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = field()
    nodes: list[Node] = field("2+")
