"""SaslAuthenticate (36): v0-2, after a login or on a listener without logins: refused like `sasl_handshake`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

AFTER_A_LOGIN = "SaslAuthenticate request received after successful authentication"


def handle(broker: Broker, context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    listener = context.connection.listener
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE),
        error_message=AFTER_A_LOGIN if _has_logins(broker, listener) else f"listener {listener} does not ask for SASL",
        auth_bytes=b"",
    )


def _has_logins(broker: Broker, name: str) -> bool:
    return any(listener.name == name and listener.uses_sasl for listener in broker.config.listeners)
