"""ElectLeaders (43): have the controller elect leaders of partitions now (KIP-183).

v0 knows the preferred replica only. v1 adds `election_type`, 0 preferred or 1 unclean, and a top-level error
(KIP-460). v2 is flexible. Null `topic_partitions` asks for all partitions.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, String


@struct
class TopicPartitions:
    topic: String = field()
    partitions: list[Int32] = field()


@message(key=43, kind="request", versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: Int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+")
    timeout_ms: Int32 = field(default=60_000)


@struct
class PartitionResult:
    partition_id: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")


@struct
class ReplicaElectionResult:
    topic: String = field()
    partition_result: list[PartitionResult] = field()


@message(key=43, kind="response", versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field()
