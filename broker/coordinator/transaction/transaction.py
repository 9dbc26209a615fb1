"""One transactional id: its state, and the transitions of that state.

A `Transaction` is a value. Each step makes a new one, which counts when its record is in ``__transaction_state``. The
two versions of the protocol differ in epochs. In version 1 a producer keeps its epoch until it, or its successor, asks
for a new one (InitProducerId). In version 2 (KIP-890) every end of a transaction bumps the epoch, so a late record or
marker belongs to a past epoch and can do no harm. When a producer id has no epoch left, the end of the transaction
switches to the next producer id. Source: Kafka's TransactionMetadata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from klamm.broker.coordinator.transaction.producer_ids import NO_PRODUCER_ID
from klamm.broker.coordinator.transaction.states import TABLE, State

NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
LAST_EPOCH = MAX_EPOCH - 1
"""The last epoch that a client can get; the one above it is kept for fencing."""

EPOCH_BUMP_FROM = 2
"""The protocol version in which the end of a transaction bumps the epoch."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id. Times are wall-clock milliseconds, -1: none.

    `previous_producer_id` and `last_producer_epoch` distinguish a repeated request from that of a fenced producer.
    `next_producer_id` replaces a producer id that has used up its epochs. `client_version` is the protocol version that
    began or ended the transaction.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    producer_epoch: int = NO_EPOCH
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a client."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def bumps_epochs(self) -> bool:
        """Whether the id was last used with version 2 of the protocol."""
        return self.client_version >= EPOCH_BUMP_FROM

    def step(self, state: State, **changes: object) -> Transaction:
        """Return the transaction in another state. The table must permit the transition."""
        assert TABLE.permits(self.state, state), f"{self.transactional_id}: {self.state.value} -> {state.value}"
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)  # type: ignore[arg-type]

    @property
    def _bumped_epoch(self) -> int:
        """The next epoch. It stays at the highest one, which no client should have."""
        return min(self.producer_epoch + 1, MAX_EPOCH)

    # InitProducerId

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Return whether a producer with this identity may go on (KIP-360): it is the current one, or it repeats a
        request because it missed the response that replaced its id.
        """
        return (
            self.producer_epoch == NO_EPOCH
            or producer_id == self.producer_id
            or (producer_id == self.previous_producer_id and epoch >= LAST_EPOCH)
        )

    def renewed(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transaction | None:
        """Return the transaction with a new epoch for a starting producer; None when `expected_epoch` is that of a
        fenced one.
        """
        epoch, last = self.producer_epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_EPOCH, expected_epoch):
                last = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:  # it repeats the request: the response was lost
                epoch, last = self.producer_epoch, self.last_producer_epoch
            else:
                return None
        assert epoch <= LAST_EPOCH, f"{self.transactional_id}: epoch {epoch} is not for clients"
        return self._at_rest(self.producer_id, epoch, last, timeout_ms, now_ms)

    def rotated(self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool) -> Transaction:
        """Return the transaction with a new producer id, because the old one has no epoch left."""
        last = self.producer_epoch if keeps_last_epoch else NO_EPOCH
        return self._at_rest(producer_id, 0, last, timeout_ms, now_ms)

    def _at_rest(self, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int) -> Transaction:
        return self.step(
            State.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            next_producer_id=NO_PRODUCER_ID,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=-1,
            updated_ms=now_ms,
            client_version=0,
        )

    # AddPartitionsToTxn

    def with_partitions(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> Transaction:
        """Return the transaction with more partitions; the first ones begin it."""
        begins = self.state is not State.ONGOING
        return self.step(
            State.ONGOING,
            partitions=self.partitions | partitions,
            started_ms=now_ms if begins else self.started_ms,
            updated_ms=now_ms,
            client_version=version,
        )

    # EndTxn

    def ended(self, version: int, now_ms: int, *, commit: bool, next_producer_id: int = NO_PRODUCER_ID) -> Transaction:
        """Return the transaction with its outcome decided. Version 2 bumps the epoch; `next_producer_id` is used when
        no epoch is left.
        """
        changes: dict[str, object] = {"updated_ms": now_ms, "client_version": version}
        if self.state is not State.ONGOING:  # aborted without partitions
            changes["started_ms"] = now_ms
        if version >= EPOCH_BUMP_FROM:
            changes |= {
                "producer_epoch": self._bumped_epoch,
                "last_producer_epoch": self.producer_epoch,
                "next_producer_id": next_producer_id,
            }
        return self.step(State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, **changes)

    def fenced(self, version: int, now_ms: int, *, next_producer_id: int = NO_PRODUCER_ID) -> Transaction:
        """Return the transaction aborted in an epoch that no client has: it timed out, or a new producer replaced its
        producer.
        """
        ended = self.ended(version, now_ms, commit=False, next_producer_id=next_producer_id)
        if version >= EPOCH_BUMP_FROM:
            return ended
        return replace(ended, producer_epoch=self._bumped_epoch, last_producer_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> Transaction:
        """Return the transaction with all markers written."""
        state = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        changes: dict[str, object] = {"partitions": frozenset(), "updated_ms": now_ms}
        if self.bumps_epochs and self.next_producer_id != NO_PRODUCER_ID:
            changes |= {"producer_id": self.next_producer_id, "producer_epoch": 0, "next_producer_id": NO_PRODUCER_ID}
        return self.step(state, **changes)

    def is_repeated_end(self, producer_id: int, epoch: int) -> bool:
        """Return whether an EndTxn of version 2 was carried out already and the producer has missed its new epoch.

        Kafka compares only the numbers. Here the end must also have bumped the epoch: after an end of version 1 the
        previous epoch belongs to a producer that another one has fenced, and the fenced one must not receive the epoch
        of the other.
        """
        if not self.bumps_epochs:
            return False
        if producer_id == self.producer_id and epoch + 1 == self.producer_epoch:
            return True
        return producer_id == self.previous_producer_id and epoch == LAST_EPOCH and self.producer_epoch == 0


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer; -1 and -1 in an error response."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


NOBODY = ProducerIdAndEpoch()


@dataclass(frozen=True, slots=True)
class Markers:
    """The outcome of a transaction, for all its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    version: int
    partitions: frozenset[TopicPartition]
