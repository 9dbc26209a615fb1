"""WriteShareGroupState (KIP-932): a partition leader stores the state of its share partitions.

Spoken between brokers: the state lives with the share coordinator. v1 adds the number of completed records after the
start offset (KIP-1226).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String, Uuid


@struct
class StateBatch:
    first_offset: Int64 = field()
    last_offset: Int64 = field()
    delivery_state: Int8 = field()  # 0 available, 2 acknowledged, 4 archived
    delivery_count: Int16 = field()


@struct
class PartitionData:
    partition: Int32 = field()
    state_epoch: Int32 = field()
    leader_epoch: Int32 = field()
    start_offset: Int64 = field()  # -1: the start offset stays
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field()


@struct
class WriteStateData:
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


@message(key=85, kind="request", versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    group_id: String = field()
    topics: list[WriteStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)


@struct
class WriteStateResult:
    topic_id: Uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=85, kind="response", versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    results: list[WriteStateResult] = field()
