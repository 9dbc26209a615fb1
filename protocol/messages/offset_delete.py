"""OffsetDelete (47): delete committed offsets of partitions that the group no longer subscribes to (KIP-496).

One version, and never flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32 = field()


@struct
class OffsetDeleteRequestTopic:
    name: String = field()
    partitions: list[OffsetDeleteRequestPartition] = field()


@message(key=47, kind="request", versions="0", flexible="none")
class OffsetDeleteRequest:
    group_id: String = field()
    topics: list[OffsetDeleteRequestTopic] = field()


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32 = field()
    error_code: Int16 = field()


@struct
class OffsetDeleteResponseTopic:
    name: String = field()
    partitions: list[OffsetDeleteResponsePartition] = field()


@message(key=47, kind="response", versions="0", flexible="none")
class OffsetDeleteResponse:
    error_code: Int16 = field()
    throttle_time_ms: Int32 = field(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field()
