"""The states of a classic group and the transitions between them.

`TRANSITIONS` is the one table: the machine refuses any other transition, and docs/groups.md shows the table (``python
-m klamm.broker.coordinator.group.classic.states > docs/groups.md``). Source: Kafka's ClassicGroupState.
"""

from __future__ import annotations

from enum import Enum

from klamm.broker.coordinator.group.consumer import consumer_states
from klamm.broker.coordinator.runtime.state_table import StateTable, Transition


class State(Enum):
    """The state of a classic group; the values are the names that clients and tools see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MEANINGS: dict[State, str] = {
    State.EMPTY: "no members; the group may have committed offsets",
    State.PREPARING_REBALANCE: "waits until its members have joined; their JoinGroup requests are pending",
    State.COMPLETING_REBALANCE: "has a generation, waits for the leader's assignment; SyncGroup requests are pending",
    State.STABLE: "every member has its assignment",
    State.DEAD: "deleted, or moved to another coordinator; about to be removed from memory",
}

TRANSITIONS: tuple[Transition[State], ...] = (
    Transition(State.EMPTY, State.PREPARING_REBALANCE, "a member joins"),
    Transition(
        State.PREPARING_REBALANCE,
        State.COMPLETING_REBALANCE,
        "all members have joined, or the rebalance timeout has passed",
    ),
    Transition(State.PREPARING_REBALANCE, State.EMPTY, "the last member has left or expired"),
    Transition(State.COMPLETING_REBALANCE, State.STABLE, "the leader's assignment is in the log"),
    Transition(
        State.COMPLETING_REBALANCE,
        State.PREPARING_REBALANCE,
        "a member joins, leaves, expires or does not sync in time, or the assignment cannot be stored",
    ),
    Transition(
        State.STABLE,
        State.PREPARING_REBALANCE,
        "a member joins, leaves or expires, the leader joins again, or a member changes its protocols",
    ),
    Transition(State.EMPTY, State.DEAD, "the group is deleted, expires or moves to another coordinator"),
    Transition(State.PREPARING_REBALANCE, State.DEAD, "the group moves to another coordinator"),
    Transition(State.COMPLETING_REBALANCE, State.DEAD, "the group moves to another coordinator"),
    Transition(State.STABLE, State.DEAD, "the group moves to another coordinator"),
)

TABLE = StateTable(MEANINGS, TRANSITIONS)


def render() -> str:
    """Render docs/groups.md: the states and their transitions."""
    return f"""# Groups

<!-- Written by `python -m klamm.broker.coordinator.group.classic.states`; a test holds it current. -->

A classic group (every consumer that does not set `group.protocol=consumer`, Kafka Connect workers, schema registries)
is a state machine in `broker/coordinator/group/`. Its inputs are requests and the time, its outputs responses and
records for `__consumer_offsets`. The code generates these tables.

{TABLE.states("state | a group in it")}
{TABLE.drawing(State.EMPTY, State.DEAD)}
{TABLE.causes()}
After a restart a group is loaded from `__consumer_offsets`: Stable with the members of its last generation, each with a
new session timeout, or Empty. Members that were joining join again by themselves.
{consumer_states.render()}"""


if __name__ == "__main__":
    print(render(), end="")
