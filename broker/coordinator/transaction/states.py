"""The states of a transaction and the transitions between them.

`TRANSITIONS` is the one table: the machine refuses any other transition, and docs/transactions.md shows the table
(``python -m klamm.broker.coordinator.transaction.states > docs/transactions.md``). Source: Kafka's TransactionState.
"""

from __future__ import annotations

from enum import Enum

from klamm.broker.coordinator.runtime.state_table import StateTable, Transition


class State(Enum):
    """The state of a transaction; the values are the names that tools see."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"

    @property
    def is_preparing(self) -> bool:
        """Whether the outcome is decided but some partitions lack their marker."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


NUMBERS: dict[State, int] = {
    State.EMPTY: 0,
    State.ONGOING: 1,
    State.PREPARE_COMMIT: 2,
    State.PREPARE_ABORT: 3,
    State.COMPLETE_COMMIT: 4,
    State.COMPLETE_ABORT: 5,
    State.DEAD: 6,
}
"""The state numbers in ``__transaction_state``. Kafka's 7, PrepareEpochFence, is never written."""

STATES: dict[int, State] = {number: state for state, number in NUMBERS.items()}


MEANINGS: dict[State, str] = {
    State.EMPTY: "has a producer id, and no transaction since it got it",
    State.ONGOING: "has partitions; its records are uncommitted",
    State.PREPARE_COMMIT: "will be committed, whatever happens: markers are being written to the partitions",
    State.PREPARE_ABORT: "will be aborted, whatever happens: markers are being written to the partitions",
    State.COMPLETE_COMMIT: "is committed, and every partition has its marker",
    State.COMPLETE_ABORT: "is aborted, and every partition has its marker",
    State.DEAD: "expired; about to be removed from memory",
}

_AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

TRANSITIONS: tuple[Transition[State], ...] = (
    *(Transition(source, State.EMPTY, "InitProducerId") for source in _AT_REST),
    Transition(State.EMPTY, State.ONGOING, "the first partition is added"),
    Transition(State.ONGOING, State.ONGOING, "another partition is added"),
    Transition(State.COMPLETE_COMMIT, State.ONGOING, "the first partition of the next transaction is added"),
    Transition(State.COMPLETE_ABORT, State.ONGOING, "the first partition of the next transaction is added"),
    Transition(State.ONGOING, State.PREPARE_COMMIT, "EndTxn commits"),
    Transition(
        State.ONGOING,
        State.PREPARE_ABORT,
        "EndTxn aborts, the transaction exceeds its timeout, or InitProducerId fences its producer",
    ),
    *(
        Transition(source, State.PREPARE_ABORT, "EndTxn aborts a transaction without partitions (transactions v2)")
        for source in _AT_REST
    ),
    Transition(State.PREPARE_COMMIT, State.COMPLETE_COMMIT, "every partition has its marker"),
    Transition(State.PREPARE_ABORT, State.COMPLETE_ABORT, "every partition has its marker"),
    *(
        Transition(source, State.DEAD, "the transactional id was unused for `transactional.id.expiration.ms`")
        for source in _AT_REST
    ),
)

TABLE = StateTable(MEANINGS, TRANSITIONS)


def render() -> str:
    """Render docs/transactions.md: the states and their transitions."""
    return f"""# Transactions

<!-- Written by `python -m klamm.broker.coordinator.transaction.states`; a test holds it current. -->

Each transactional id is a state machine in `broker/coordinator/transaction/`. Its inputs are requests and the time, its
outputs responses, records for `__transaction_state`, and markers for the partitions. The code generates these tables.
A transition takes effect when its record is in the log. One record decides the outcome of a transaction: the one
with PrepareCommit or PrepareAbort.

{TABLE.states("state | a transactional id in it")}
{TABLE.drawing(State.EMPTY, State.DEAD)}
{TABLE.causes()}
After a restart every transactional id is loaded from `__transaction_state`. A prepared transaction is completed: its
partitions get the missing markers. An ongoing one continues, or is aborted when its timeout has passed.
"""


if __name__ == "__main__":
    print(render(), end="")
