"""AlterPartitionReassignments (45): start, replace or cancel the reassignment of partitions (KIP-455).

Null `replicas` cancels a pending reassignment. v1 can refuse to change the replication factor (KIP-860).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Int16, Int32, String


@struct
class ReassignablePartition:
    partition_index: Int32 = field()
    replicas: list[Int32] | None = field(nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: String = field()
    partitions: list[ReassignablePartition] = field()


@message(key=45, kind="request", versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60_000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic] = field()


@struct
class ReassignablePartitionResponse:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")


@struct
class ReassignableTopicResponse:
    name: String = field()
    partitions: list[ReassignablePartitionResponse] = field()


@message(key=45, kind="response", versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = field()
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    responses: list[ReassignableTopicResponse] = field()
