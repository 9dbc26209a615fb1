"""DeleteGroups (42): delete empty groups with their offsets (KIP-229).

From v1 the answer leaves before a throttled connection is muted (KIP-219). v2 is flexible. v3 gives a message with
the error of a group.
"""

from __future__ import annotations

from klamm.protocol.schema import field, message, struct
from klamm.protocol.wire import Int16, Int32, String


@message(key=42, kind="request", versions="0-3", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[String] = field()


@struct
class DeletableGroupResult:
    group_id: String = field()
    error_code: Int16 = field()
    error_message: String | None = field("3+", nullable="3+", default=None, ignorable=True)


@message(key=42, kind="response", versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = field()
    results: list[DeletableGroupResult] = field()
