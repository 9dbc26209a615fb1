"""The groups of a broker, of all protocols.

There is one state machine per protocol: `classic` groups, `consumers`, and the members of consumer groups that use the
classic protocol. A group id belongs to one machine at a time. This class answers questions common to all groups; each
machine answers those of its own protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from klamm.broker.coordinator.group.classic.classic import ClassicGroups
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.classic.states import State
from klamm.broker.coordinator.group.consumer.classic_members import ClassicMembers
from klamm.broker.coordinator.group.consumer.consumer import ConsumerGroups
from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.group.consumer.consumer_states import GroupState
from klamm.broker.coordinator.group.records import group_key
from klamm.broker.coordinator.group.store import Store
from klamm.broker.coordinator.runtime.types import Now
from klamm.protocol.errors import ErrorCode

Group = ClassicGroup | ConsumerGroup


class Groups:
    """See the module's head."""

    def __init__(
        self, classic: ClassicGroups, consumers: ConsumerGroups, classic_members: ClassicMembers, store: Store
    ) -> None:
        self.classic = classic
        self.consumers = consumers
        self._classic_members = classic_members
        self._store = store

    def __iter__(self) -> Iterator[Group]:
        yield from self.classic.groups.values()
        yield from self.consumers.groups.values()

    def get(self, group_id: str) -> Group | None:
        """Return a group of either protocol."""
        return self.classic.groups.get(group_id) or self.consumers.groups.get(group_id)

    def protocol_handler(self, group_id: str) -> ClassicGroups | ClassicMembers:
        """Return the machine that handles classic requests for a group."""
        return self._classic_members if group_id in self.consumers.groups else self.classic

    def simple(self, group_id: str, wall_ms: int) -> None:
        """Make sure that a group with committed offsets exists, if only an empty one."""
        if group_id not in self.consumers.groups:
            self.classic.simple(group_id, wall_ms)

    def make_room_for_classic(self, group_id: str, now: Now) -> None:
        """Remove an empty consumer group so that a classic group can take its id."""
        group = self.consumers.groups.get(group_id)
        if group is not None and not group.members:
            self.remove(group_id, lambda code: None, now)
            self.simple(group_id, now.wall_ms)  # if no member joins in the end, its offsets still belong to a group

    def remove(self, group_id: str, stored: Callable[[ErrorCode], None], now: Now) -> None:
        """Delete an empty group. A consumer group is gone with the append, like all its changes."""
        if group_id in self.consumers.groups:
            self.consumers.delete(group_id, lambda code: stored(ErrorCode(code)), now)
            return

        def deleted(code: ErrorCode, now: Now) -> None:
            group = self.classic.groups.get(group_id)
            if code is ErrorCode.NONE and group is not None and group.state is State.EMPTY:
                self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), now.wall_ms)
            stored(code)

        self._store(group_id, lambda: [(group_key(group_id), None)], deleted, now)

    def forget(self, group_id: str, wall_ms: int) -> None:
        """Drop a group; its waiting requests get NOT_COORDINATOR."""
        self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), wall_ms)
        self.consumers.forget(group_id)


def is_empty(group: Group) -> bool:
    return group.state in (State.EMPTY, GroupState.EMPTY)


def is_abandoned(group: Group) -> bool:
    """Return whether a group has no members, nor pending ones."""
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is State.EMPTY and not group.pending_members
