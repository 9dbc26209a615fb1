"""AlterClientQuotas (49): v0-1. Sets and removes quotas of users, client ids and addresses, each entity for itself.

All changes of an entity are made, or none. v1 is flexible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klamm.broker.controller.client_quotas import Alteration
from klamm.broker.quotas.alterations import Op
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    alterations = [
        Alteration(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [Op(op.key, op.value, op.remove) for op in entry.ops],
        )
        for entry in request.entries
    ]
    return _response(request, await broker.controller.alter_client_quotas(alterations, request.validate_only))


def error_response(request: AlterClientQuotasRequest, error: KafkaError, _version: int) -> AlterClientQuotasResponse:
    return _response(request, [error] * len(request.entries))


def _response(request: AlterClientQuotasRequest, errors: Iterable[KafkaError | None]) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntryData(
                error_code=int(error.code) if error is not None else 0,
                error_message=error.message if error is not None else None,
                entity=entry.entity,
            )
            for entry, error in zip(request.entries, errors, strict=True)
        ]
    )
