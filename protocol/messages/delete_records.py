"""DeleteRecords (21): move the log start offset of partitions forward (KIP-107).

Goes to the leader of each partition; `offset` -1 means the high watermark. The answer carries the log start offset
that now holds. From v1 the answer leaves before a throttled connection is muted (KIP-219). v2 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition:
    partition_index: Int32 = field()
    offset: Int64 = field()


@struct
class DeleteRecordsTopic:
    name: String = field()
    partitions: list[DeleteRecordsPartition] = field()


@message(key=21, kind="request", versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: Int32 = field()


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32 = field()
    low_watermark: Int64 = field()
    error_code: Int16 = field()


@struct
class DeleteRecordsTopicResult:
    name: String = field()
    partitions: list[DeleteRecordsPartitionResult] = field()


@message(key=21, kind="response", versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = field()
    topics: list[DeleteRecordsTopicResult] = field()
