"""AlterConfigs (33): v0-2. Replaces the whole config of topics, brokers and groups.

Superseded by IncrementalAlterConfigs. A key not in the request goes back to its default. v1 changed only throttling, v2
is flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klamm.broker.apis.config_resources import MAX_KEYS, Alteration, alter, tell_changes
from klamm.broker.controller.configs import KeyUpdate, Op
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [KeyUpdate(config.name, Op.SET, config.value) for config in resource.configs[: MAX_KEYS + 1]],
        )
        for resource in request.resources
    ]
    errors = await alter(broker, alterations, incremental=False, validate_only=request.validate_only)
    if not request.validate_only:
        tell_changes(broker, context, alterations, errors)
    return _response(request, errors)


def error_response(request: AlterConfigsRequest, error: KafkaError, version: int) -> AlterConfigsResponse:
    return _response(request, [error] * len(request.resources))


def _response(request: AlterConfigsRequest, errors: Sequence[KafkaError | None]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
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
