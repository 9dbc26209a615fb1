"""ListPartitionReassignments (46): the partitions that are being reassigned (KIP-455).

Null `topics` asks for all. Partitions that are not being reassigned are left out of the answer.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@struct
class ListPartitionReassignmentsTopics:
    name: String = field()
    partition_indexes: list[Int32] = field()


@message(key=46, kind="request", versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = field(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(nullable="0+", default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32 = field()
    replicas: list[Int32] = field()
    adding_replicas: list[Int32] = field()
    removing_replicas: list[Int32] = field()


@struct
class OngoingTopicReassignment:
    name: String = field()
    partitions: list[OngoingPartitionReassignment] = field()


@message(key=46, kind="response", versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    topics: list[OngoingTopicReassignment] = field()
