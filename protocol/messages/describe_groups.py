"""DescribeGroups (15): state, members and assignments of classic groups.

v1 adds the throttle time, v3 the authorized operations (KIP-430), v4 static members (KIP-345). v5 is flexible. v6
answers GROUP_ID_NOT_FOUND with a message for a group that is not there, which older ones see as a dead group
(KIP-1043).
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Bool, Bytes, Int16, Int32, String

AUTHORIZED_OPERATIONS_OMITTED = -(2**31)


@message(key=15, kind="request", versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[String] = field()
    include_authorized_operations: Bool = field("3+")


@struct
class DescribedGroupMember:
    member_id: String = field()
    group_instance_id: String | None = field("4+", nullable="4+", default=None, ignorable=True)
    client_id: String = field()
    client_host: String = field()
    member_metadata: Bytes = field()
    member_assignment: Bytes = field()


@struct
class DescribedGroup:
    error_code: Int16 = field()
    error_message: String | None = field("6+", nullable="6+", default=None)
    group_id: String = field()
    group_state: String = field()
    protocol_type: String = field()
    protocol_data: String = field()
    members: list[DescribedGroupMember] = field()
    authorized_operations: Int32 = field("3+", default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=15, kind="response", versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    groups: list[DescribedGroup] = field()
