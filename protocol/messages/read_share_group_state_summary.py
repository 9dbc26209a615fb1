"""ReadShareGroupStateSummary (KIP-932): the start offsets of share partitions, without the state of their records.

Spoken between brokers: the state lives with the share coordinator. v1 adds the number of completed records after the
start offset, from which the lag is computed (KIP-1226).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: Int32 = field()
    leader_epoch: Int32 = field()


@struct
class ReadStateSummaryData:
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


@message(key=87, kind="request", versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    group_id: String = field()
    topics: list[ReadStateSummaryData] = field()


@struct
class PartitionResult:
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: Uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=87, kind="response", versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    results: list[ReadStateSummaryResult] = field()
