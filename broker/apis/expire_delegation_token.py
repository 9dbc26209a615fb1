"""ExpireDelegationToken (40): v0-2, by the HMAC of the token. A negative period ends it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.token_requests import token_keys
from klamm.broker.controller.tokens import expiry
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    plan = expiry(
        token_keys(broker, context),
        bytes(request.hmac),
        context.connection.principal,
        request.expiry_time_period_ms,
        broker.clock.wall_ms(),
    )
    token = await broker.controller.change_tokens(plan)
    return ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=token.expiry_ms, throttle_time_ms=0)


def error_response(
    request: ExpireDelegationTokenRequest, error: KafkaError, version: int
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=-1, throttle_time_ms=0)
