"""DeleteShareGroupState (KIP-932): drop the durable state of share partitions, as when their group goes.

Spoken between brokers: the state lives with the share coordinator.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String, Uuid


@struct
class PartitionData:
    partition: Int32 = field()


@struct
class DeleteStateData:
    topic_id: Uuid = field()
    partitions: list[PartitionData] = field()


@message(key=86, kind="request", versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    group_id: String = field()
    topics: list[DeleteStateData] = field()


@struct
class PartitionResult:
    partition: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+", default=None)


@struct
class DeleteStateResult:
    topic_id: Uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=86, kind="response", versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    results: list[DeleteStateResult] = field()
