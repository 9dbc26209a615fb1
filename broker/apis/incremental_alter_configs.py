"""IncrementalAlterConfigs (44): v0-1. Sets, deletes, appends to and subtracts from single config keys (KIP-339).

Topics, groups, this broker, all brokers (the empty name), and the log levels of this broker (KIP-412). Each resource
succeeds or fails alone. Changes are durable and in effect before the response; log levels end with the process. v1 is
flexible. Configs of client metrics are not supported yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.broker.apis.config_resources import MAX_KEYS, Alteration, alter, tell_changes
from klamm.broker.controller.configs import KeyUpdate
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [
                KeyUpdate(config.name, config.config_operation, config.value)
                for config in resource.configs[: MAX_KEYS + 1]
            ],
        )
        for resource in request.resources
    ]
    errors = await alter(broker, alterations, incremental=True, validate_only=request.validate_only)
    if not request.validate_only:
        tell_changes(broker, context, alterations, errors)
    return _response(request, errors)


def error_response(
    request: IncrementalAlterConfigsRequest, error: KafkaError, version: int
) -> IncrementalAlterConfigsResponse:
    return _response(request, [error] * len(request.resources))


def _response(
    request: IncrementalAlterConfigsRequest, errors: Sequence[KafkaError | None]
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=int(error.code) if error is not None else 0,
                error_message=error.message if error is not None else None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in zip(request.resources, errors, strict=True)
        ]
    )
