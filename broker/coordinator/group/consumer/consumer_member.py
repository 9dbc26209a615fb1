"""One member of a consumer group (KIP-848), and its steps from the current to the target assignment.

    STABLE                 has its target assignment, as far as it is known
    UNREVOKED_PARTITIONS   must give up partitions and has not confirmed that yet: keeps its epoch
    UNRELEASED_PARTITIONS  is at the new epoch and waits for partitions that others have not given up yet

`reconcile` makes one step. First a member gives up partitions that are not in its target, then its epoch advances, then
it gets the free partitions of its target. A partition has one owner at any time. Source: Kafka's
CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from klamm.broker.coordinator.group.consumer.assignors import Assignment

LEFT_FOR_A_WHILE = -2  # the epoch of a static member that has left and will come back
JOINING = 0
LEAVING = -1

Epochs = Mapping[bytes, Mapping[int, int]]  # topic id -> partition -> the member's epoch when it got it
NO_PARTITIONS: Epochs = MappingProxyType({})
Owned = Mapping[bytes, Collection[int]]


class MemberState(IntEnum):
    """The state of a member; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class ClassicProtocols(NamedTuple):
    """The protocols and session timeout of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(NamedTuple):
    """A member. It is immutable: a change makes a new one, and the difference must be stored."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Epochs = NO_PARTITIONS
    revoking: Epochs = NO_PARTITIONS

    def is_reconciled(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def owns_at_most(self, owned: Owned | None) -> bool:
        """Return whether a client that reports these partitions can be this member at its previous epoch."""
        if owned is None:
            return False
        return all(index in self.assigned.get(topic, ()) for topic, indexes in owned.items() for index in indexes)

    def held(self) -> Epochs:
        """Return all partitions that no other member can have: assigned, or not given up yet."""
        if not self.revoking:
            return self.assigned
        held = {topic: dict(indexes) for topic, indexes in self.assigned.items()}
        for topic, indexes in self.revoking.items():
            held.setdefault(topic, {}).update(indexes)
        return held


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[bytes],
    owned: Owned | None,
    is_free: Callable[[bytes, int], bool],
) -> ConsumerMember:
    """Return the member after its next step; the same one if there is no step. ``owned`` None: unchanged.

    ``subscribed`` has the ids of its topics. The partitions of a topic that it has just left are revoked before there
    is a new target.
    """
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(member.revoking, owned):
        return _without_unsubscribed(member, subscribed)
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        left = _without_unsubscribed(member, subscribed)
        if left is member or _still_owns(left.revoking, owned):
            return left
        return left._replace(state=MemberState.STABLE, revoking={})
    return _next(member, target_epoch, target, subscribed, owned, is_free)


def _next(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[bytes],
    owned: Owned | None,
    is_free: Callable[[bytes, int], bool],
) -> ConsumerMember:
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    for topic, indexes in member.assigned.items():
        wanted = target.get(topic, frozenset()) if topic in subscribed else frozenset()
        for index, epoch in indexes.items():
            (kept if index in wanted else revoking).setdefault(topic, {})[index] = epoch
    if revoking and _still_owns(revoking, owned):
        return member._replace(
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking=revoking,
        )
    unreleased = False
    for topic, wanted in target.items():
        if topic not in subscribed:
            continue
        for index in wanted - kept.get(topic, {}).keys():
            if is_free(topic, index):
                kept.setdefault(topic, {})[index] = target_epoch
            else:
                unreleased = True
    return member._replace(
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        assigned=kept,
        revoking={},
    )


def _without_unsubscribed(member: ConsumerMember, subscribed: Collection[bytes]) -> ConsumerMember:
    """Revoke the partitions of topics that the member is no longer subscribed to."""
    gone = {topic: indexes for topic, indexes in member.assigned.items() if topic not in subscribed}
    if not gone:
        return member
    revoking = dict(member.revoking)
    for topic, indexes in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **indexes}
    return member._replace(
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={topic: indexes for topic, indexes in member.assigned.items() if topic not in gone},
        revoking=revoking,
    )


def _still_owns(partitions: Epochs, owned: Owned | None) -> bool:
    if owned is None:
        return True
    return any(index in indexes for topic, indexes in partitions.items() for index in owned.get(topic, ()))
