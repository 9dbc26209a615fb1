"""DescribeDelegationToken (41): v0-3. Tokens by owner, with their HMACs; null means of all owners, no owner none.

Which of them a client sees is the authorizer's matter (`rights`); a token that has expired is still described until it
is swept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.token_requests import token_keys
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.security.tokens import DelegationToken


REQUESTERS_FROM = 3


def handle(
    broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    keys = token_keys(broker, context)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    tokens = [
        _described(token, keys.hmac_of(token.token_id), context.api_version)
        for token in broker.image.tokens.values()
        if owners is None or token.owner in owners
    ]
    return DescribeDelegationTokenResponse(error_code=0, tokens=tokens, throttle_time_ms=0)


def error_response(
    request: DescribeDelegationTokenRequest, error: KafkaError, version: int
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=int(error.code), tokens=[], throttle_time_ms=0)


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = [renewer.partition(":")[::2] for renewer in token.renewers]
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, name in renewers],
    )
    if version >= REQUESTERS_FROM:
        described.token_requester_principal_type = requester_type
        described.token_requester_principal_name = requester_name
    return described
