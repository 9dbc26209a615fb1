"""Classic groups: members, generations, and waiting requests.

A pure state machine. Every call takes the request and the time. Responses go to the ``callback`` of the request, at
once or when the group has got that far. Records go to ``store``; its ``done`` reports when they are durable. `tick`
lets time pass. Nothing here reads a clock, waits, or knows of connections. `Joins` admits members, `Rebalances` moves
groups from one generation to the next; this module has the rest.

The life of a generation::

    JoinGroup ... JoinGroup      wait until all members have joined or the rebalance timeout is over; a group that
                                 was empty waits group.initial.rebalance.delay.ms for more, again for each newcomer
    JoinGroup responses          a generation and a protocol for all, the list of members for the leader
    SyncGroup ... SyncGroup      wait for the leader's SyncGroup: its assignment goes to the log
    SyncGroup responses          each member gets its share; the group is stable
    Heartbeat ... Heartbeat      REBALANCE_IN_PROGRESS when the next round of JoinGroup begins

A member is removed when it sends no heartbeat within the session timeout, does not join within the rebalance timeout,
or does not get its first JoinGroup response within five minutes. Source: Kafka's GroupMetadataManager; KIP-62, 134,
345, 389, 394, 559, 800, 814. One difference: when a waiting request is repeated, or its member is removed, the earlier
request gets a response, so nothing waits for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.coordinator.group.classic.classic_group import (
    ClassicGroup,
    Client,
    JoinCallback,
    Member,
    SyncCallback,
)
from klamm.broker.coordinator.group.classic.joins import Joins
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.classic.rebalances import JOIN, MEMBER, Rebalances
from klamm.broker.coordinator.group.classic.responses import (
    COORDINATOR_NOT_AVAILABLE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    assignment_of,
)
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now, TimerKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.join_group import JoinGroupRequest
from klamm.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

GROUP_NOT_FOUND_FROM = 9  # of OffsetCommit


class ClassicGroups:
    """All classic groups of this broker."""

    def __init__(
        self,
        limits: GroupLimits,
        *,
        store: Store,
        new_id: Callable[[], str],
        timers: TimerQueue[TimerKey] | None = None,
    ) -> None:
        self.limits = limits
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: TimerQueue[TimerKey] = timers if timers is not None else TimerQueue()
        self.rebalances = Rebalances(self.timers, store, lambda: self.limits)
        self._joins = Joins(
            self.groups,
            self.rebalances,
            timers=self.timers,
            store=store,
            new_id=new_id,
            limits=lambda: self.limits,
        )

    # -- requests -----------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, callback: JoinCallback, now: Now) -> None:
        """Handle JoinGroup. The response comes when the group has its next generation."""
        self._joins.join(request, client, callback, now)

    def sync(self, request: SyncGroupRequest, callback: SyncCallback, now: Now) -> None:
        """Handle SyncGroup. The response comes when the leader's assignment is in the log."""
        try:
            group, member = self._member_of(request.group_id, request.member_id, request.group_instance_id)
            _check_generation(group, request.generation_id)
            _check_protocol(group, request)
        except KafkaError as error:
            callback(SyncGroupResponse(error_code=int(error.code)))
            return
        self.rebalances.has_synced(group, member)
        if group.state is State.PREPARING_REBALANCE:
            callback(SyncGroupResponse(error_code=REBALANCE_IN_PROGRESS))
        elif group.state is State.COMPLETING_REBALANCE:
            group.answer_sync(member, SyncGroupResponse(error_code=REBALANCE_IN_PROGRESS))  # the earlier request
            member.sync_callback = callback
            if member.member_id == group.leader:
                self.rebalances.take_assignment(
                    group, {given.member_id: bytes(given.assignment) for given in request.assignments}, now
                )
        elif group.state is State.STABLE:
            callback(assignment_of(group, member))
            self.rebalances.expect_heartbeat(group, member, now)
        else:
            callback(SyncGroupResponse(error_code=UNKNOWN_MEMBER_ID))

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        try:
            group, member = self._member_of(request.group_id, request.member_id, request.group_instance_id)
            _check_generation(group, request.generation_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=int(error.code))
        self.rebalances.expect_heartbeat(group, member, now)
        rebalancing = group.state is State.PREPARING_REBALANCE
        return HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS if rebalancing else 0)

    def leave(self, request: LeaveGroupRequest, now: Now) -> LeaveGroupResponse:
        """Handle LeaveGroup in the form of version 3; the handler converts older versions."""
        if not request.group_id:
            return LeaveGroupResponse(error_code=int(ErrorCode.INVALID_GROUP_ID))
        group = self.groups.get(request.group_id)
        if group is not None and group.state is State.DEAD:
            return LeaveGroupResponse(error_code=COORDINATOR_NOT_AVAILABLE)
        answers: list[MemberResponse] = []
        left: list[str] = []
        for identity in request.members:
            code = UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, identity, left)
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if group is not None and left:
            self.rebalances.go_on_without(group, f"{', '.join(left)} left", now)
        elif group is not None:
            self.rebalances.complete_if_all_are_here(group, now)  # no longer wait for pending members that left
        return LeaveGroupResponse(members=answers)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        *,
        version: int,
        transactional: bool = False,
    ) -> None:
        """Raise an error unless an OffsetCommit is allowed. A group that does not exist has no generation."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(member_id, instance_id, generation_id, transactional=transactional)
        elif generation_id >= 0:
            new = version >= GROUP_NOT_FOUND_FROM
            code = ErrorCode.GROUP_ID_NOT_FOUND if new else ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(code, f"there is no group {group_id!r}")

    def commit_is_heartbeat(self, group_id: str, member_id: str, now: Now) -> None:
        """Count a commit as a heartbeat of its member."""
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None:
            self.rebalances.expect_heartbeat(group, member, now)

    # -- time ---------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Handle due deadlines. Only for groups with timers of their own; else see `due`."""
        while (key := self.timers.pop(now.ms)) is not None:
            self.due(key, now)

    def due(self, key: TimerKey, now: Now) -> None:
        """Handle a deadline of this machine."""
        group = self.groups.get(key[1])
        if group is None or group.state is State.DEAD:
            return
        if key[0] == MEMBER:
            self._session_over(group, key[2], now)
        elif key[0] == JOIN:
            self.rebalances.join_over(group, now)
        else:
            self.rebalances.sync_over(group, now)

    def _session_over(self, group: ClassicGroup, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member_id in group.pending_members:
            group.pending_members.discard(member_id)
            log.info("group %s: %s got this id and has not joined with it", group.group_id, member_id)
            self.rebalances.complete_if_all_are_here(group, now)
        elif member is not None and (member.is_new or not member.waits):
            self.rebalances.drop(group, member_id, UNKNOWN_MEMBER_ID)
            self.rebalances.go_on_without(group, f"{member_id} was not heard of in time", now)

    # -- removal of members -------------------------------------------------------------------------------------

    def _member_of(self, group_id: str, member_id: str, instance_id: str | None) -> tuple[ClassicGroup, Member]:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        if group.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id!r} is dead")
        return group, group.check_member(member_id, instance_id)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, left: list[str]) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id and instance_id in group.static_members:
            member_id = group.static_members[instance_id]  # an administrator knows only the instance id
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return int(error.code)
        log.info("group %s: %s leaves: %s", group.group_id, member_id, identity.reason or "no reason given")
        if member_id in group.members:
            left.append(member_id)
        self.rebalances.drop(group, member_id, UNKNOWN_MEMBER_ID)
        return 0

    # -- creation and removal of groups -------------------------------------------------------------------------

    def simple(self, group_id: str, wall_ms: int) -> ClassicGroup:
        """Return the group, creating an empty one without protocol type: it holds offsets of consumers without group
        management.
        """
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=wall_ms)
        return group

    def take(self, group: ClassicGroup, now: Now) -> None:
        """Take over a group read from the log; its members get a session timeout to reappear."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self.rebalances.expect_heartbeat(group, member, now)

    def adopt(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Take over a group that used the consumer protocol until now: every member joins again."""
        self.take(group, now)
        self.rebalances.begin(group, why, now)

    def forget(self, group_id: str, code: int, wall_ms: int) -> None:
        """Remove a group; waiting requests get the error."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        group.answer_all(code)
        self.rebalances.forget(group)
        if group.state is not State.DEAD:
            group.go_to(State.DEAD, wall_ms)


def _check_generation(group: ClassicGroup, generation_id: int) -> None:
    if generation_id != group.generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"{group.group_id} is at generation {group.generation_id}")


def _check_protocol(group: ClassicGroup, request: SyncGroupRequest) -> None:
    for named, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if named is not None and ours is not None and named != ours:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {ours!r}, not {named!r}")
