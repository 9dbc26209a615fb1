"""Classic groups: who is a member, which generation it is, and who waits for what.

A pure state machine. Every call takes the request and the time; answers go to the ``reply`` that comes with the
request, at once or when the group has got that far; records go to ``store``, whose ``done`` says when they are
durable. `tick` lets time pass. Nothing here reads a clock, waits, or knows of connections.

The life of a generation::

    JoinGroup ... JoinGroup      parked, until all members have joined or the rebalance timeout is over; a group that
                                 was empty waits group.initial.rebalance.delay.ms for more, again for each newcomer
    answers to JoinGroup         a generation and a protocol for all, the list of members for the leader
    SyncGroup ... SyncGroup      parked, until the leader's comes: its assignment goes to the log
    answers to SyncGroup         to each member its share; the group is stable
    Heartbeat ... Heartbeat      REBALANCE_IN_PROGRESS when the next round of JoinGroup begins

Who does not show up is removed: without heartbeats after the session timeout, in a rebalance after the rebalance
timeout, before the first answer after five minutes. Source: Kafka's GroupMetadataManager; KIP-62, 134, 345, 389, 394,
559, 800, 814. Differs from it where a request is asked again or its member is removed while it is parked: the first
one is answered, so nothing is parked for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from klamm.broker.coordinator.group.classic.classic_group import (
    ClassicGroup,
    Client,
    JoinReply,
    Member,
    Protocols,
    SyncReply,
)
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.records import group_record
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.machine import Now, TimerKey
from klamm.broker.coordinator.runtime.timers import Timers
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from klamm.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from klamm.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
GROUP_NOT_FOUND_FROM = 9  # of OffsetCommit
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000
NOBODY_JOINED_PAUSE_MS = 100
NO_MEMBER = ""

COORDINATOR_NOT_AVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
UNKNOWN_MEMBER_ID = int(ErrorCode.UNKNOWN_MEMBER_ID)
REBALANCE_IN_PROGRESS = int(ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What the operator allows; Kafka's keys beginning with ``group.``."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


MEMBER, JOIN, SYNC = "member", "join", "sync"  # of keys: (MEMBER, group, member), (JOIN, group), (SYNC, group)
KINDS = frozenset((MEMBER, JOIN, SYNC))


class ClassicGroups:
    """All classic groups of this broker."""

    def __init__(
        self,
        limits: GroupLimits,
        *,
        store: Store,
        new_id: Callable[[], str],
        timers: Timers[TimerKey] | None = None,
    ) -> None:
        self.limits = limits
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: Timers[TimerKey] = timers if timers is not None else Timers()
        self.rebalance_count = 0
        self._store = store
        self._new_id = new_id
        self._remaining_delay_ms: dict[str, int] = {}  # of groups in their initial rebalance

    # -- requests -----------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, client: Client, reply: JoinReply, now: Now) -> None:
        """JoinGroup: the answer comes when the group has its next generation."""
        member_id = request.member_id
        group = self.groups.get(request.group_id)
        if group is None and not member_id:
            group = ClassicGroup(request.group_id, state_timestamp_ms=now.wall_ms)
        refusal = self._refusal(group, request)
        if refusal is not None:
            reply(JoinGroupResponse(error_code=int(refusal), member_id=member_id))
            return
        assert group is not None
        if not self._has_room(group, member_id):
            self._drop(group, member_id, int(ErrorCode.GROUP_MAX_SIZE_REACHED))
            reply(JoinGroupResponse(error_code=int(ErrorCode.GROUP_MAX_SIZE_REACHED), member_id=NO_MEMBER))
            return
        self.groups[group.group_id] = group
        if member_id:
            self._join_again(group, request, client, reply, now)
        else:
            self._join_first(group, request, client, reply, now)

    def sync(self, request: SyncGroupRequest, reply: SyncReply, now: Now) -> None:
        """SyncGroup: the answer comes when the leader's assignment is in the log."""
        try:
            group, member = self._member_of(request.group_id, request.member_id, request.group_instance_id)
            _check_generation(group, request.generation_id)
            _check_protocol(group, request)
        except KafkaError as error:
            reply(SyncGroupResponse(error_code=int(error.code)))
            return
        self._has_synced(group, member)
        if group.state is State.PREPARING_REBALANCE:
            reply(SyncGroupResponse(error_code=REBALANCE_IN_PROGRESS))
        elif group.state is State.COMPLETING_REBALANCE:
            group.answer_sync(member, SyncGroupResponse(error_code=REBALANCE_IN_PROGRESS))  # its earlier one
            member.sync_reply = reply
            if member.member_id == group.leader:
                self._take_assignment(
                    group, {given.member_id: bytes(given.assignment) for given in request.assignments}, now
                )
        elif group.state is State.STABLE:
            reply(_assignment_of(group, member))
            self._expect_heartbeat(group, member, now)
        else:
            reply(SyncGroupResponse(error_code=UNKNOWN_MEMBER_ID))

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        try:
            group, member = self._member_of(request.group_id, request.member_id, request.group_instance_id)
            _check_generation(group, request.generation_id)
        except KafkaError as error:
            return HeartbeatResponse(error_code=int(error.code))
        self._expect_heartbeat(group, member, now)
        rebalancing = group.state is State.PREPARING_REBALANCE
        return HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS if rebalancing else 0)

    def leave(self, request: LeaveGroupRequest, now: Now) -> LeaveGroupResponse:
        """LeaveGroup as of version 3; the handler turns older ones into it and back."""
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
            self._go_on_without(group, f"{', '.join(left)} left", now)
        elif group is not None:
            self._complete_join_if_all_are_here(group, now)  # nobody waits for the pending ones that left
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
        """Whether an OffsetCommit may enter; raises the error. A group that is not there has no generation."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(member_id, instance_id, generation_id, transactional=transactional)
        elif generation_id >= 0:
            new = version >= GROUP_NOT_FOUND_FROM
            code = ErrorCode.GROUP_ID_NOT_FOUND if new else ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(code, f"there is no group {group_id!r}")

    def commit_is_heartbeat(self, group_id: str, member_id: str, now: Now) -> None:
        """A member that commits is alive."""
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is not None and member is not None:
            self._expect_heartbeat(group, member, now)

    # -- time ---------------------------------------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Do what is due. Only for groups that have their timers to themselves; else see `due`."""
        while (key := self.timers.pop(now.ms)) is not None:
            self.due(key, now)

    def due(self, key: TimerKey, now: Now) -> None:
        """A timer of this machine has come."""
        group = self.groups.get(key[1])
        if group is None or group.state is State.DEAD:
            return
        if key[0] == MEMBER:
            self._session_over(group, key[2], now)
        elif key[0] == JOIN:
            self._join_over(group, now)
        else:
            self._sync_over(group, now)

    def _session_over(self, group: ClassicGroup, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member_id in group.pending_members:
            group.pending_members.discard(member_id)
            log.info("group %s: %s was given this id and has not joined with it", group.group_id, member_id)
            self._complete_join_if_all_are_here(group, now)
        elif member is not None and (member.is_new or not member.waits):
            self._drop(group, member_id, UNKNOWN_MEMBER_ID)
            self._go_on_without(group, f"{member_id} was not heard of in time", now)

    def _join_over(self, group: ClassicGroup, now: Now) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        remaining_ms = self._remaining_delay_ms.pop(group.group_id, 0)
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_ms = min(self.limits.initial_rebalance_delay_ms, remaining_ms)
            self._remaining_delay_ms[group.group_id] = remaining_ms - delay_ms
            self.timers.set((JOIN, group.group_id), now.ms + delay_ms)
        else:
            self._complete_join(group, now)

    def _sync_over(self, group: ClassicGroup, now: Now) -> None:
        late = list(group.pending_sync)
        if late and group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            for member_id in late:
                self._drop(group, member_id, UNKNOWN_MEMBER_ID)
            self._rebalance(group, f"{len(late)} member(s) did not sync in time", now)

    # -- joining ------------------------------------------------------------------------------------------------

    def _refusal(self, group: ClassicGroup | None, request: JoinGroupRequest) -> ErrorCode | None:
        limits = self.limits
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self.limits.max_size
        if group.state is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Those who have joined count, not the members: when the limit was lowered the last to join stay outside.
            return (member is not None and member.join_reply is not None) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    def _join_first(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: JoinReply, now: Now
    ) -> None:
        """A client without a member id."""
        instance_id = request.group_instance_id
        member_id = f"{client.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                self._replace_static(group, request, client, old_id, member_id, reply, now)
                return
        elif client.version >= MEMBER_ID_REQUIRED_FROM:
            group.pending_members.add(member_id)
            self.timers.set((MEMBER, group.group_id, member_id), now.ms + request.session_timeout_ms)
            reply(JoinGroupResponse(error_code=int(ErrorCode.MEMBER_ID_REQUIRED), member_id=member_id))
            return
        self._add(group, request, client, member_id, reply, now)

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, reply: JoinReply, now: Now
    ) -> None:
        """A client that has a member id."""
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add(group, request, client, member_id, reply, now)
            return
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            reply(JoinGroupResponse(error_code=int(error.code), member_id=member_id))
            return
        unchanged = member.protocols == protocols_of(request)
        leads = member_id == group.leader
        if group.state is State.EMPTY:
            reply(JoinGroupResponse(error_code=UNKNOWN_MEMBER_ID, member_id=member_id))
        elif unchanged and (group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not leads)):
            # It has not got its answer, or joins for nothing. A leader that joins wants a new assignment.
            reply(_joined(group, member, leads=leads))
        else:
            group.update(
                member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms
            )
            group.park_join(member, reply)
            self._rebalance_or_complete(group, f"{member_id} joined again: {request.reason or 'no reason given'}", now)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
        reply: JoinReply,
        now: Now,
    ) -> None:
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True  # the initial delay may begin again
        if not group.members:
            group.protocol_type = request.protocol_type
        member = Member(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=rebalance_timeout_of(request, client),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request),
            is_new=True,
        )
        group.add(member, reply)
        # It does not know its id yet and cannot send heartbeats; and nobody tells when its connection breaks.
        self.timers.set((MEMBER, group.group_id, member_id), now.ms + NEW_MEMBER_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"{member_id} joined: {request.reason or 'no reason given'}", now)

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        old_id: str,
        new_id: str,
        reply: JoinReply,
        now: Now,
    ) -> None:
        """A static member has started anew: it takes the place of its former self, without a rebalance if it may."""
        assert request.group_instance_id is not None
        old_leader = group.leader
        group.answer(group.members[old_id], int(ErrorCode.FENCED_INSTANCE_ID))
        member = group.replace_static(request.group_instance_id, old_id, new_id)
        self.timers.cancel((MEMBER, group.group_id, old_id))
        log.info("group %s: static member %s is %s now", group.group_id, request.group_instance_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms)
        self._expect_heartbeat(group, member, now)
        if group.state is not State.STABLE or group.select_protocol() != group.protocol_name:
            group.park_join(member, reply)
            if group.state is State.PREPARING_REBALANCE:
                self._complete_join_if_all_are_here(group, now)
            else:
                self._rebalance(group, f"static member {request.group_instance_id} joined", now)
            return
        generation_id = group.generation_id

        def stored(code: ErrorCode, now: Now) -> None:
            leads = new_id == group.leader
            if code is not ErrorCode.NONE:
                if new_id in group.members and not member.waits:
                    group.update(member, *before)
                    group.replace_static(str(member.group_instance_id), new_id, old_id)
                    self.timers.cancel((MEMBER, group.group_id, new_id))
                    self._expect_heartbeat(group, member, now)
                failed = metadata_error(code)
                reply(JoinGroupResponse(error_code=failed, member_id=NO_MEMBER, generation_id=generation_id))
            elif client.version >= SKIP_ASSIGNMENT_FROM:
                reply(_joined(group, member, leads=leads, skip_assignment=leads))
            else:
                # It must not take itself for the leader: there is nothing to assign.
                reply(_joined(group, member, leads=False, leader=old_leader))

        self._store(group.group_id, lambda: [group_record(group.group_id, group.record())], stored, now)

    # -- the rebalance ------------------------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ClassicGroup, why: str, now: Now) -> None:
        if group.state is State.PREPARING_REBALANCE:
            self._complete_join_if_all_are_here(group, now)
        else:
            self._rebalance(group, why, now)

    def _go_on_without(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Members are gone."""
        if group.state is not State.EMPTY:
            self._rebalance_or_complete(group, why, now)

    def _rebalance(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Everybody joins again."""
        log.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation_id, why)
        if group.state is State.COMPLETING_REBALANCE:
            self._propagate(group, REBALANCE_IN_PROGRESS, now)
        self.timers.cancel((SYNC, group.group_id))
        initial = group.state is State.EMPTY
        group.go_to(State.PREPARING_REBALANCE, now.wall_ms)
        group.new_member_added = False
        if initial:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self._remaining_delay_ms[group.group_id] = max(group.rebalance_timeout_ms - delay_ms, 0)
            self.timers.set((JOIN, group.group_id), now.ms + delay_ms)
        elif group.all_have_joined:
            self._complete_join(group, now)
        else:
            self.timers.set((JOIN, group.group_id), now.ms + group.rebalance_timeout_ms)

    def _complete_join_if_all_are_here(self, group: ClassicGroup, now: Now) -> None:
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY  # an initial rebalance waits for its delay
            and group.all_have_joined
        ):
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Now) -> None:
        """The next generation begins with those who have joined; static members keep their place until they expire."""
        self.timers.cancel((JOIN, group.group_id))
        self._remaining_delay_ms.pop(group.group_id, None)
        absent = [
            member
            for member in group.members.values()
            if member.join_reply is None and member.group_instance_id is None
        ]
        for member in absent:
            log.info("group %s: %s has not joined in time", group.group_id, member.member_id)
            self._drop(group, member.member_id, UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_leader_among_joined():
            # Nobody has joined, and all are static: let their sessions decide. Without a rebalance timeout Kafka looks
            # again at once, all the time.
            pause_ms = max(group.rebalance_timeout_ms, NOBODY_JOINED_PAUSE_MS)
            self.timers.set((JOIN, group.group_id), now.ms + pause_ms)
            return
        group.next_generation(now.wall_ms)
        self.rebalance_count += 1
        log.info(
            "group %s: generation %d, members=%d protocol=%s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.protocol_name,
        )
        if group.state is State.EMPTY:
            self._store(group.group_id, lambda: [group_record(group.group_id, group.record())], _ignore, now)
            return
        for member in list(group.members.values()):
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self._expect_heartbeat(group, member, now)
            group.answer_join(member, _joined(group, member, leads=member.member_id == group.leader))
        self.timers.set((SYNC, group.group_id), now.ms + group.rebalance_timeout_ms)

    def _take_assignment(self, group: ClassicGroup, assignments: dict[str, bytes], now: Now) -> None:
        generation_id = group.generation_id

        def stored(code: ErrorCode, now: Now) -> None:
            if group.state is not State.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # somebody joined meanwhile, and all were told
            if code is not ErrorCode.NONE:
                self._propagate(group, metadata_error(code), now)
                self._rebalance(group, f"the assignment cannot be stored: {code.name}", now)
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.go_to(State.STABLE, now.wall_ms)
            self._propagate(group, 0, now)

        self._store(group.group_id, lambda: [group_record(group.group_id, group.record(assignments))], stored, now)

    def _propagate(self, group: ClassicGroup, code: int, now: Now) -> None:
        """Answer every SyncGroup that is parked: with the assignment, or the error."""
        for member in list(group.members.values()):
            if code:
                member.assignment = b""
                response = SyncGroupResponse(error_code=code)
            else:
                response = _assignment_of(group, member)
            if group.answer_sync(member, response):
                self._expect_heartbeat(group, member, now)

    def _has_synced(self, group: ClassicGroup, member: Member) -> None:
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync or group.state is State.PREPARING_REBALANCE:
            self.timers.cancel((SYNC, group.group_id))

    # -- members come and go ------------------------------------------------------------------------------------

    def _member_of(self, group_id: str, member_id: str, instance_id: str | None) -> tuple[ClassicGroup, Member]:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        if group.state is State.DEAD:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id!r} is dead")
        return group, group.check_member(member_id, instance_id)

    def _expect_heartbeat(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self.timers.set((MEMBER, group.group_id, member.member_id), now.ms + member.session_timeout_ms)

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity, left: list[str]) -> int:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id and instance_id in group.static_members:
            member_id = group.static_members[instance_id]  # an administrator knows only the instance
        elif member_id not in group.pending_members:
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return int(error.code)
        log.info("group %s: %s leaves: %s", group.group_id, member_id, identity.reason or "no reason given")
        if member_id in group.members:
            left.append(member_id)
        self._drop(group, member_id, UNKNOWN_MEMBER_ID)
        return 0

    def _drop(self, group: ClassicGroup, member_id: str, code: int) -> None:
        """Take a member out, with its timer; what it has parked is answered with the error."""
        self.timers.cancel((MEMBER, group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer(member, code)
        group.remove(member_id)

    # -- groups come and go -------------------------------------------------------------------------------------

    def simple(self, group_id: str, wall_ms: int) -> ClassicGroup:
        """The group; an empty one without protocol type is made for offsets of consumers without group management."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, state_timestamp_ms=wall_ms)
        return group

    def take(self, group: ClassicGroup, now: Now) -> None:
        """Look after a group that was read from the log; its members get a session timeout to show up."""
        self.groups[group.group_id] = group
        for member in group.members.values():
            self._expect_heartbeat(group, member, now)

    def adopt(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Look after a group that was of the consumer protocol until now: everybody joins again."""
        self.take(group, now)
        self._rebalance(group, why, now)

    def forget(self, group_id: str, code: int, wall_ms: int) -> None:
        """Let go of a group; whoever waits gets the error."""
        group = self.groups.pop(group_id, None)
        if group is None:
            return
        group.answer_all(code)
        for member_id in (*group.members, *group.pending_members):
            self.timers.cancel((MEMBER, group_id, member_id))
        self.timers.cancel((JOIN, group_id))
        self.timers.cancel((SYNC, group_id))
        self._remaining_delay_ms.pop(group_id, None)
        if group.state is not State.DEAD:
            group.go_to(State.DEAD, wall_ms)


def protocols_of(request: JoinGroupRequest) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


def rebalance_timeout_of(request: JoinGroupRequest, client: Client) -> int:
    """JoinGroup v0 has one timeout for both."""
    return request.session_timeout_ms if client.version == 0 else request.rebalance_timeout_ms


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


def _joined(
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


def _assignment_of(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def _ignore(code: ErrorCode, now: Now) -> None:
    """The record that a group is empty may be missing: at worst its members come back at a load, and expire."""
    if code is not ErrorCode.NONE:
        log.warning("the record of an empty group was not stored: %s", code.name)


def metadata_error(code: ErrorCode) -> int:
    """What a member is told when the record of its group cannot be stored."""
    if code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return COORDINATOR_NOT_AVAILABLE
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return int(ErrorCode.NOT_COORDINATOR)
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return int(code)
