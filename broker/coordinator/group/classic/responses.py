"""Responses to members of classic groups, and values taken from their requests."""

from __future__ import annotations

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Client, Member, Protocols
from klamm.broker.coordinator.runtime import types
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from klamm.protocol.messages.sync_group import SyncGroupResponse

NO_MEMBER = ""

COORDINATOR_NOT_AVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
UNKNOWN_MEMBER_ID = int(ErrorCode.UNKNOWN_MEMBER_ID)
REBALANCE_IN_PROGRESS = int(ErrorCode.REBALANCE_IN_PROGRESS)


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def rebalance_timeout_of(request: JoinGroupRequest, client: Client) -> int:
    """Return the rebalance timeout. JoinGroup v0 has one timeout for session and rebalance."""
    return request.session_timeout_ms if client.version == 0 else request.rebalance_timeout_ms


def joined(
    group: ClassicGroup, member: Member, *, leads: bool, skip_assignment: bool = False, leader: str | None = None
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=leader or group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=group.joined_members() if leads else [],
    )


def assignment_of(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def metadata_error(code: ErrorCode) -> int:
    """Return the error code for a member when the record of its group cannot be stored."""
    return int(types.coordinator_error(code, too_large=ErrorCode.UNKNOWN_SERVER_ERROR))
