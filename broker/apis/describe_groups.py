"""DescribeGroups (15): v0-6. State, members and assignments of classic groups.

A group that does not exist, or uses the consumer protocol, is Dead; v6 has GROUP_ID_NOT_FOUND for it (KIP-1043).
Members have metadata only while the group is stable, and their last assignment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.apis.common import NOT_ASKED, group_operations, unseen
from klamm.broker.coordinator.group.classic.states import State
from klamm.protocol.errors import GroupIdNotFound, KafkaError
from klamm.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup

NOT_FOUND_FROM = 6


def handle(broker: Broker, context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    described = []
    for group_id in request.groups:
        if not unseen(context, group_id):
            continue
        operations = group_operations(context, group_id) if request.include_authorized_operations else NOT_ASKED
        try:
            broker.groups.check(group_id)
            group = broker.groups.classic.groups.get(group_id)
            if group is not None:
                described.append(_described(group, operations))
            elif context.api_version >= NOT_FOUND_FROM:
                other = broker.groups.groups.get(group_id) is not None
                raise GroupIdNotFound(f"Group {group_id} {'is not a classic group' if other else 'not found'}.")
            else:
                described.append(
                    DescribedGroup(group_id=group_id, group_state=State.DEAD.value, authorized_operations=operations)
                )
        except KafkaError as error:
            described.append(_failed(group_id, error, context.api_version))
    return DescribeGroupsResponse(groups=described)


def _described(group: ClassicGroup, operations: int) -> DescribedGroup:
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        authorized_operations=operations,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def _failed(group_id: str, error: KafkaError, version: int) -> DescribedGroup:
    state = State.DEAD.value if isinstance(error, GroupIdNotFound) else ""
    return DescribedGroup(
        group_id=group_id,
        error_code=int(error.code),
        error_message=error.message if version >= NOT_FOUND_FROM else None,
        group_state=state,
    )


def error_response(request: DescribeGroupsRequest, error: KafkaError, version: int) -> DescribeGroupsResponse:
    """Return the same error for every group."""
    return DescribeGroupsResponse(groups=[_failed(group_id, error, version) for group_id in request.groups])
