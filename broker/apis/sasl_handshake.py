"""SaslHandshake (17): v0-1. Refused: no listener of this broker asks for SASL, so there is nothing to agree on.

A client that is set up for SASL_PLAINTEXT and meets a PLAINTEXT listener is told ILLEGAL_SASL_STATE, as by Apache
Kafka, and not left to guess from a closed connection.
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
