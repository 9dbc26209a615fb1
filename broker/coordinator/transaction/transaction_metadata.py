"""The coordinator's entry for a transactional id."""

from __future__ import annotations

from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import TopicPartition, Transaction


class TransactionMetadata:
    """The current state of a transactional id, and the state it is about to enter, if any."""

    __slots__ = ("current", "pending", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: State | None = None
        self.unmarked: frozenset[TopicPartition] = frozenset()  # partitions that lack their marker
