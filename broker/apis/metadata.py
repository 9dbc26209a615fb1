"""Metadata (3): v0-13. Brokers, topics and leaders; creates missing topics if permitted.

v0 requests all topics with an empty list, v1+ with null (and empty means none). v4 has a flag that permits creation of
missing topics; v5 has offline replicas, v7 leader epochs, v8 authorized operations, v10 topic ids, v12 requests by id,
v13 a top-level error. The address of the only broker is the one that the client connected to, unless
``advertised.listeners`` sets another. A topic that is created here is durable and has a leader before the response is
sent, so the first response is complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

from klamm.broker.apis.common import (
    NOT_ASKED,
    TOPIC_OPERATIONS,
    advertised_address,
    cluster_operations,
    topic_operations,
    unseen,
)
from klamm.protocol.errors import ErrorCode, InvalidRequest, InvalidTopicException, KafkaError
from klamm.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from klamm.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.metadata.image import TopicImage

AUTO_CREATION_FROM = 4
TOPIC_IDS_FROM = 12


def handle(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    version = context.api_version
    wanted = request.topics
    if (
        wanted
        and version < TOPIC_IDS_FROM
        and any(topic.topic_id != ZERO_UUID or topic.name is None for topic in wanted)
    ):
        raise InvalidRequest(f"topics are asked for by name in Metadata v{version}, by id from v{TOPIC_IDS_FROM}")
    if wanted and broker.auto_create and (version < AUTO_CREATION_FROM or request.allow_auto_topic_creation):
        topics = broker.image.topics
        missing = [topic.name for topic in wanted if topic.name and topic.name not in topics]
        if missing:
            return _after_creation(broker, context, request, missing)
    return _response(broker, context, request, {})


def error_response(request: MetadataRequest, error: KafkaError, version: int) -> MetadataResponse:
    """Return the error at each topic; v13 also has it at the top level."""
    topics = [
        MetadataResponseTopic(
            error_code=int(error.code),
            name=topic.name if topic.name is not None or version >= TOPIC_IDS_FROM else "",
            topic_id=topic.topic_id,
            partitions=[],
        )
        for topic in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=int(error.code))


async def _after_creation(
    broker: Broker, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    errors = await broker.controller.auto_create(missing)
    return _response(broker, context, request, errors)


def _response(
    broker: Broker, context: RequestContext, request: MetadataRequest, errors: dict[str, KafkaError]
) -> MetadataResponse:
    version = context.api_version
    image = broker.image
    host, port = advertised_address(broker, context)
    wanted = request.topics
    if wanted is None or (version == 0 and not wanted):
        topics: list[MetadataResponseTopic | bytes] = [
            *broker.metadata_responses.all(image.topics, version, _all_operations(request))
        ]
    else:
        topics = [
            _wanted(broker, context, request, topic, errors)
            for topic in wanted
            if unseen(context, (topic.name, topic.topic_id))
        ]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=host, port=port, rack=node.rack)
            for node in image.brokers.values()
        ],
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=cast("list[MetadataResponseTopic]", topics),  # or already encoded
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _all_operations(request: MetadataRequest) -> int:
    """Return the operations of all topics. With an authorizer only super users get all topics at once."""
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED


def _wanted(
    broker: Broker,
    context: RequestContext,
    request: MetadataRequest,
    wanted: MetadataRequestTopic,
    errors: dict[str, KafkaError],
) -> MetadataResponseTopic | bytes:
    image = broker.image
    if wanted.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=wanted.topic_id, partitions=[]
            )
        return _one(broker, context, request, topic)
    name = wanted.name or ""
    topic = image.topics.get(name)
    if topic is not None:
        return _one(broker, context, request, topic)
    error = errors.get(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if error is not None:
        code = error.code
    else:
        try:
            broker.controller.check_topic_name(name)
        except InvalidTopicException:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(
        error_code=int(code),
        name=name,
        partitions=[],
        topic_authorized_operations=_operations(context, request, name),
    )


def _one(broker: Broker, context: RequestContext, request: MetadataRequest, topic: TopicImage) -> bytes:
    return broker.metadata_responses.one(topic, context.api_version, _operations(context, request, topic.name))


def _operations(context: RequestContext, request: MetadataRequest, name: str) -> int:
    return topic_operations(context, name) if request.include_topic_authorized_operations else NOT_ASKED
