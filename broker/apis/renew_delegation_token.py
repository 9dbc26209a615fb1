"""RenewDelegationToken (39): v0-2, by the HMAC of the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.token_requests import token_keys
from klamm.broker.controller.tokens import Lifetimes, renewal
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    plan = renewal(
        token_keys(broker, context),
        bytes(request.hmac),
        context.connection.principal,
        request.renew_period_ms,
        Lifetimes.from_config(broker.config),
        broker.clock.wall_ms(),
    )
    token = await broker.controller.change_tokens(plan)
    return RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=token.expiry_ms, throttle_time_ms=0)


def error_response(
    request: RenewDelegationTokenRequest, error: KafkaError, version: int
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=int(error.code), expiry_timestamp_ms=-1, throttle_time_ms=0)
