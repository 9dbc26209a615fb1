"""SaslHandshake (KIP-43): the client names the SASL mechanism it wants, the broker lists those it knows.

With v0 the SASL tokens that follow travel as bare size-prefixed frames without Kafka headers; with v1 they travel
inside SaslAuthenticate (KIP-152). The layouts of v0 and v1 are the same. This API never became flexible: Java clients
up to 2.4 do not negotiate its version properly.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, String


@message(key=17, kind="request", versions="0-1", flexible="none")
class SaslHandshakeRequest:
    mechanism: String = field()


@message(key=17, kind="response", versions="0-1", flexible="none")
class SaslHandshakeResponse:
    error_code: Int16 = field()
    mechanisms: list[String] = field()
