"""ListOffsets (2): v0-11. The offset at either end of a partition, or at a point in time.

v0 lists the base offsets of segments older than a time; v1 returns one offset and its timestamp; v2 adds the isolation
level, v4 leader epochs, v7 the offset of the largest timestamp (-3), v8 the earliest local offset (-4), v9 the latest
tiered offset (-5), v11 the earliest offset that waits for upload (-6). There is no tiered storage: everything is local
and nothing is tiered. Earliest and latest come from memory, at once. A search by time may read much of a log and
inflate a batch, so it is prepared here and run in a thread; the searches of a request run one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from klamm.protocol.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from klamm.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.partitions.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NEVER = 1 << 15
UNKNOWN = -1
DEBUGGING_REPLICA = -2
READ_COMMITTED = 1
STORAGE_ERROR_FROM = 3
LEADER_EPOCH_FROM = 4


class Search(NamedTuple):
    """The work of a thread for one partition, and the place of its result."""

    answers: list[ListOffsetsPartitionResponse]
    place: int
    run: Callable[[], ListOffsetsPartitionResponse]


def handle(
    broker: Broker, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    version = context.api_version
    topics = []
    searches: list[Search] = []
    for topic in request.topics:
        counts: dict[int, int] = {}
        for wanted in topic.partitions:
            counts[wanted.partition_index] = counts.get(wanted.partition_index, 0) + 1
        answers: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            try:
                if counts[wanted.partition_index] > 1:
                    raise InvalidRequest(f"{topic.name}-{wanted.partition_index} stands more than once in the request")
                if not 0 <= request.isolation_level <= READ_COMMITTED:
                    raise InvalidRequest(f"isolation_level={request.isolation_level} is neither 0 nor 1")
                partition = broker.partitions.get_partition(topic.name, wanted.partition_index)
                if partition is None:
                    raise UnknownTopicOrPartition(f"no partition {topic.name}-{wanted.partition_index}")
                found = _offset(partition, wanted, request, version)
                if callable(found):
                    searches.append(Search(answers, len(answers), found))
                    found = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.append(found)
            except KafkaError as error:
                answers.append(_failed(wanted.partition_index, error, version))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response = ListOffsetsResponse(topics=topics)
    return _search(broker, searches, response, version) if searches else response


async def _search(
    broker: Broker, searches: list[Search], response: ListOffsetsResponse, version: int
) -> ListOffsetsResponse:
    loop = asyncio.get_running_loop()
    results = await loop.run_in_executor(broker.searches, _run, searches, version)
    for search, result in zip(searches, results, strict=True):
        search.answers[search.place] = result
    return response


def _run(searches: list[Search], version: int) -> list[ListOffsetsPartitionResponse]:
    """Run the searches, in a thread."""
    results = []
    for search in searches:
        try:
            results.append(search.run())
        except KafkaError as error:
            results.append(_failed(search.answers[search.place].partition_index, error, version))
    return results


def error_response(request: ListOffsetsRequest, error: KafkaError, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failed(wanted.partition_index, error, version) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _offset(
    partition: Partition, wanted: ListOffsetsPartition, request: ListOffsetsRequest, version: int
) -> ListOffsetsPartitionResponse | Callable[[], ListOffsetsPartitionResponse]:
    """Return the offset, or the search that finds it in a thread."""
    partition.check_leader_epoch(wanted.current_leader_epoch)
    log = partition.online_log()
    if request.replica_id == DEBUGGING_REPLICA:
        limit = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        limit = log.last_stable_offset
    else:
        limit = log.high_watermark
    if version == 0:

        def list_segments() -> ListOffsetsPartitionResponse:
            offsets = [min(offset, limit) for offset in log.segment_offsets(wanted.timestamp, wanted.max_num_offsets)]
            return ListOffsetsPartitionResponse(
                partition_index=partition.index, error_code=0, old_style_offsets=offsets
            )

        return list_segments() if wanted.timestamp in (LATEST, EARLIEST) else list_segments

    def answer(timestamp: int, offset: int, epoch: int) -> ListOffsetsPartitionResponse:
        return ListOffsetsPartitionResponse(
            partition_index=partition.index,
            error_code=0,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch if version >= LEADER_EPOCH_FROM else UNKNOWN,
        )

    timestamp = wanted.timestamp
    if timestamp < 0 and version < FIRST_VERSION.get(timestamp, NEVER):
        raise UnsupportedVersion(f"timestamp {timestamp} has no meaning in ListOffsets v{version}")
    if timestamp == LATEST:
        return answer(UNKNOWN, limit, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        # Without records, the first epoch is the one that the next record will have.
        epoch = partition.leader_epoch if start == log.log_end_offset else log.leader_epochs.epoch_of(start)
        return answer(UNKNOWN, start, epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return answer(UNKNOWN, UNKNOWN, UNKNOWN)
    search = log.timestamp_search(None if timestamp == MAX_TIMESTAMP else timestamp)

    def search_records() -> ListOffsetsPartitionResponse:
        found = search.run()
        if found is None or found.offset >= limit:
            return answer(UNKNOWN, UNKNOWN, UNKNOWN)
        return answer(found.timestamp, found.offset, found.leader_epoch)

    return search_records


def _failed(index: int, error: KafkaError, version: int) -> ListOffsetsPartitionResponse:
    code = error.code
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ListOffsetsPartitionResponse(partition_index=index, error_code=int(code))
