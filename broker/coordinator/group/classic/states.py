"""The states of a classic group and every way from one to another.

`TRANSITIONS` is the one table: the machine refuses a step that is not in it, and docs/groups.md shows it
(``python -m klamm.broker.coordinator.group.classic.states > docs/groups.md``). Source: Kafka's ClassicGroupState.
"""

from __future__ import annotations

from enum import Enum

from klamm.broker.coordinator.group.consumer import consumer_states
from klamm.broker.coordinator.runtime.state_table import StateTable, Transition


class State(Enum):
    """Where a classic group stands; the values are the names that clients and tools see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MEANINGS: dict[State, str] = {
    State.EMPTY: "no members; the group may have committed offsets",
    State.PREPARING_REBALANCE: "waits until its members have joined (JoinGroup is parked)",
    State.COMPLETING_REBALANCE: "has a generation and waits for the leader's assignment (SyncGroup is parked)",
    State.STABLE: "every member has its assignment",
    State.DEAD: "deleted, or not looked after here any more; only waits to be forgotten",
}

TRANSITIONS: tuple[Transition[State], ...] = (
    Transition(State.EMPTY, State.PREPARING_REBALANCE, "a member joins"),
    Transition(
        State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE, "all members have joined, or their time to do so is over"
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
    Transition(State.EMPTY, State.DEAD, "the group is deleted, expires or moves away"),
    Transition(State.PREPARING_REBALANCE, State.DEAD, "the group moves away"),
    Transition(State.COMPLETING_REBALANCE, State.DEAD, "the group moves away"),
    Transition(State.STABLE, State.DEAD, "the group moves away"),
)

TABLE = StateTable(MEANINGS, TRANSITIONS)


def render() -> str:
    """docs/groups.md: the states and their transitions."""
    return f"""# Groups

<!-- Written by `python -m klamm.broker.coordinator.group.classic.states`; a test holds it current. -->

A classic group (every consumer that does not set `group.protocol=consumer`, Kafka Connect workers, schema registries)
is a state machine in `broker/coordinator/group/`. It takes requests and the time, and gives answers and records
for `__consumer_offsets`; the table below is the one that the code goes by.

{TABLE.states("state | a group in it")}
{TABLE.drawing(State.EMPTY, State.DEAD)}
{TABLE.causes()}
After a restart a group is read back from `__consumer_offsets`: Stable with the members of its last generation, each
with a fresh session timeout, or Empty. Members that were just joining come back by themselves.
{consumer_states.render()}"""


if __name__ == "__main__":
    print(render(), end="")
