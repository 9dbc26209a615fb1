"""UnregisterBroker (KIP-500): forget a broker that will not come back."""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, Int32, String


@message(key=64, kind="request", versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32 = field()


@message(key=64, kind="response", versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
