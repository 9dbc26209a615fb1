"""ListGroups (16): the groups coordinated by this broker.

v1 adds the throttle time. v3 is flexible. v4 filters by state and shows it (KIP-518), v5 the same for the group type
(KIP-848). An empty filter lets all pass.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@message(key=16, kind="request", versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[String] = field("4+")
    types_filter: list[String] = field("5+")


@struct
class ListedGroup:
    group_id: String = field()
    protocol_type: String = field()
    group_state: String = field("4+", ignorable=True)
    group_type: String = field("5+", ignorable=True)


@message(key=16, kind="response", versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = field("1+", ignorable=True)
    error_code: Int16 = field()
    groups: list[ListedGroup] = field()
