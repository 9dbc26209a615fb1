"""CreateTopics (19): v0-7. Creates topics, each independently.

v1 can validate only and has error messages; v4 accepts -1 for the number of partitions and the replication factor; v5
is flexible and describes the created topics with their configs; v7 has topic ids. The response is sent when the topics
are durable and have leaders, so ``timeout_ms`` is never used up. A name that occurs twice gets INVALID_REQUEST, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm.broker.apis.common import mutation_count
from klamm.broker.controller.topics import NewTopic, TopicResult
from klamm.broker.metadata.image import CLUSTER_METADATA_TOPIC
from klamm.config import BrokerConfig, describe_topic
from klamm.protocol.errors import InvalidRequest, KafkaError
from klamm.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

CONFIGS_FROM = 5
STRICT_FROM = 6  # versions that refuse changes over the quota


async def handle(broker: Broker, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    count = mutation_count(context, strict_from=STRICT_FROM)
    counts = Counter(topic.name for topic in request.topics)
    refused = {name: _refusal(name, count) for name, count in counts.items()}
    wanted = [_new_topic(topic) for topic in request.topics if refused[topic.name] is None]
    results = await broker.controller.create_topics(wanted, request.validate_only, count) if wanted else []
    answers = {name: _failed(name, error) for name, error in refused.items() if error is not None}
    with_configs = context.api_version >= CONFIGS_FROM
    described: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}  # many topics, few configs
    for result in results:
        assert result.name is not None
        answers[result.name] = answer = _answer(result)
        if with_configs and result.topic is not None:
            key = tuple(sorted(result.configs.items()))
            if key not in described:
                described[key] = _configs(broker.controller.config, result.configs)
            answer.configs = described[key]
    return CreateTopicsResponse(topics=[answers[name] for name in counts])


def error_response(request: CreateTopicsRequest, error: KafkaError, version: int) -> CreateTopicsResponse:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(topics=[_failed(name, error) for name in names])


def _refusal(name: str, count: int) -> KafkaError | None:
    if count > 1:
        return InvalidRequest(f"topic {name!r} is named more than once")
    if name == CLUSTER_METADATA_TOPIC:
        return InvalidRequest(f"the name {name} is reserved")
    return None


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments=[(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs=[(config.name, config.value) for config in topic.configs],
    )


def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=int(error.code), error_message=error.message)


def _answer(result: TopicResult) -> CreatableTopicResult:
    name, topic = result.name or "", result.topic
    if topic is None:
        assert result.error is not None
        return _failed(name, result.error)
    return CreatableTopicResult(
        name=name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
    )


def _configs(config: BrokerConfig, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.sensitive,
        )
        for entry in describe_topic(config, overrides)
    ]
