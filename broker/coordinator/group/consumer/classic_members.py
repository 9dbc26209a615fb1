"""Members of a consumer group that use the classic protocol: maps JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

    JoinGroup     is such a member's heartbeat: its subscription, its owned partitions, and the next step to the target;
                  the member's epoch is the generation in the response, and no member leads
    SyncGroup     returns the assignment that resulted from JoinGroup
    Heartbeat     keeps the session alive, and asks for a JoinGroup when there is a step to make
    LeaveGroup    removes the member

JoinGroup and SyncGroup must arrive within the member's rebalance timeout, else it is fenced. Source: Kafka's
GroupMetadataManager (classicGroupJoinToConsumerGroup and the like).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import Client, JoinCallback, SyncCallback
from klamm.broker.coordinator.group.classic.joins import MEMBER_ID_REQUIRED_FROM
from klamm.broker.coordinator.group.classic.responses import NO_MEMBER, protocols_of, rebalance_timeout_of
from klamm.broker.coordinator.group.consumer.consumer import ConsumerGroups, successor
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_member import ClassicProtocols, ConsumerMember, MemberState
from klamm.broker.coordinator.group.migration import classic_assignment
from klamm.broker.coordinator.group.subscription import CONSUMER, Subscription, parse_subscription
from klamm.broker.coordinator.runtime.types import Now
from klamm.protocol.errors import (
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from klamm.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from klamm.protocol.wire import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from klamm.broker.metadata.image import TopicImage


class ClassicMembers:
    """The classic side of consumer groups; its methods are those of `ClassicGroups`."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        classic: ClassicGroups,
        *,
        new_id: Callable[[], str],
        topics_by_id: Callable[[], Mapping[bytes, TopicImage]],
    ) -> None:
        self._consumers = consumers
        self._classic = classic
        self._new_id = new_id
        self._topics_by_id = topics_by_id

    def join(self, request: JoinGroupRequest, client: Client, callback: JoinCallback, now: Now) -> None:
        group = self._consumers.groups[request.group_id]
        member_id = request.member_id
        try:
            subscription = self._check_join(group, request)
            self._consumers.check_room(group, member_id)
            if not member_id:
                member_id = f"{request.group_instance_id or client.client_id}-{self._new_id()}"
                if request.group_instance_id is None and client.version >= MEMBER_ID_REQUIRED_FROM:
                    callback(JoinGroupResponse(error_code=int(ErrorCode.MEMBER_ID_REQUIRED), member_id=member_id))
                    return
            member, replaced = self._joining(group, member_id, request.group_instance_id, known=bool(request.member_id))
        except KafkaError as error:
            full = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            callback(JoinGroupResponse(error_code=int(error.code), member_id=NO_MEMBER if full else request.member_id))
            return
        change = self._consumers.change(group)
        if replaced is not None:
            self._consumers.replace_static(change, replaced, member)
        updated = member._replace(
            rack_id=subscription.rack_id if subscription.rack_id is not None else member.rack_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=rebalance_timeout_of(request, client),
            topic_names=subscription.topics,
            topic_regex="",
            server_assignor=None,
            classic=ClassicProtocols(request.session_timeout_ms, tuple(protocols_of(request))),
        )
        topics = self._consumers.topics()
        owned = {topics[name].topic_id: indexes for name, indexes in subscription.owned.items() if name in topics}
        updated = self._consumers.reconciler.advance(change, member, updated, owned, now)
        change.then(lambda: self._consumers.sessions.expect_sync(group, updated, now))
        assert updated.classic is not None
        response = JoinGroupResponse(
            generation_id=updated.epoch,
            protocol_type=CONSUMER,
            protocol_name=updated.classic.protocols[0][0],
            leader="",
            member_id=member_id,
        )
        failed = JoinGroupResponse(member_id=NO_MEMBER)

        def on_stored(code: int) -> None:
            failed.error_code = code
            callback(failed if code else response)

        self._consumers.migration.downgrade_if_classic(change, now)
        self._consumers.commit(change, on_stored, now)

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> Subscription:
        limits = self._classic.limits
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            raise InvalidSessionTimeout(f"session timeout {request.session_timeout_ms} ms is not within the limits")
        known = [protocol.name for protocol in request.protocols]
        common = set(known)
        for member in group.classic_members:
            assert member.classic is not None
            if member.member_id != request.member_id:
                common &= {name for name, _ in member.classic.protocols}
        if request.protocol_type != CONSUMER or not common:
            raise InconsistentGroupProtocol(f"group {group.group_id} has no protocol in common with the member")
        try:
            return parse_subscription(bytes(request.protocols[0].metadata))
        except Malformed as error:
            raise InconsistentGroupProtocol(f"the subscription cannot be read: {error}") from None

    def _joining(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, *, known: bool
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """Return the member, and the static member it replaces, if any."""
        if instance_id is not None:
            current = group.static_member(instance_id)
            if current is not None and current.member_id != member_id:
                if known:
                    raise FencedInstanceId(f"{instance_id!r} is {current.member_id!r} now")
                return successor(current, member_id), current
            if current is None and known:
                raise UnknownMemberId(f"group {group.group_id} has no static member {instance_id!r}")
        return group.members.get(member_id) or ConsumerMember(member_id, instance_id=instance_id), None

    def sync(self, request: SyncGroupRequest, callback: SyncCallback, now: Now) -> None:
        group = self._consumers.groups[request.group_id]
        try:
            member = self._member(group, request.member_id, request.group_instance_id)
            assert member.classic is not None
            names = [name for name, _ in member.classic.protocols]
            if (request.protocol_type or CONSUMER) != CONSUMER or (request.protocol_name or names[0]) not in names:
                raise InconsistentGroupProtocol("the member has joined with another protocol")
            if request.generation_id != member.epoch:
                raise IllegalGeneration(f"{member.member_id} is at generation {member.epoch}")
            if (
                self._consumers.reconciler.is_behind(group, member, now)
                and member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                self._consumers.sessions.expect_join(group, member, now)
                raise RebalanceInProgress(f"group {group.group_id} is at epoch {group.epoch}")
        except KafkaError as error:
            callback(SyncGroupResponse(error_code=int(error.code)))
            return
        self._consumers.sessions.has_synced(group, member, now)
        callback(
            SyncGroupResponse(
                protocol_type=CONSUMER,
                protocol_name=names[0],
                assignment=classic_assignment(member, member.assigned, self._topics_by_id()),
            )
        )

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        group = self._consumers.groups[request.group_id]
        try:
            member = self._member(group, request.member_id, request.group_instance_id)
            if request.generation_id != member.epoch:
                raise IllegalGeneration(f"{member.member_id} is at generation {member.epoch}")
        except KafkaError as error:
            return HeartbeatResponse(error_code=int(error.code))
        self._consumers.sessions.expect_heartbeat(group, member, now)
        if not self._has_a_step(group, member, now):
            return HeartbeatResponse()
        self._consumers.sessions.expect_join(group, member, now)
        return HeartbeatResponse(error_code=int(ErrorCode.REBALANCE_IN_PROGRESS))

    def _has_a_step(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> bool:
        if self._consumers.reconciler.is_behind(group, member, now) or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        target = group.target.get(member.member_id, {})
        return any(
            group.is_free(topic, index, member.member_id)
            for topic, indexes in target.items()
            for index in indexes - member.assigned.get(topic, {}).keys()
        )

    def leave(self, request: LeaveGroupRequest, now: Now) -> LeaveGroupResponse:
        """Handle LeaveGroup in the form of version 3. An administrator may remove static members of either protocol."""
        group = self._consumers.groups[request.group_id]
        answers: list[MemberResponse] = []
        gone: list[str] = []
        for identity in request.members:
            code = self._leaving(group, identity, gone)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        codes: list[int] = []
        if gone:
            change = self._consumers.change(group)
            self._consumers.remove(change, gone, "left", now)
            self._consumers.commit(change, codes.append, now)
        if any(codes):
            return LeaveGroupResponse(error_code=codes[0])
        return LeaveGroupResponse(members=answers)

    def _leaving(self, group: ConsumerGroup, identity: MemberIdentity, gone: list[str]) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        try:
            if not member_id and instance_id in group.static_members:
                member_id = group.static_members[instance_id]  # an administrator knows only the instance id
            else:
                self._member(group, member_id, instance_id)
        except KafkaError as error:
            return int(error.code)
        if member_id in gone:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        gone.append(member_id)
        return 0

    @staticmethod
    def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the classic member that sent a request. Raises UnknownMemberId, FencedInstanceId."""
        if instance_id is not None:
            current = group.static_member(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {group.group_id} has no static member {instance_id!r}")
            if current.member_id != member_id:
                raise FencedInstanceId(f"{instance_id!r} is {current.member_id!r} now")
        member = group.members.get(member_id)
        if member is None or member.classic is None:
            raise UnknownMemberId(f"group {group.group_id} has no classic member {member_id!r}")
        return member
