"""DescribeProducers (61): the producers with state in partitions, to find hanging transactions (KIP-664).

`current_txn_start_offset` is -1 without an open transaction. The producer epoch is an int32 here, unlike elsewhere.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String


@struct
class TopicRequest:
    name: String = field()
    partition_indexes: list[Int32] = field()


@message(key=61, kind="request", versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = field()


@struct
class ProducerState:
    producer_id: Int64 = field()
    producer_epoch: Int32 = field()
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32 = field()
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class PartitionResponse:
    partition_index: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    active_producers: list[ProducerState] = field()


@struct
class TopicResponse:
    name: String = field()
    partitions: list[PartitionResponse] = field()


@message(key=61, kind="response", versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: Int32 = field()
    topics: list[TopicResponse] = field()
