"""The states of a consumer group (KIP-848), of its members, and every way from one to another.

A group's state follows from its epochs and members; a member's is stored. Both tables are shown in docs/groups.md and
held against what the machine does by its tests. Source: Kafka's ConsumerGroup.ConsumerGroupState and MemberState.
"""

from __future__ import annotations

from enum import Enum

from klamm.broker.coordinator.group.consumer.consumer_member import MemberState
from klamm.broker.coordinator.runtime.state_table import StateTable, Transition


class GroupState(Enum):
    """The values are the names that clients and tools see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


GROUP_MEANINGS: dict[GroupState, str] = {
    GroupState.EMPTY: "no members; the group may have committed offsets",
    GroupState.ASSIGNING: "the group epoch is ahead of the target assignment",
    GroupState.RECONCILING: "there is a target assignment, and members that have not got to it",
    GroupState.STABLE: "every member has what it is to have",
    GroupState.DEAD: "the group is not there",
}


_S, _K, _L = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS

MEMBER_MEANINGS: dict[MemberState, str] = {
    _S: "has its target assignment, as far as it is known",
    _K: "was told to give up partitions and has not confirmed it; keeps its epoch until then",
    _L: "is at the new epoch and waits for partitions that others still have",
}

MEMBER_TRANSITIONS: tuple[Transition[MemberState], ...] = (
    Transition(_S, _K, "a new target assignment, or its new subscription, takes partitions away from it"),
    Transition(_S, _L, "a new target assignment has partitions for it that others still have"),
    Transition(_K, _S, "it has given up its partitions, and has all of the target assignment"),
    Transition(_K, _L, "it has given up its partitions, and waits for some that others still have"),
    Transition(_L, _S, "the last partition that it waited for is free"),
    Transition(_L, _K, "a new target assignment takes partitions away from it"),
)

MEMBERS = StateTable(MEMBER_MEANINGS, MEMBER_TRANSITIONS, shown=lambda state: state.name)
GROUPS: StateTable[GroupState] = StateTable(GROUP_MEANINGS, ())


def render() -> str:
    """The part of docs/groups.md."""
    return f"""
## Consumer groups

A group whose members set `group.protocol=consumer` (KIP-848) is assigned by the broker, with one of
`group.consumer.assignors`. Its state follows from its epochs: the group epoch grows with every change of members,
subscriptions or topics; the target assignment is computed for it; each member goes to it at its own pace, with its own
epoch. Nobody waits for anybody but for partitions that another member has not given up.

The target of a large group (more than 2,000 members, subscriptions and partitions together) is computed in a thread.
Heartbeats are answered with the last target meanwhile; the new one counts for the epoch that it was computed for, and
what has changed since is in the next.

{GROUPS.states("state | a group in it")}
{MEMBERS.states("member state | a member in it")}
{MEMBERS.drawing(MemberState.STABLE)}
{MEMBERS.causes()}
A member that does not give up its partitions within its rebalance timeout, or is silent for the session timeout, is
fenced: its partitions go to others, and it joins again with epoch 0. A classic group becomes a consumer group when
the first member of the consumer protocol joins it, and classic again when the last one has left
(`group.consumer.migration.policy`).
"""
