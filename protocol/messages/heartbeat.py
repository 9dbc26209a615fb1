"""Heartbeat (12): a member of a classic group shows that it lives, and learns of rebalances.

v1 adds the throttle time, v3 static members (KIP-345). v4 is flexible.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Int16, Int32, String


@message(key=12, kind="request", versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field("3+", nullable="3+", default=None)


@message(key=12, kind="response", versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field()
