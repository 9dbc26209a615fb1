"""DescribeTopicPartitions (75): topics page by page, with their eligible leader replicas (KIP-966).

An empty list of topics asks for all. The answer stops after `response_partition_limit` partitions and then carries a
cursor, from which the next request goes on.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String, Uuid

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


@struct
class TopicRequest:
    name: String = field()


@struct
class Cursor:
    """Where the next page starts; the same in both directions."""

    topic_name: String = field()
    partition_index: Int32 = field()


@message(key=75, kind="request", versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = field()
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16 = field()
    partition_index: Int32 = field()
    leader_id: Int32 = field()
    leader_epoch: Int32 = field(default=-1, ignorable=True)
    replica_nodes: list[Int32] = field()
    isr_nodes: list[Int32] = field()
    eligible_leader_replicas: list[Int32] | None = field(nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field(nullable="0+", default=None)
    offline_replicas: list[Int32] = field(ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16 = field()
    name: String | None = field(nullable="0+")
    topic_id: Uuid = field(ignorable=True)
    is_internal: Bool = field(default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field()
    topic_authorized_operations: Int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=75, kind="response", versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field()
    next_cursor: Cursor | None = field(nullable="0+", default=None)
