"""The verification of transactions in a partition: the check before the first batch of a transaction is appended.

A transactional batch may begin a transaction in a partition only if the coordinator confirms that the transaction is
open and includes this partition. Otherwise a late batch of an ended transaction would begin one that never ends
(KIP-890). The caller takes a guard from `begin`, asks the coordinator, and passes the guard to the append with the
batch. A guard is good for one transaction: an append or a marker in between ends it, and with it the coordinator's
answer. After the first batch no guard is needed until the marker, with one exception: a newer epoch of the producer.
Since transaction version 2 a producer may learn that its transaction has ended before a marker delayed by a crash
arrives; its next batches must not enter the transaction that is already decided.

During the verification the lowest sequence of the waiting batches is kept, so that a batch cannot overtake one that
must be sent again. Nothing here survives a restart, and nothing has to.
"""

from __future__ import annotations

from dataclasses import dataclass

from klamm.protocol.errors import InvalidTxnState, OutOfOrderSequenceNumber


class VerificationGuard:
    """The token of one verification; equal only to itself."""

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
        """Return the guard for a batch that is to begin a transaction; the same one until something is appended.

        `now_ms` is monotonic. `begins_at_zero`: the producer's epoch grows with each transaction (version 2), so an
        epoch that is new to this partition must begin with sequence 0.
        """
        pending = self._pending.get(producer_id)
        if pending is None:
            pending = _VerificationState(VerificationGuard(), epoch, base_sequence, begins_at_zero, now_ms)
            self._pending[producer_id] = pending
        elif epoch > pending.epoch or (epoch == pending.epoch and base_sequence < pending.lowest_sequence):
            pending.epoch, pending.lowest_sequence = epoch, base_sequence
        return pending.guard

    def check_guard(self, producer_id: int, guard: VerificationGuard | None) -> None:
        """Check that this guard lets a transaction begin. Raises InvalidTxnState."""
        pending = self._pending.get(producer_id)
        if guard is None or pending is None or guard is not pending.guard:
            raise InvalidTxnState(f"{self._name}: producer_id={producer_id} has no verified transaction here")

    def check_sequence(self, producer_id: int, base_sequence: int, *, has_batches: bool) -> None:
        """Check that no lower sequence must be appended first. Raises OutOfOrderSequenceNumber."""
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
                f"{pending.lowest_sequence} must be sent again before it"
            )

    def duplicate(self, producer_id: int, base_sequence: int, last_offset_delta: int) -> None:
        """Record that a batch was a duplicate: later batches need not wait for it."""
        pending = self._pending.get(producer_id)
        if pending is not None and pending.lowest_sequence == base_sequence:
            pending.lowest_sequence = base_sequence + last_offset_delta + 1

    def end(self, producer_id: int) -> None:
        """End the verification: a batch or a marker of the producer is in the log."""
        self._pending.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget verifications that were never used."""
        self._pending = {
            producer_id: pending
            for producer_id, pending in self._pending.items()
            if now_ms - pending.started_ms < expiration_ms
        }
