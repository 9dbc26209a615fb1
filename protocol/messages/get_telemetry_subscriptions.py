"""GetTelemetrySubscriptions (KIP-714): which of its own metrics a client shall push, how often, and how packed.

A client without an instance id sends zeros and is given one.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Bool, Int8, Int16, Int32, String, Uuid


@message(key=71, kind="request", versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: Uuid = field()


@message(key=71, kind="response", versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32 = field()
    error_code: Int16 = field()
    client_instance_id: Uuid = field()
    subscription_id: Int32 = field()
    accepted_compression_types: list[Int8] = field()
    push_interval_ms: Int32 = field()
    telemetry_max_bytes: Int32 = field()
    delta_temporality: Bool = field()
    requested_metrics: list[String] = field()  # name prefixes; none: nothing is wanted, one empty: all
