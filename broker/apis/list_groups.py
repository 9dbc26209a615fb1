"""ListGroups (16): v0-5. All groups of this broker; v4 filters by state (KIP-518), v5 by type (KIP-848).

While the coordinator loads its log the response has the groups loaded so far, with COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker


def handle(broker: Broker, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = broker.groups
    coordinator.start()
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) if coordinator.topic.loading else 0,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.kind,
            )
            for group in coordinator.groups
            if (not states or group.state.value.lower() in states) and (not types or group.kind in types)
        ],
    )
