"""Transactions that a partition may take part in: what has to be asked before the first batch of one is appended.

A transactional batch may begin a transaction in a partition only when the coordinator says that the transaction is
open and has this partition in it; else a late batch, of a producer whose transaction has ended, would begin one that
nobody ever ends (KIP-890). Who asks the coordinator takes a guard from `begin` first and hands it to the append with
the batch. The guard is good for one transaction: an append or a marker in between ends it, and with it what the
coordinator has said. Once a batch is in, no guard is needed until the marker, but by the next epoch of the producer:
since transaction version 2 a producer that was told of the end of a transaction may be ahead of its marker, which a
crash has delayed, and what it writes must not get into a transaction that is decided.

While an answer is awaited the lowest sequence asked for is kept, so that a batch behind one that has to be sent again
does not get in before it. Nothing here survives a restart, and nothing has to.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.protocol.errors import InvalidTxnState, OutOfOrderSequenceNumber


class VerificationGuard:
    """Tells one transaction from the next; equal to itself only."""

    __slots__ = ()


@dataclass(slots=True)
class _VerificationState:
    guard: VerificationGuard
    epoch: int
    lowest_sequence: int
    begins_at_zero: bool
    started_ms: int


class TransactionVerifications:
    """The guards of one partition, at most one for each producer id."""

    __slots__ = ("_name", "_pending")

    def __init__(self, name: str) -> None:
        self._name = name
        self._pending: dict[int, _VerificationState] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def begin(
        self, producer_id: int, epoch: int, base_sequence: int, *, begins_at_zero: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard for a batch that is to begin a transaction; the same one until something is appended. `now_ms` is
        monotonic.

        `begins_at_zero`: the producer's epoch grows with each transaction (version 2), so that what a partition has
        not seen of it must begin with sequence 0.
        """
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = _VerificationState(VerificationGuard(), epoch, base_sequence, begins_at_zero, now_ms)
            self._pending[producer_id] = pending
        elif epoch > pending.epoch or (epoch == pending.epoch and base_sequence < pending.lowest_sequence):
            pending.epoch, pending.lowest_sequence = epoch, base_sequence
        return pending.guard

    def check_guard(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Whether this guard lets a transaction begin. Raises InvalidTxnState."""
        pending = self._pending.get(producer_id)
        if guard is None or pending is None or guard is not pending.guard:
            raise InvalidTxnState(f"{self._name}: producer_id={producer_id} has no verified transaction here")

    def check_sequence(self, producer_id: int, base_sequence: int, *, has_batches: bool) -> None:
        """Raises OutOfOrderSequenceNumber."""
        pending = self._pending.get(producer_id)
        if pending is None:
            return
        if pending.begins_at_zero and base_sequence != 0 and not has_batches:
            raise OutOfOrderSequenceNumber(
                f"{self._name}: producer_id={producer_id} sent base_sequence={base_sequence} first, expected 0"
            )
        if base_sequence > pending.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"{self._name}: producer_id={producer_id} sent base_sequence={base_sequence}, "
                f"{pending.lowest_sequence} is to be sent again before it"
            )

    def duplicate(self, producer_id: int, base_sequence: int, last_offset_delta: int) -> None:
        """A batch was there before: those behind it need not wait for it."""
        pending = self._pending.get(producer_id)
        if pending is not None and pending.lowest_sequence == base_sequence:
            pending.lowest_sequence = base_sequence + last_offset_delta + 1

    def end(self, producer_id: int) -> None:
        """A batch or a marker of the producer is in the log."""
        self._pending.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that were begun and never used."""
        self._pending = {
            producer_id: pending
            for producer_id, pending in self._pending.items()
            if now_ms - pending.started_ms < expiration_ms
        }
