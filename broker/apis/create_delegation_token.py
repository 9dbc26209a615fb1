"""CreateDelegationToken (38): v0-3. For oneself; from v3 on for another owner (KIP-373)."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from klamm.broker.apis.token_requests import USER, token_keys
from klamm.broker.controller.tokens import Lifetimes, creation
from klamm.protocol.errors import InvalidPrincipalType, KafkaError
from klamm.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

NO_TIME = -1
OTHER_OWNERS_FROM = 3


async def handle(
    broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = context.connection.principal
    owner = _owner(request) or requester
    response = CreateDelegationTokenResponse(
        error_code=0,
        **_principals(owner, requester, context.api_version),
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    try:
        keys = token_keys(broker, context)
        _check_types(owner, request)
        renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
        token = await broker.controller.change_tokens(
            creation(
                owner,
                requester,
                renewers,
                request.max_lifetime_ms,
                lifetimes=Lifetimes.from_config(broker.config),
                now_ms=broker.clock.wall_ms(),
                random_bytes=os.urandom,
            )
        )
        await asyncio.get_running_loop().run_in_executor(broker.searches, keys.prepare, (token.token_id,))
    except KafkaError as error:
        response.error_code = int(error.code)
        return response
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_ms, token.max_ms
    response.expiry_timestamp_ms, response.token_id = token.expiry_ms, token.token_id
    response.hmac = keys.hmac_of(token.token_id)
    return response


def error_response(
    request: CreateDelegationTokenRequest, error: KafkaError, version: int
) -> CreateDelegationTokenResponse:
    owner = _owner(request) or f"{USER}:"
    return CreateDelegationTokenResponse(
        error_code=int(error.code),
        **_principals(owner, owner, version),
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def _owner(request: CreateDelegationTokenRequest) -> str | None:
    name = request.owner_principal_name
    return f"{request.owner_principal_type}:{name}" if name else None


def _check_types(owner: str, request: CreateDelegationTokenRequest) -> None:
    types = {owner.partition(":")[0], *(each.principal_type for each in request.renewers)}
    if types != {USER}:
        raise InvalidPrincipalType("owner and renewers must be of type User")


def _principals(owner: str, requester: str, version: int) -> dict[str, str]:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    principals = {"principal_type": owner_type, "principal_name": owner_name}
    if version < OTHER_OWNERS_FROM:
        return principals
    return principals | {
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
    }
