"""UnregisterController (KIP-1312): forget a KRaft controller that will not come back. New in Apache Kafka 4.4."""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, Int32, String


@message(key=94, kind="request", versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: Int32 = field()


@message(key=94, kind="response", versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    error_message: String | None = field(nullable="0+")
