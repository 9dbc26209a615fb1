"""DeleteRecords (21): v0-2. Makes the records below an offset unreadable (KIP-107).

-1 stands for the high watermark, beyond which nothing can be deleted. An offset below the log start changes nothing.
The response has the low watermark, the first offset that remains, and is sent when that is durable; segments wholly
below it then leave the disk. v1 changed only throttling, v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import (
    InvalidTopicException,
    KafkaError,
    OffsetOutOfRange,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.partitions.partition import Partition

TO_HIGH_WATERMARK = -1
NO_LOW_WATERMARK = -1


async def handle(broker: Broker, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    log_starts: dict[Partition, int] = {}
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _result(broker, topic.name, partition.partition_index, partition.offset, log_starts)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    if log_starts:
        await broker.retention.drop(log_starts)
    return response


def error_response(request: DeleteRecordsRequest, error: KafkaError, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failed(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _result(
    broker: Broker, topic: str, index: int, offset: int, log_starts: dict[Partition, int]
) -> DeleteRecordsPartitionResult:
    try:
        partition = broker.partitions.get_partition(topic, index)
        if partition is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        low_watermark = _new_log_start(partition, offset)
        if low_watermark > partition.log_start_offset:
            log_starts[partition] = max(low_watermark, log_starts.get(partition, 0))
    except KafkaError as error:
        return _failed(index, error)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


def _failed(index: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=NO_LOW_WATERMARK, error_code=int(error.code)
    )


def _new_log_start(partition: Partition, offset: int) -> int:
    """Return the new log start, which may be the current one. Raises a KafkaError."""
    if partition.internal:
        raise InvalidTopicException(f"records of the internal topic {partition.topic} are not deleted")
    log = partition.online_log()
    if log.local.config.compacted and not log.local.config.deleted:
        raise PolicyViolation(f"the cleanup.policy of {partition.topic} does not delete records")
    target = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if not 0 <= target <= log.high_watermark:
        raise OffsetOutOfRange(f"{partition.name}: offset {offset} is not in [0, {log.high_watermark}]")
    return max(target, log.log_start_offset)
