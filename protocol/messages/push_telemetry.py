"""PushTelemetry (KIP-714): a client hands over its metrics, OTLP protobuf packed with `compression_type`.

`terminating` marks the last push before the client goes away; it may come ahead of the interval.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bool, Bytes, Int8, Int16, Int32, Uuid


@message(key=72, kind="request", versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    terminating: Bool = field()
    compression_type: Int8 = field()
    metrics: Bytes = field()


@message(key=72, kind="response", versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
