"""SaslAuthenticate (KIP-152): one step of a SASL exchange; the bytes belong to the mechanism chosen by SaslHandshake.

v1 reports how long the session lasts before the client must authenticate again (KIP-368), v2 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bytes, Int16, Int64, String


@message(key=36, kind="request", versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Bytes = field(sensitive=True)


@message(key=36, kind="response", versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
    auth_bytes: Bytes = field(sensitive=True)
    session_lifetime_ms: Int64 = field("1+", ignorable=True)  # 0: no re-authentication asked
