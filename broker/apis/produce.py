"""Produce (0): v0-13. Append one batch to each named partition, and acknowledge.

v0-2 carry message sets of the formats 0 and 1, which `validate` converts up; v3 one batch of format 2; v5 tells the log
start offset, v8 the records at fault, v10 the current leader, v13 names topics by id. The append happens here and
now, straight from the connection's read buffer; only the wait for a flush (``flush.messages``) is asynchronous, so
that the next pipelined Produce can be appended meanwhile.

acks=0 has no response: an error closes the connection, which is how such a producer learns of it. A partition that
stands twice in one request is appended once, the last one (as Kafka does). Transactional batches are refused:
there is no transaction coordinator yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from klamm.broker.network.reply import CloseConnection
from klamm.protocol.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopicException,
    KafkaError,
    NotEnoughReplicas,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from klamm.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.partition import Partition
    from klamm.broker.partition_manager import TopicPartitions

ADMIN_CLIENT_ID = "__admin_client"  # the one client that may write to internal topics
TOPIC_IDS_FROM = 13
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
SEQUENCE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)  # the producer wants to know whether the records before were deleted
STORAGE_ERROR_FROM = 4  # older clients do not know KAFKA_STORAGE_ERROR


def handle(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
    version = context.api_version
    acks = request.acks
    now_ms = broker.clock.wall_ms()
    manager = broker.partitions
    responses: list[TopicProduceResponse] = []
    first_error: KafkaError | None = None
    unflushed: list[tuple[Partition, PartitionProduceResponse]] = []
    for topic in request.topic_data:
        if version >= TOPIC_IDS_FROM:
            found = manager.topics_by_id.get(topic.topic_id)
        else:
            found = manager.topics.get(topic.name)
        answers: list[PartitionProduceResponse] = []
        entries = topic.partition_data
        if len(entries) > 1:
            entries = list({entry.index: entry for entry in entries}.values())
        for entry in entries:
            partition: Partition | None = None
            try:
                if not -1 <= acks <= 1:
                    raise InvalidRequiredAcks(f"acks={acks} is not one of -1, 0, 1")
                partition = _writable(found, entry.index, context, acks)
                result = partition.append(
                    cast("memoryview | None", entry.records),
                    produce_version=version,
                    now_ms=now_ms,
                    transactional_id=request.transactional_id,
                )
            except KafkaError as error:
                # Its traceback would keep this frame, and with it the records, until the next garbage collection.
                first_error = first_error or error.with_traceback(None)
                answer = _failure(entry.index, error, version)
                if partition is not None and (answer.record_errors or error.code in SEQUENCE_ERRORS):
                    answer.log_start_offset = partition.log_start_offset
                answers.append(answer)
                if found is not None:
                    found.metrics.failed_produce += 1
            else:
                answer = PartitionProduceResponse(
                    index=entry.index,
                    error_code=0,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=partition.log_start_offset,
                )
                answers.append(answer)
                if partition.flush_pending:
                    unflushed.append((partition, answer))
        if found is not None:
            found.metrics.produce_requests += 1
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if unflushed:
        waits = [broker.flusher.flush(partition) for partition, _ in unflushed]
        if acks:
            return asyncio.ensure_future(_after_flush(unflushed, waits, responses, version))
    if not acks:
        if first_error is not None:
            raise CloseConnection(f"Produce with acks=0 failed: {first_error.code.name} {first_error.message}")
        return None
    return ProduceResponse(responses=responses)


def _writable(found: TopicPartitions | None, index: int, context: RequestContext, acks: int) -> Partition:
    """The partition that this request may append to; raises what the producer should be told otherwise."""
    if found is None:
        if context.api_version >= TOPIC_IDS_FROM:
            raise UnknownTopicId("no topic has this id")
        raise UnknownTopicOrPartition("no such topic")
    if not 0 <= index < len(found.partitions):
        raise UnknownTopicOrPartition(f"{found.name} has no partition {index}")
    if found.internal and context.client_id != ADMIN_CLIENT_ID:
        raise InvalidTopicException(f"{found.name} is internal: clients do not write to it")
    partition = found.partitions[index]
    # As in Kafka 4, min.insync.replicas asks for no more replicas than the partition has.
    needed = min(partition.min_insync_replicas, partition.replica_count)
    if acks == -1 and partition.in_sync_count < needed:
        raise NotEnoughReplicas(f"{partition.name} has {partition.in_sync_count} of {needed} replicas in sync")
    return partition


async def _after_flush(
    unflushed: list[tuple[Partition, PartitionProduceResponse]],
    waits: list[asyncio.Future[None]],
    responses: list[TopicProduceResponse],
    version: int,
) -> ProduceResponse:
    for (_, answer), wait in zip(unflushed, waits, strict=True):
        try:
            await asyncio.shield(wait)  # others wait for the same flush
        except KafkaError as error:
            answer.error_code = _error_code(error, version)
            answer.error_message = error.message
            answer.base_offset = -1
    return ProduceResponse(responses=responses)


def _failure(index: int, error: KafkaError, version: int) -> PartitionProduceResponse:
    record_errors = []
    if isinstance(error, InvalidRecord | InvalidTimestamp) and error.record_errors:
        record_errors = [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i, text in error.record_errors
        ]
    return PartitionProduceResponse(
        index=index,
        error_code=_error_code(error, version),
        base_offset=-1,
        record_errors=record_errors,
        error_message=error.message or None,
    )


def _error_code(error: KafkaError, version: int) -> int:
    if error.code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        return NOT_LEADER
    return int(error.code)


def error_response(request: ProduceRequest, error: KafkaError, version: int) -> ProduceResponse:
    """The same error for every partition named."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_failure(entry.index, error, version) for entry in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
