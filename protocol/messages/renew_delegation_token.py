"""RenewDelegationToken (KIP-48): push the expiry of a token back, at most to its maximum lifetime.

The token is named by its HMAC. v2 is flexible. Apache Kafka 4.0 dropped v0, which had the layout of v1.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bytes, Int16, Int32, Int64


@message(key=39, kind="request", versions="0-2", flexible="2+")
class RenewDelegationTokenRequest:
    hmac: Bytes = field(sensitive=True)
    renew_period_ms: Int64 = field()


@message(key=39, kind="response", versions="0-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: Int16 = field()
    expiry_timestamp_ms: Int64 = field()
    throttle_time_ms: Int32 = field()
