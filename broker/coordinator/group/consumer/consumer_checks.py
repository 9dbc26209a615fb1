"""Checks of requests from members of consumer groups: valid fields, current epochs, permitted commits.

Functions of a request, a group and a member. Each raises the error for the response. Source: KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from klamm.broker.coordinator.group.classic.classic_group import Client
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_member import (
    JOINING,
    LEAVING,
    LEFT_FOR_A_WHILE,
    ConsumerMember,
    Owned,
)
from klamm.broker.coordinator.names import check_each, check_names
from klamm.protocol.errors import (
    ErrorCode,
    FencedInstanceId,
    FencedMemberEpoch,
    InvalidRequest,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from klamm.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

OWN_MEMBER_ID_FROM = 1
EPOCH_COMMIT_FROM = 9


def check_request(request: ConsumerGroupHeartbeatRequest, client: Client, assignors: Sequence[str]) -> None:
    """Raise unless the request is valid by itself."""
    epoch = request.member_epoch
    _check_names(request, client)
    if not request.member_id and (client.version >= OWN_MEMBER_ID_FROM or epoch > 0 or epoch == LEAVING):
        raise InvalidRequest("the member id is empty")
    if not request.group_id:
        raise InvalidRequest("the group id is empty")
    if request.instance_id == "":
        raise InvalidRequest("the instance id is empty; leave it out (null)")
    if request.rack_id == "":
        raise InvalidRequest("the rack id is empty; leave it out (null)")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("a member that joins must give its rebalance timeout")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequest("a member that joins owns no partitions: the list must be there, and empty")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequest("a member that joins must be subscribed to topics, by name or by expression")
    elif epoch == LEFT_FOR_A_WHILE and request.instance_id is None:
        raise InvalidRequest("member epoch -2 is for static members")
    elif epoch < LEFT_FOR_A_WHILE:
        raise InvalidRequest(f"there is no member epoch {epoch}")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        known = ", ".join(assignors)
        raise UnsupportedAssignor(f"there is no assignor {request.server_assignor!r} here, only {known}")


def _check_names(request: ConsumerGroupHeartbeatRequest, client: Client) -> None:
    check_names(
        member_id=request.member_id,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=client.client_id,
        subscribed_topic_regex=request.subscribed_topic_regex,
    )
    check_each("subscribed_topic_name", request.subscribed_topic_names or ())


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    version: int | None,
    partitions: Iterable[tuple[bytes, int]],
) -> None:
    """Raise an error unless an OffsetCommit, or with no `version` a TxnOffsetCommit, is allowed.

    An earlier epoch of the member is accepted if it had the partitions at that epoch (KIP-1251).
    """
    if epoch < 0 and not group.members:
        return  # a consumer without group management, or an administrator
    if version is None and epoch < 0 and not member_id:
        return  # the transaction coordinator fences this producer
    member = known(group, member_id)
    if member.classic is None and version is not None and version < EPOCH_COMMIT_FROM:
        raise UnsupportedVersion("members of the consumer protocol commit with OffsetCommit v9 or newer")
    if epoch == member.epoch:
        return
    held = member.held()
    if epoch > member.epoch or any(epoch < held.get(topic, {}).get(index, epoch + 1) for topic, index in partitions):
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"{member_id} is at epoch {member.epoch}, not {epoch}")


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise an error unless an OffsetFetch is allowed."""
    if member_id is None and epoch < 0:
        return
    member = known(group, member_id or "")
    if epoch != member.epoch:
        raise StaleMemberEpoch(f"{member.member_id} is at epoch {member.epoch}, not {epoch}")


def known(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """Return the member. Raises UnknownMemberId."""
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"group {group.group_id!r} has no member {member_id!r}")
    return member


def fenced(member_id: str, current: ConsumerMember) -> FencedInstanceId:
    """Return the error for a member if another member now has its instance id."""
    return FencedInstanceId(f"instance {current.instance_id!r} is {current.member_id!r} now, not {member_id!r}")


def check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise FencedMemberEpoch unless the client has the member's epoch, or the previous one because it missed a
    response.
    """
    if epoch > member.epoch:
        size = "greater"
    elif epoch < member.epoch and (epoch != member.previous_epoch or not member.owns_at_most(owned)):
        size = "smaller"
    else:
        return
    raise FencedMemberEpoch(
        f"epoch {epoch} of {member.member_id} is {size} than its epoch here, {member.epoch}: it must join again"
    )
