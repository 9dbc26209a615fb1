"""WriteTxnMarkers (27): v0-2. Appends the markers with which a transaction coordinator ends transactions (KIP-98).

One marker for each partition named, in the order of the request. The response is sent when they are as durable as an
append with acks=all. A producer id in several markers gets one result, with all its partitions. v1 is flexible; v2 has
the transaction version: from 2 on a marker has a newer epoch than its transaction (KIP-1228). Without an open
transaction a marker is appended nevertheless, and fences older epochs. Offsets that a group committed in the
transaction are applied or dropped when the marker is in their partition of `__consumer_offsets`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from klamm.broker.coordinator.transaction.markers import Ending
from klamm.protocol.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from klamm.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

Results = dict[int, dict[tuple[str, int], WritableTxnMarkerPartitionResult]]
Waits = list[tuple[asyncio.Future[None], WritableTxnMarkerPartitionResult]]


def handle(
    broker: Broker, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]:
    results: Results = {}
    waits: Waits = []
    for marker in request.markers:
        answers = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                answers[topic.name, index] = _append(broker, topic.name, index, marker, waits)
    return _after_flush(results, waits) if waits else _response(results)


def error_response(request: WriteTxnMarkersRequest, error: KafkaError, version: int) -> WriteTxnMarkersResponse:
    results: Results = {}
    for marker in request.markers:
        answers = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for index in topic.partition_indexes:
                answers[topic.name, index] = _result(index, error.code)
    return _response(results)


def _append(
    broker: Broker, topic: str, index: int, marker: WritableTxnMarker, waits: Waits
) -> WritableTxnMarkerPartitionResult:
    try:
        partition = broker.partitions.get_partition(topic, index)
        if partition is None:
            raise UnknownTopicOrPartition(f"no partition {topic}-{index}")
        partition.check_replicas()
        ending = Ending(
            marker.producer_id,
            marker.producer_epoch,
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        flushed = broker.transactions.markers.append(partition, ending, broker.clock.wall_ms())
    except KafkaError as error:
        return _result(index, error.code)
    result = _result(index, ErrorCode.NONE)
    if flushed is not None:
        waits.append((flushed, result))
    return result


async def _after_flush(results: Results, waits: Waits) -> WriteTxnMarkersResponse:
    for wait, result in waits:
        try:
            await asyncio.shield(wait)  # others wait for the same flush
        except KafkaError as error:
            result.error_code = int(error.code)
    return _response(results)


def _result(index: int, code: ErrorCode) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(partition_index=index, error_code=int(code))


def _response(results: Results) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_by_topic(answers))
            for producer_id, answers in results.items()
        ]
    )


def _by_topic(
    answers: dict[tuple[str, int], WritableTxnMarkerPartitionResult],
) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, _), result in answers.items():
        topics.setdefault(topic, []).append(result)
    return [WritableTxnMarkerTopicResult(name=name, partitions=results) for name, results in topics.items()]
