"""The states of a consumer group (KIP-848), of its members, and every way from one to another.

A group's state follows from its epochs and members; a member's is stored. Both tables are shown in docs/groups.md and
held against what the machine does by its tests. Source: Kafka's ConsumerGroup.ConsumerGroupState and MemberState.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from klamm.broker.coordinator.group.consumer_member import MemberState


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


class MemberTransition(NamedTuple):
    """One permitted step of a member, and what makes it take it."""

    source: MemberState
    target: MemberState
    cause: str


_S, _K, _L = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS

MEMBER_MEANINGS: dict[MemberState, str] = {
    _S: "has its target assignment, as far as it is known",
    _K: "was told to give up partitions and has not confirmed it; keeps its epoch until then",
    _L: "is at the new epoch and waits for partitions that others still have",
}

MEMBER_TRANSITIONS: tuple[MemberTransition, ...] = (
    MemberTransition(_S, _K, "a new target assignment, or its new subscription, takes partitions away from it"),
    MemberTransition(_S, _L, "a new target assignment has partitions for it that others still have"),
    MemberTransition(_K, _S, "it has given up its partitions, and has all of the target assignment"),
    MemberTransition(_K, _L, "it has given up its partitions, and waits for some that others still have"),
    MemberTransition(_L, _S, "the last partition that it waited for is free"),
    MemberTransition(_L, _K, "a new target assignment takes partitions away from it"),
)

_PERMITTED = frozenset((step.source, step.target) for step in MEMBER_TRANSITIONS)


def permitted(source: MemberState, target: MemberState) -> bool:
    """Whether a member may go from ``source`` to ``target``."""
    return source is target or (source, target) in _PERMITTED


def render() -> str:
    """The part of docs/groups.md."""
    groups = "".join(f"| {state.value} | {meaning} |\n" for state, meaning in GROUP_MEANINGS.items())
    members = "".join(f"| {state.name} | {meaning} |\n" for state, meaning in MEMBER_MEANINGS.items())
    steps = "".join(f"    {step.source.name} --> {step.target.name}\n" for step in MEMBER_TRANSITIONS)
    causes = "".join(f"| {step.source.name} | {step.target.name} | {step.cause} |\n" for step in MEMBER_TRANSITIONS)
    return f"""
## Consumer groups

A group whose members set `group.protocol=consumer` (KIP-848) is assigned by the broker, with one of
`group.consumer.assignors`. Its state follows from its epochs: the group epoch grows with every change of members,
subscriptions or topics; the target assignment is computed for it; each member goes to it at its own pace, with its own
epoch. Nobody waits for anybody but for partitions that another member has not given up.

| state | a group in it |
|---|---|
{groups}
| member state | a member in it |
|---|---|
{members}
```mermaid
stateDiagram-v2
    [*] --> STABLE
{steps}```

| from | to | when |
|---|---|---|
{causes}
A member that does not give up its partitions within its rebalance timeout, or is silent for the session timeout, is
fenced: its partitions go to others, and it joins again with epoch 0. A classic group becomes a consumer group when
the first member of the consumer protocol joins it, and classic again when the last one has left
(`group.consumer.migration.policy`).
"""
