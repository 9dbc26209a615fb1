"""Rights of the APIs about configs: on the topic or the group that they belong to, on the cluster for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.broker.apis.rights.asker import REFUSED
from klamm.broker.apis.rights.guards import Guarded, split
from klamm.broker.apis.rights.table import (
    ALTER_CONFIGS,
    CLUSTER,
    DESCRIBE_CONFIGS,
    GROUP,
    TOPIC,
    Each,
    Right,
)
from klamm.broker.controller.configs import ResourceType as ConfigResource
from klamm.broker.security.authorizer.codes import CLUSTER_NAME, Operation, ResourceType
from klamm.protocol.apis import ApiKey

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

RESOURCES = {
    ConfigResource.TOPIC: TOPIC,
    ConfigResource.GROUP: GROUP,
    ConfigResource.BROKER: CLUSTER,
    ConfigResource.BROKER_LOGGER: CLUSTER,
    ConfigResource.CLIENT_METRICS: CLUSTER,
}


def describe(inner: Guarded, broker: Broker, context: RequestContext, request: Any) -> Any:
    return _split(inner, broker, context, request, DESCRIBE_CONFIGS, "results", (TOPIC, GROUP, CLUSTER))


def alter(inner: Guarded, broker: Broker, context: RequestContext, request: Any) -> Any:
    return _split(inner, broker, context, request, ALTER_CONFIGS, "responses", (TOPIC, GROUP, CLUSTER))


def _split(
    inner: Guarded,
    broker: Broker,
    context: RequestContext,
    request: Any,
    operation: Operation,
    answers: str,
    types: tuple[ResourceType, ...],
) -> Any:
    """Refuse resources of the first of the types, have those of the other types refused inside of that."""
    if not types:
        return inner.handle(broker, context, request)
    kind, *others = types
    right = Right(operation, kind)

    def may(resource: Any) -> bool:
        if _belongs_to(resource.resource_type, context.api_key) is not kind:
            return True
        return context.ask.may(right, CLUSTER_NAME if kind is CLUSTER else resource.resource_name)

    def handle(broker: Broker, context: RequestContext, request: Any) -> Any:
        return _split(inner, broker, context, request, operation, answers, tuple(others))

    return split(
        Guarded(handle, inner.refuse),
        broker,
        context,
        request,
        Each(right, "resources", answers, "resource_name"),
        may,
        REFUSED[kind],
    )


def _belongs_to(config_resource: int, api_key: int) -> ResourceType | None:
    """What the right is asked on; None for what has no configs, which the handler tells anybody."""
    if config_resource == ConfigResource.BROKER_LOGGER and api_key == ApiKey.ALTER_CONFIGS:
        return None  # log levels are altered in another way
    return RESOURCES.get(config_resource)  # type: ignore[call-overload, no-any-return]
