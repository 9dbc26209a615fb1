"""LeaveGroup (13): v0-5. Members leave a group, or an administrator removes them by their instance id.

v3 has several members in one request and an error for each (KIP-345); before it the error of the one member is at the
top level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.coordinator.names import check_names
from klamm.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker

MANY_MEMBERS_FROM = 3


def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    groups = broker.groups
    if request.group_id:
        groups.check(request.group_id)
    one = context.api_version < MANY_MEMBERS_FROM
    if one:
        request.members = [MemberIdentity(member_id=request.member_id)]
    for member in request.members:
        check_names(member_id=member.member_id, group_instance_id=member.group_instance_id)
    now = groups.now()
    response = groups.groups.protocol_handler(request.group_id).leave(request, now)
    groups.arm(now)
    if one and response.members:
        return LeaveGroupResponse(error_code=response.members[0].error_code)
    return response
