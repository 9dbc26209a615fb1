"""DescribeTopicPartitions (75): v0. Topics and partitions page by page, in the order of their names (KIP-966).

An empty list means all topics. A page ends after ``response_partition_limit`` partitions,
``max.request.partition.size.limit`` at most; the cursor is the start of the next page. Eligible leader replicas are not
tracked yet: with every replica in sync their lists are empty.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from klamm.broker.apis.common import topic_operations
from klamm.broker.controller.topics import check_name
from klamm.protocol.errors import ErrorCode, InvalidRequest, InvalidTopicException, KafkaError
from klamm.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.metadata.image import TopicImage


def handle(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    return _response(broker, context, request, _asked(request))


async def handle_large(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Handle a request with very many names: a thread sorts them."""
    names = await asyncio.get_running_loop().run_in_executor(broker.codecs, _asked, request)
    return _response(broker, context, request, names)


def _asked(request: DescribeTopicPartitionsRequest) -> list[str]:
    return sorted({topic.name for topic in request.topics})


def _response(
    broker: Broker, context: RequestContext, request: DescribeTopicPartitionsRequest, names: list[str]
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest(f"the cursor has partition {cursor.partition_index}")
    topics = broker.image.topics
    names = names or sorted(topics)
    if cursor is not None:
        if request.topics and cursor.topic_name not in names:
            raise InvalidRequest(f"the cursor has topic {cursor.topic_name!r}, which is not asked for")
        names = [name for name in names if name >= cursor.topic_name]
    limit = broker.controller.config.integer("max.request.partition.size.limit")
    left = max(1, min(request.response_partition_limit, limit))
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_missing(context, name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = first + left
        response.topics.append(_described(broker, context, topic, first, end))
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        left -= max(0, len(topic.partitions) - first)
    return response


def error_response(
    request: DescribeTopicPartitionsRequest, error: KafkaError, version: int
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=int(error.code), name=topic.name)
            for topic in request.topics
        ]
    )


def _missing(context: RequestContext, name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except InvalidTopicException as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=int(code), name=name, topic_authorized_operations=topic_operations(context, name)
    )


def _described(
    broker: Broker, context: RequestContext, topic: TopicImage, first: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    offline = broker.partitions.offline_partitions(topic.name)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(partition.replicas if partition.index in offline else partition.offline),
            )
            for partition in topic.partitions[first:end]
        ],
        topic_authorized_operations=topic_operations(context, topic.name),
    )
