"""The states of a consumer group (KIP-848) and of its members, with the transitions between them.

A group's state follows from its epochs and members; a member's is stored. docs/groups.md shows both tables, and tests
check the machine against them. Source: Kafka's ConsumerGroup.ConsumerGroupState and MemberState.
"""

from __future__ import annotations

from enum import Enum

from klamm.broker.coordinator.group.consumer.consumer_member import MemberState
from klamm.broker.coordinator.runtime.state_table import StateTable, Transition


class GroupState(Enum):
    """The state of a group; the values are the names that clients and tools see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


GROUP_MEANINGS: dict[GroupState, str] = {
    GroupState.EMPTY: "no members; the group may have committed offsets",
    GroupState.ASSIGNING: "the group epoch is ahead of the target assignment",
    GroupState.RECONCILING: "some members have not reached the target assignment",
    GroupState.STABLE: "every member has its target assignment",
    GroupState.DEAD: "the group does not exist",
}


_S, _K, _L = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS

MEMBER_MEANINGS: dict[MemberState, str] = {
    _S: "has its current target assignment",
    _K: "has to give up partitions and has not confirmed it; keeps its epoch until then",
    _L: "is at the new epoch and waits for partitions that other members still own",
}

MEMBER_TRANSITIONS: tuple[Transition[MemberState], ...] = (
    Transition(_S, _K, "a new target assignment, or its new subscription, takes partitions away from it"),
    Transition(_S, _L, "a new target assignment has partitions for it that other members still own"),
    Transition(_K, _S, "it has given up partitions, and has its whole target assignment"),
    Transition(_K, _L, "it has given up partitions, and waits for some that other members still own"),
    Transition(_L, _S, "the last partition it waited for is free"),
    Transition(_L, _K, "a new target assignment takes partitions away from it"),
)

MEMBERS = StateTable(MEMBER_MEANINGS, MEMBER_TRANSITIONS, shown=lambda state: state.name)
GROUPS: StateTable[GroupState] = StateTable(GROUP_MEANINGS, ())


def render() -> str:
    """Render the part of docs/groups.md about consumer groups."""
    return f"""
## Consumer groups

The broker assigns partitions to members with `group.protocol=consumer` (KIP-848), by one of `group.consumer.assignors`.
The state of the group follows from its epochs. The group epoch grows with every change of members, subscriptions or
topics. The target assignment is computed for a group epoch. Each member moves to the target at its own pace, with its
own epoch; a member waits only for partitions that another member still owns.

The target of a large group (more than 2,000 members, subscriptions and partitions together) is computed in a thread.
Until it is ready, heartbeats return the previous target. The new target belongs to the epoch it was computed for; later
changes are part of the next one.

{GROUPS.states("state | a group in it")}
{MEMBERS.states("member state | a member in it")}
{MEMBERS.drawing(MemberState.STABLE)}
{MEMBERS.causes()}
A member that keeps revoked partitions beyond its rebalance timeout, or is silent for the session timeout, is fenced.
Its partitions are assigned to others, and it joins again with epoch 0. A classic group becomes a consumer group when
the first member of the consumer protocol joins, and classic again when the last one has left
(`group.consumer.migration.policy`).
"""
