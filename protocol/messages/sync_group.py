"""SyncGroup (14): the leader of a classic group hands in the assignment, every member gets its share.

v1 adds the throttle time, v3 static members (KIP-345). v4 is flexible. v5 names the protocol in both directions, so
that a mismatch is found (KIP-559).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment:
    member_id: String = field()
    assignment: Bytes = field()


@message(key=14, kind="request", versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: String = field()
    generation_id: Int32 = field()
    member_id: String = field()
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field()


@message(key=14, kind="response", versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field()
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignment: Bytes = field()
