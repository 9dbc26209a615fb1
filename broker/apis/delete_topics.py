"""DeleteTopics (20): v0-6. Deletes topics with their logs. The response is sent when their names are free again.

v3 has TOPIC_DELETION_DISABLED (INVALID_REQUEST before it), v4 is flexible, v5 has error messages, v6 also deletes by
topic id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import mutation_count
from klamm.broker.controller.topics import TopicKey, TopicResult
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

DELETION_DISABLED_FROM = 3
TOPIC_IDS_FROM = 6
STRICT_FROM = 5  # versions that refuse changes over the quota


async def handle(broker: Broker, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    count = mutation_count(context, strict_from=STRICT_FROM)
    results = await broker.controller.delete_topics(_keys(request, context.api_version), count)
    distinct = {(result.name, result.topic_id, result.error and result.error.code): result for result in results}
    return DeleteTopicsResponse(responses=[_answer(result) for result in distinct.values()])


def error_response(request: DeleteTopicsRequest, error: KafkaError, version: int) -> DeleteTopicsResponse:
    if error.code == ErrorCode.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_FROM:
        error = KafkaError(ErrorCode.INVALID_REQUEST, error.message)
    keys = _keys(request, version)
    return DeleteTopicsResponse(
        responses=[_answer(TopicResult(key.name, error, topic_id=key.topic_id)) for key in keys]
    )


def _keys(request: DeleteTopicsRequest, version: int) -> list[TopicKey]:
    if version < TOPIC_IDS_FROM:
        return [TopicKey(name) for name in request.topic_names]
    return [TopicKey(topic.name, topic.topic_id) for topic in request.topics]


def _answer(result: TopicResult) -> DeletableTopicResult:
    error = result.error
    return DeletableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=int(error.code) if error is not None else 0,
        error_message=error.message if error is not None else None,
    )
