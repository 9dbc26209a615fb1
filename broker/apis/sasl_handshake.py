"""SaslHandshake (17): v0-1, after a login or on a listener without logins: ILLEGAL_SASL_STATE; the connection stays.

Logins, and the re-authentication of a session that has an end, do not come here (`broker/network/login.py`). A client
that is set up for SASL_PLAINTEXT and meets a PLAINTEXT listener gets this as well, and is not left to guess from a
closed connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[])
