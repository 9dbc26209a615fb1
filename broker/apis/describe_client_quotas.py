"""DescribeClientQuotas (48): v0-1. The quotas that are set, of the entities that fit a filter. v1 is flexible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.quotas.filters import component, matching
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    quotas = broker.image.client_quotas
    components = [component(part.entity_type, part.match_type, part.match) for part in request.components]
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas[entity].items()],
            )
            for entity in matching(quotas, components, strict=request.strict)
        ],
    )


def error_response(
    _request: DescribeClientQuotasRequest, error: KafkaError, _version: int
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=int(error.code), error_message=error.message, entries=None)
