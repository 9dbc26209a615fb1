"""DescribeConfigs (32): v0-4. The configs of topics, groups, this broker, all brokers (the empty name), log levels.

v0 shows only whether a value is the default; v1 its source and, on request, its synonyms; v3 its type and, on request,
its documentation; v4 is flexible. No keys (null or an empty list) means all keys. Secrets have no value. Configs of
client metrics are not supported yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from klamm.broker.apis import loggers
from klamm.broker.apis.common import unseen
from klamm.broker.apis.config_resources import MAX_KEYS, check_node, resource_type
from klamm.broker.controller.configs import CLUSTER_WIDE, ResourceType
from klamm.broker.controller.topics import check_name
from klamm.config import (
    ConfigEntry,
    Source,
    Type,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from klamm.protocol.errors import InvalidRequest, KafkaError, UnknownTopicOrPartition
from klamm.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

SOURCES_FROM = 1
RESOURCES_PER_TURN = 20


async def handle(broker: Broker, context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for number, resource in enumerate(request.resources, 1):
        if unseen(context, (resource.resource_type, resource.resource_name)):
            results.append(_result(broker, request, resource, context.api_version))
        if number % RESOURCES_PER_TURN == 0:  # some tools ask for all topics at once; let the loop serve others
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


def error_response(request: DescribeConfigsRequest, error: KafkaError, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(resource, error) for resource in request.resources])


def _result(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource, version: int
) -> DescribeConfigsResult:
    try:
        entries = _entries(broker, resource)
    except KafkaError as error:
        return _failed(resource, error)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(request, entry, version) for entry in entries],
    )


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=int(error.code),
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _entries(broker: Broker, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    """Return the configs of one resource. Raises a KafkaError."""
    kind, name = resource_type(resource.resource_type), resource.resource_name
    wanted: Collection[str] | None = resource.configuration_keys or None
    if wanted is not None and len(wanted) > MAX_KEYS:
        raise InvalidRequest(f"{len(wanted)} config keys of one resource, at most {MAX_KEYS} are described at once")
    config = broker.controller.config
    if kind == ResourceType.TOPIC:
        check_name(name)
        if name not in broker.image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return describe_topic(config, broker.image.topic_config(name), wanted)
    if kind == ResourceType.BROKER and name == CLUSTER_WIDE:
        return describe_cluster_default(config, wanted)
    if kind == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("there are no configs that hold for all groups; name one")
        return describe_group(config, broker.image.group_config(name), wanted)
    if not name:
        raise InvalidRequest("log levels belong to one broker; name its node id")
    check_node(broker, name)
    if kind == ResourceType.BROKER:
        return describe_broker(config, wanted)
    return _log_levels(wanted)


def _log_levels(wanted: Collection[str] | None) -> list[ConfigEntry]:
    return [
        ConfigEntry(name, level, Source.BROKER_LOGGER, (), int(Type.STRING), None, sensitive=False, read_only=False)
        for name, level in loggers.levels().items()
        if wanted is None or name in wanted
    ]


def _config(request: DescribeConfigsRequest, entry: ConfigEntry, version: int) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version < SOURCES_FROM and entry.is_default,
        config_source=int(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=place.name, value=place.text, source=int(place.source))
            for place in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
