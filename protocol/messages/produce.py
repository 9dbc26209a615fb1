"""Produce (0): append record data to partitions.

v0 and v1 carry message sets of magic 0, v2 of magic 1, v3 and later exactly one record batch of magic 2 a partition.
Answers: v1 adds the throttle time, v2 the log append time, v5 the log start offset, v8 errors of single records
(KIP-467), v10 the new leader and its address when the leader has moved (KIP-951). v3 has the transactional id, v7
allows zstd, v9 is flexible, v11 and v12 belong to transactions of version 2 (KIP-890), v13 names topics by id
(KIP-516).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, Records, String, Uuid


@struct
class PartitionProduceData:
    index: Int32 = field()
    records: Records = field(nullable="0+")


@struct
class TopicProduceData:
    name: String = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field()


@message(key=0, kind="request", versions="0-13", flexible="9+")
class ProduceRequest:
    transactional_id: String | None = field("3+", nullable="3+", default=None)
    acks: Int16 = field()
    timeout_ms: Int32 = field()
    topic_data: list[TopicProduceData] = field()


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32 = field("8+")
    batch_index_error_message: String | None = field("8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


@struct
class PartitionProduceResponse:
    index: Int32 = field()
    error_code: Int16 = field()
    base_offset: Int64 = field()
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", ignorable=True)
    error_message: String | None = field("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", tag=0)


@struct
class TopicProduceResponse:
    name: String = field("0-12", ignorable=True)
    topic_id: Uuid = field("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field()


@struct
class NodeEndpoint:
    node_id: Int32 = field("10+")
    host: String = field("10+")
    port: Int32 = field("10+")
    rack: String | None = field("10+", nullable="10+", default=None)


@message(key=0, kind="response", versions="0-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
