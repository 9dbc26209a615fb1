"""ListConfigResources (74): v0-1. The names of resources that can have a config (KIP-1142).

v0, once ListClientMetricsResources, lists client metrics subscriptions; v1 lists any types, all if none is named. Only
groups with overrides are listed. Client metrics subscriptions are not supported yet, so none are listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.broker.controller.configs import ResourceType
from klamm.protocol.errors import UnsupportedVersion
from klamm.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

TYPES_FROM = 1
TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(broker: Broker, context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if context.api_version < TYPES_FROM:
        return ListConfigResourcesResponse()
    wanted = dict.fromkeys(request.resource_types or TYPES)
    unknown = [code for code in wanted if code not in TYPES]
    if unknown:
        raise UnsupportedVersion(f"unknown resource types: {unknown}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=int(code))
            for code in wanted
            for name in _names(broker, code)
        ]
    )


def _names(broker: Broker, code: int) -> Iterable[str]:
    if code == ResourceType.TOPIC:
        return broker.image.topics
    if code in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return map(str, broker.image.brokers)
    return broker.image.group_configs if code == ResourceType.GROUP else ()
