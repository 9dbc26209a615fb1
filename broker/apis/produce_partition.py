"""Checks of a partition before Produce appends, and the results of batches that were not appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopicException,
    KafkaError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from klamm.protocol.records.validate import NotOneBatch

if TYPE_CHECKING:
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import HostedTopic

ADMIN_CLIENT_ID = "__admin_client"  # the one client that may write to internal topics
TOPIC_IDS_FROM = 13
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LOG_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)  # with these errors the log start is reported: the producer may check whether earlier records were deleted
STORAGE_ERROR_FROM = 4  # older clients do not have KAFKA_STORAGE_ERROR


def writable(found: HostedTopic | None, index: int, version: int, client_id: str | None, acks: int) -> Partition:
    """Return the partition that a request may append to. Raises the error for the producer otherwise."""
    if found is None:
        if version >= TOPIC_IDS_FROM:
            raise UnknownTopicId("no topic has this id")
        raise UnknownTopicOrPartition("no such topic")
    if not 0 <= index < len(found.partitions):
        raise UnknownTopicOrPartition(f"{found.name} has no partition {index}")
    if found.internal and client_id != ADMIN_CLIENT_ID:
        raise InvalidTopicException(f"{found.name} is internal: clients do not write to it")
    partition = found.partitions[index]
    if acks == -1:
        partition.check_replicas()
    return partition


def refused(
    error: KafkaError, index: int, version: int, found: HostedTopic | None, partition: Partition | None
) -> PartitionProduceResponse:
    """Return, and count, the result of a batch that was not appended to `partition` (None: it failed before
    the log).
    """
    answer = failure(index, error, version)
    if partition is not None and error.code in LOG_ERRORS and not isinstance(error, NotOneBatch):
        answer.log_start_offset = partition.log_start_offset
    if found is not None:
        found.metrics.produce_requests += 1
        found.metrics.failed_produce += 1
    return answer


def failure(index: int, error: KafkaError, version: int) -> PartitionProduceResponse:
    """Return the result of a batch that was not appended."""
    record_errors = []
    if isinstance(error, InvalidRecord | InvalidTimestamp) and error.record_errors:
        record_errors = [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i, text in error.record_errors
        ]
    return PartitionProduceResponse(
        index=index,
        error_code=code_for(error, version),
        base_offset=-1,
        record_errors=record_errors,
        error_message=error.message or None,
    )


def code_for(error: KafkaError, version: int) -> int:
    """Return the code of an error for producers of that version."""
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        return NOT_LEADER
    return int(error.code)
