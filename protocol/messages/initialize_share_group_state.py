"""InitializeShareGroupState (KIP-932): the group coordinator sets up the durable state of share partitions.

Spoken between brokers: the state lives with the share coordinator.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: Int32 = field()
    state_epoch: Int32 = field()
    start_offset: Int64 = field()


@struct
class InitializeStateData:
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


@message(key=83, kind="request", versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    group_id: String = field()
    topics: list[InitializeStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)


@struct
class InitializeStateResult:
    topic_id: Uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=83, kind="response", versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    results: list[InitializeStateResult] = field()
