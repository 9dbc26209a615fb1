"""JoinGroup (11): become a member of a classic consumer group, or answer its rebalance.

v1 tells the rebalance timeout apart from the session timeout (KIP-62); without it the session timeout counts for
both. v2 adds the throttle time. From v4 a new member is sent away once with MEMBER_ID_REQUIRED to come back with the
id it was given (KIP-394). v5 is for static members (KIP-345), v6 flexible, v7 tells the protocol type in the answer
(KIP-559), v8 adds the reason (KIP-800), v9 lets a static leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol:
    name: String = field()
    metadata: Bytes = field()


@message(key=11, kind="request", versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: String = field()
    session_timeout_ms: Int32 = field()
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field()
    group_instance_id: String | None = field("5+", nullable="5+", default=None)
    protocol_type: String = field()
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: String | None = field("8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: String = field()
    group_instance_id: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    metadata: Bytes = field()


@message(key=11, kind="response", versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = field("2+", ignorable=True)
    error_code: Int16 = field()
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String = field()
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field()
    members: list[JoinGroupResponseMember] = field()
