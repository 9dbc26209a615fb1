"""The groups of a broker, whatever their protocol.

The state machines of the protocols stand side by side: `classic` groups, `consumers`, and the members of consumer
groups that speak the classic protocol. A group id is of one of them at a time. What holds for all groups is asked here;
what only one protocol knows is asked of its machine.
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
        """A group of either protocol."""
        return self.classic.groups.get(group_id) or self.consumers.groups.get(group_id)

    def protocol_handler(self, group_id: str) -> ClassicGroups | ClassicMembers:
        """Who answers the classic protocol for a group."""
        return self._classic_members if group_id in self.consumers.groups else self.classic

    def simple(self, group_id: str, wall_ms: int) -> None:
        """Somebody has committed offsets: there is a group, if only one that nobody is in."""
        if group_id not in self.consumers.groups:
            self.classic.simple(group_id, wall_ms)

    def make_room_for_classic(self, group_id: str, now: Now) -> None:
        """A consumer group that nobody is in gives way to the classic group that somebody wants to join."""
        group = self.consumers.groups.get(group_id)
        if group is not None and not group.members:
            self.remove(group_id, lambda code: None, now)
            self.simple(group_id, now.wall_ms)  # if nobody joins in the end, its offsets still belong to a group

    def remove(self, group_id: str, stored: Callable[[ErrorCode], None], now: Now) -> None:
        """Delete an empty group. One of the consumer protocol is gone with the append, as all that it does."""
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
        """Look after a group no longer: who waits is sent elsewhere."""
        self.classic.forget(group_id, int(ErrorCode.NOT_COORDINATOR), wall_ms)
        self.consumers.forget(group_id)


def is_empty(group: Group) -> bool:
    return group.state in (State.EMPTY, GroupState.EMPTY)


def is_abandoned(group: Group) -> bool:
    """Whether nobody is in a group, nor about to be."""
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is State.EMPTY and not group.pending_members
