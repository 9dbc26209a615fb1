"""LeaveGroup (13): members leave a group of their own accord, or an administrator removes them.

v1 adds the throttle time. From v3 several members leave at once, static ones by their instance id (KIP-345). v4 is
flexible, v5 carries the reason (KIP-800).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@struct
class MemberIdentity:
    member_id: String = field("3+")
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    reason: String | None = field("5+", nullable="5+", default=None, ignorable=True)


@message(key=13, kind="request", versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: String = field()
    member_id: String = field("0-2")
    members: list[MemberIdentity] = field("3+")


@struct
class MemberResponse:
    member_id: String = field("3+")
    group_instance_id: String | None = field("3+", nullable="3+")
    error_code: Int16 = field("3+")


@message(key=13, kind="response", versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field()
    members: list[MemberResponse] = field("3+")
