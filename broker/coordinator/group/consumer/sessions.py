"""Deadlines of members of consumer groups; a member that misses one is fenced."""

from __future__ import annotations

from collections.abc import Callable

from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_member import ConsumerMember, MemberState
from klamm.broker.coordinator.group.consumer.limits import GroupSettings
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Now, TimerKey

SESSION, REVOKE, JOIN, SYNC = "consumer-session", "consumer-revoke", "consumer-join", "consumer-sync"
WHY_FENCED = {
    SESSION: "sent no heartbeat in time",
    REVOKE: "did not give up its partitions in time",
    JOIN: "did not join again in time",
    SYNC: "did not sync in time",
}
KINDS = frozenset(WHY_FENCED)


class Sessions:
    """Deadlines of members: one of each kind per group and member."""

    def __init__(self, timers: TimerQueue[TimerKey], settings: Callable[[str], GroupSettings]) -> None:
        self._timers = timers
        self._settings = settings

    def expect_heartbeat(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Restart the session timeout of a member."""
        timeout_ms = member.classic.session_timeout_ms if member.classic is not None else None
        if timeout_ms is None:
            timeout_ms = self._settings(group.group_id).session_timeout_ms
        self._timers.set((SESSION, group.group_id, member.member_id), now.ms + timeout_ms)

    def expect_revocation(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Set the deadline for giving up partitions, if the member has any to give up."""
        key = (REVOKE, group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self._timers.set(key, now.ms + member.rebalance_timeout_ms)
        else:
            self._timers.cancel(key)

    def expect_join(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Set the deadline for the JoinGroup of a classic member, unless it is set already."""
        key = (JOIN, group.group_id, member.member_id)
        if key not in self._timers:
            self._timers.set(key, now.ms + member.rebalance_timeout_ms)

    def expect_sync(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        """Set the deadline for the SyncGroup of a classic member that has joined."""
        self.expect_heartbeat(group, member, now)
        self._timers.cancel((JOIN, group.group_id, member.member_id))
        self._timers.set((SYNC, group.group_id, member.member_id), now.ms + member.rebalance_timeout_ms)

    def has_synced(self, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        self._timers.cancel((SYNC, group.group_id, member.member_id))
        self.expect_heartbeat(group, member, now)

    def cancel(self, group: ConsumerGroup, member_id: str) -> None:
        """Cancel all deadlines of a member."""
        for kind in KINDS:
            self._timers.cancel((kind, group.group_id, member_id))
