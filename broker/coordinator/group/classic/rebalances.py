"""The rebalances of classic groups: from the first JoinGroup to the assignment of all members.

See `classic` for the life of a generation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup, Member
from klamm.broker.coordinator.group.classic.classic_records import record_of
from klamm.broker.coordinator.group.classic.limits import GroupLimits
from klamm.broker.coordinator.group.classic.responses import (
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    assignment_of,
    joined,
    metadata_error,
)
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now, TimerKey
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger(__name__)

MEMBER, JOIN, SYNC = "member", "join", "sync"  # of keys: (MEMBER, group, member), (JOIN, group), (SYNC, group)
KINDS = frozenset((MEMBER, JOIN, SYNC))
NOBODY_JOINED_PAUSE_MS = 100


class Rebalances:
    """The deadlines of groups, and the transitions from one state to the next."""

    def __init__(self, timers: TimerQueue[TimerKey], store: Store, limits: Callable[[], GroupLimits]) -> None:
        self.count = 0
        self._timers = timers
        self._store = store
        self._limits = limits
        self._remaining_delay_ms: dict[str, int] = {}  # by group, during the initial rebalance

    def join_over(self, group: ClassicGroup, now: Now) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        remaining_ms = self._remaining_delay_ms.pop(group.group_id, 0)
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._limits().initial_rebalance_delay_ms, remaining_ms)
            self._remaining_delay_ms[group.group_id] = remaining_ms - delay_ms
            self._timers.set((JOIN, group.group_id), now.ms + delay_ms)
        else:
            self._complete_join(group, now)

    def sync_over(self, group: ClassicGroup, now: Now) -> None:
        late = list(group.pending_sync)
        if late and group.state in (State.COMPLETING_REBALANCE, State.STABLE):
            for member_id in late:
                self.drop(group, member_id, UNKNOWN_MEMBER_ID)
            self.begin(group, f"{len(late)} member(s) did not sync in time", now)

    def begin_or_complete(self, group: ClassicGroup, why: str, now: Now) -> None:
        if group.state is State.PREPARING_REBALANCE:
            self.complete_if_all_are_here(group, now)
        else:
            self.begin(group, why, now)

    def go_on_without(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Rebalance after members have left."""
        if group.state is not State.EMPTY:
            self.begin_or_complete(group, why, now)

    def begin(self, group: ClassicGroup, why: str, now: Now) -> None:
        """Begin a rebalance: every member joins again."""
        log.info("group %s: rebalance after generation %d: %s", group.group_id, group.generation_id, why)
        if group.state is State.COMPLETING_REBALANCE:
            self._propagate(group, REBALANCE_IN_PROGRESS, now)
        self._timers.cancel((SYNC, group.group_id))
        initial = group.state is State.EMPTY
        group.go_to(State.PREPARING_REBALANCE, now.wall_ms)
        group.new_member_added = False
        if initial:
            delay_ms = self._limits().initial_rebalance_delay_ms
            self._remaining_delay_ms[group.group_id] = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._timers.set((JOIN, group.group_id), now.ms + delay_ms)
        elif group.all_have_joined:
            self._complete_join(group, now)
        else:
            self._timers.set((JOIN, group.group_id), now.ms + group.rebalance_timeout_ms)

    def complete_if_all_are_here(self, group: ClassicGroup, now: Now) -> None:
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY  # an initial rebalance waits for its delay
            and group.all_have_joined
        ):
            self._complete_join(group, now)

    def _complete_join(self, group: ClassicGroup, now: Now) -> None:
        """Begin the next generation with the members that have joined; static members stay until they expire."""
        self._timers.cancel((JOIN, group.group_id))
        self._remaining_delay_ms.pop(group.group_id, None)
        absent = [
            member
            for member in group.members.values()
            if member.join_callback is None and member.group_instance_id is None
        ]
        for member in absent:
            log.info("group %s: %s has not joined in time", group.group_id, member.member_id)
            self.drop(group, member.member_id, UNKNOWN_MEMBER_ID)
        if group.members and not group.elect_leader_among_joined():
            # No member has joined, and all are static: only their sessions remove them. Without a rebalance timeout
            # Kafka checks again at once, all the time.
            pause_ms = max(group.rebalance_timeout_ms, NOBODY_JOINED_PAUSE_MS)
            self._timers.set((JOIN, group.group_id), now.ms + pause_ms)
            return
        group.next_generation(now.wall_ms)
        self.count += 1
        log.info(
            "group %s: generation %d, members=%d protocol=%s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.protocol_name,
        )
        if group.state is State.EMPTY:
            self._store(group.group_id, lambda: [record_of(group)], _ignore, now)
            return
        for member in list(group.members.values()):
            member.is_new = False
            group.pending_sync.add(member.member_id)
            self.expect_heartbeat(group, member, now)
            group.answer_join(member, joined(group, member, leads=member.member_id == group.leader))
        self._timers.set((SYNC, group.group_id), now.ms + group.rebalance_timeout_ms)

    def take_assignment(self, group: ClassicGroup, assignments: dict[str, bytes], now: Now) -> None:
        generation_id = group.generation_id

        def stored(code: ErrorCode, now: Now) -> None:
            if group.state is not State.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # a member joined meanwhile; all waiting requests have their responses
            if code is not ErrorCode.NONE:
                self._propagate(group, metadata_error(code), now)
                self.begin(group, f"the assignment cannot be stored: {code.name}", now)
                return
            for member in group.members.values():
                member.assignment = assignments.get(member.member_id, b"")
            group.go_to(State.STABLE, now.wall_ms)
            self._propagate(group, 0, now)

        self._store(group.group_id, lambda: [record_of(group, assignments)], stored, now)

    def _propagate(self, group: ClassicGroup, code: int, now: Now) -> None:
        """Send every waiting SyncGroup its response: the assignment, or the error."""
        for member in list(group.members.values()):
            if code:
                member.assignment = b""
                response = SyncGroupResponse(error_code=code)
            else:
                response = assignment_of(group, member)
            if group.answer_sync(member, response):
                self.expect_heartbeat(group, member, now)

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync or group.state is State.PREPARING_REBALANCE:
            self._timers.cancel((SYNC, group.group_id))

    def expect_heartbeat(self, group: ClassicGroup, member: Member, now: Now) -> None:
        self._timers.set((MEMBER, group.group_id, member.member_id), now.ms + member.session_timeout_ms)

    def drop(self, group: ClassicGroup, member_id: str, code: int) -> None:
        """Remove a member and its timer; its waiting requests get the error."""
        self._timers.cancel((MEMBER, group.group_id, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer(member, code)
        group.remove(member_id)

    def forget(self, group: ClassicGroup) -> None:
        """Cancel all deadlines of a group."""
        for member_id in (*group.members, *group.pending_members):
            self._timers.cancel((MEMBER, group.group_id, member_id))
        self._timers.cancel((JOIN, group.group_id))
        self._timers.cancel((SYNC, group.group_id))
        self._remaining_delay_ms.pop(group.group_id, None)


def _ignore(code: ErrorCode, now: Now) -> None:
    """Accept a failed write of an empty group's record: at worst its members come back at a load, and expire."""
    if code is not ErrorCode.NONE:
        log.warning("the record of an empty group was not stored: %s", code.name)
