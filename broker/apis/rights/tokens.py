"""Rights of the APIs about delegation tokens, as far as they are not those of an owner or a renewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klamm.broker.apis.rights.guards import Guarded, after
from klamm.broker.apis.rights.table import CREATE_TOKENS, DESCRIBE, DESCRIBE_TOKENS, TOKEN, USER, Right

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from klamm.protocol.messages.describe_delegation_token import (
        DescribedDelegationToken,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )


def create(inner: Guarded, broker: Broker, context: RequestContext, request: CreateDelegationTokenRequest) -> Any:
    """Ask for CREATE_TOKENS on another user, if the token is to be that user's."""
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        if owner != context.ask.principal:
            context.ask.need(Right(CREATE_TOKENS, USER), owner)
    return inner.handle(broker, context, request)


def describe(inner: Guarded, broker: Broker, context: RequestContext, request: DescribeDelegationTokenRequest) -> Any:
    """Leave out tokens of others without DESCRIBE on the token or DESCRIBE_TOKENS on its owner."""
    ask = context.ask

    def may_see(token: DescribedDelegationToken) -> bool:
        owner = f"{token.principal_type}:{token.principal_name}"
        requester = f"{token.token_requester_principal_type}:{token.token_requester_principal_name}"
        renewers = [f"{renewer.principal_type}:{renewer.principal_name}" for renewer in token.renewers]
        return (
            ask.principal in (owner, requester, *renewers)
            or ask.may(Right(DESCRIBE, TOKEN), token.token_id, quiet=True)
            or ask.may(Right(DESCRIBE_TOKENS, USER), owner, quiet=True)
        )

    def hide(response: DescribeDelegationTokenResponse) -> DescribeDelegationTokenResponse:
        response.tokens = [token for token in response.tokens if may_see(token)]
        return response

    return after(inner.handle(broker, context, request), hide)
