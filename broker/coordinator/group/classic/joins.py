"""JoinGroup: admits new members to a classic group, and replaces static members.

See `classic` for the life of a generation. A JoinGroup waits until the rebalance is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Client, JoinCallback, Member
from klamm.broker.coordinator.group.classic.classic_records import record_of
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.classic.rebalances import MEMBER, Rebalances
from klamm.broker.coordinator.group.classic.responses import (
    NO_MEMBER,
    UNKNOWN_MEMBER_ID,
    joined,
    metadata_error,
    protocols_of,
    rebalance_timeout_of,
)
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now, TimerKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

log = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000


class Joins:
    """Admits members to `groups`."""

    def __init__(
        self,
        groups: dict[str, ClassicGroup],
        rebalances: Rebalances,
        *,
        timers: TimerQueue[TimerKey],
        store: Store,
        new_id: Callable[[], str],
        limits: Callable[[], GroupLimits],
    ) -> None:
        self._groups = groups
        self._rebalances = rebalances
        self._timers = timers
        self._store = store
        self._new_id = new_id
        self._limits = limits

    def join(self, request: JoinGroupRequest, client: Client, callback: JoinCallback, now: Now) -> None:
        """Handle JoinGroup. The response comes when the group has its next generation."""
        member_id = request.member_id
        group = self._groups.get(request.group_id)
        if group is None and not member_id:
            group = ClassicGroup(request.group_id, state_timestamp_ms=now.wall_ms)
        refusal = self._refusal(group, request)
        if refusal is not None:
            callback(JoinGroupResponse(error_code=int(refusal), member_id=member_id))
            return
        assert group is not None
        if not self._has_room(group, member_id):
            self._rebalances.drop(group, member_id, int(ErrorCode.GROUP_MAX_SIZE_REACHED))
            callback(JoinGroupResponse(error_code=int(ErrorCode.GROUP_MAX_SIZE_REACHED), member_id=NO_MEMBER))
            return
        self._groups[group.group_id] = group
        if member_id:
            self._join_again(group, request, client, callback, now)
        else:
            self._join_first(group, request, client, callback, now)

    def _refusal(self, group: ClassicGroup | None, request: JoinGroupRequest) -> ErrorCode | None:
        limits = self._limits()
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
        limit = self._limits().max_size
        if group.state is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Count members that have joined, not all members: if the limit was lowered, the last to join are refused.
            return (member is not None and member.join_callback is not None) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit

    def _join_first(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, callback: JoinCallback, now: Now
    ) -> None:
        """Join a client without a member id."""
        instance_id = request.group_instance_id
        member_id = f"{client.client_id if instance_id is None else instance_id}-{self._new_id()}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                self._replace_static(group, request, client, old_id, member_id, callback, now)
                return
        elif client.version >= MEMBER_ID_REQUIRED_FROM:
            group.pending_members.add(member_id)
            self._timers.set((MEMBER, group.group_id, member_id), now.ms + request.session_timeout_ms)
            callback(JoinGroupResponse(error_code=int(ErrorCode.MEMBER_ID_REQUIRED), member_id=member_id))
            return
        self._add(group, request, client, member_id, callback, now)

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, client: Client, callback: JoinCallback, now: Now
    ) -> None:
        """Join a client with a member id."""
        member_id = request.member_id
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add(group, request, client, member_id, callback, now)
            return
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            callback(JoinGroupResponse(error_code=int(error.code), member_id=member_id))
            return
        unchanged = member.protocols == protocols_of(request)
        leads = member_id == group.leader
        if group.state is State.EMPTY:
            callback(JoinGroupResponse(error_code=UNKNOWN_MEMBER_ID, member_id=member_id))
        elif unchanged and (group.state is State.COMPLETING_REBALANCE or (group.state is State.STABLE and not leads)):
            # It missed its response, or joins without need. A leader that joins wants a new assignment.
            callback(joined(group, member, leads=leads))
        else:
            group.update(
                member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms
            )
            group.set_join_callback(member, callback)
            self._rebalances.begin_or_complete(
                group, f"{member_id} joined again: {request.reason or 'no reason given'}", now
            )

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        member_id: str,
        callback: JoinCallback,
        now: Now,
    ) -> None:
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True  # the initial delay may start again
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
        group.add(member, callback)
        # The client does not know its id yet and cannot send heartbeats, and a broken connection goes unnoticed here.
        self._timers.set((MEMBER, group.group_id, member_id), now.ms + NEW_MEMBER_TIMEOUT_MS)
        self._rebalances.begin_or_complete(group, f"{member_id} joined: {request.reason or 'no reason given'}", now)

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        client: Client,
        old_id: str,
        new_id: str,
        callback: JoinCallback,
        now: Now,
    ) -> None:
        """Replace a static member that has restarted, if possible without a rebalance."""
        assert request.group_instance_id is not None
        old_leader = group.leader
        group.answer(group.members[old_id], int(ErrorCode.FENCED_INSTANCE_ID))
        member = group.replace_static(request.group_instance_id, old_id, new_id)
        self._timers.cancel((MEMBER, group.group_id, old_id))
        log.info("group %s: static member %s is %s now", group.group_id, request.group_instance_id, new_id)
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, protocols_of(request), rebalance_timeout_of(request, client), request.session_timeout_ms)
        self._rebalances.expect_heartbeat(group, member, now)
        if group.state is not State.STABLE or group.select_protocol() != group.protocol_name:
            group.set_join_callback(member, callback)
            if group.state is State.PREPARING_REBALANCE:
                self._rebalances.complete_if_all_are_here(group, now)
            else:
                self._rebalances.begin(group, f"static member {request.group_instance_id} joined", now)
            return
        generation_id = group.generation_id

        def stored(code: ErrorCode, now: Now) -> None:
            leads = new_id == group.leader
            if code is not ErrorCode.NONE:
                if new_id in group.members and not member.waits:
                    group.update(member, *before)
                    group.replace_static(str(member.group_instance_id), new_id, old_id)
                    self._timers.cancel((MEMBER, group.group_id, new_id))
                    self._rebalances.expect_heartbeat(group, member, now)
                failed = metadata_error(code)
                callback(JoinGroupResponse(error_code=failed, member_id=NO_MEMBER, generation_id=generation_id))
            elif client.version >= SKIP_ASSIGNMENT_FROM:
                callback(joined(group, member, leads=leads, skip_assignment=leads))
            else:
                # The client must not act as the leader: there is nothing to assign.
                callback(joined(group, member, leads=False, leader=old_leader))

        self._store(group.group_id, lambda: [record_of(group)], stored, now)
