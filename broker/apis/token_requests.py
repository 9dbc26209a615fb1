"""Common parts of the four APIs of delegation tokens: the checks of the client, and the keys of the tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import DelegationTokenAuthDisabled, DelegationTokenRequestNotAllowed

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.security.tokens import TokenKeys

ANONYMOUS = "User:ANONYMOUS"
USER = "User"


def token_keys(broker: Broker, context: RequestContext) -> TokenKeys:
    """Return the keys of the tokens. Raises the error for a client that may not ask, or a broker without tokens."""
    if not _may_ask(broker, context):
        raise DelegationTokenRequestNotAllowed("Delegation Token requests are not allowed on PLAINTEXT/1-way SSL "
                                               "channels and on delegation token authenticated channels.")  # fmt: skip
    if broker.token_keys is None:
        raise DelegationTokenAuthDisabled("delegation.token.secret.key is not set")
    return broker.token_keys


def _may_ask(broker: Broker, context: RequestContext) -> bool:
    connection = context.connection
    if connection.is_token_login:
        return False
    protocol = next((each.protocol for each in broker.config.listeners if each.name == connection.listener), "")
    return protocol.startswith("SASL_") or (protocol == "SSL" and connection.principal != ANONYMOUS)
