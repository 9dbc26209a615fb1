"""Offsets committed in open transactions. They count if and when the transaction commits.

A later commit, outside of a transaction or in one that has committed already, stays in force: the order of writes in
the log decides, not the order of outcomes. Until the outcome is known the offset is unstable (KIP-447), no matter which
commit came last. Deletion of the offset ends this.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from klamm.broker.coordinator.group.offsets import CommittedOffset

Key = tuple[str, str, int]  # group, topic, partition


class _Pending(NamedTuple):
    """An offset that a transaction has committed; None if a later write overrides it."""

    serial: int
    committed: CommittedOffset | None


class OffsetsOfTransaction:
    """A transaction with offsets. After its end it keeps the offsets that `PendingTransactionalOffsets.decide` has not
    reached.
    """

    __slots__ = ("key", "offsets")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.offsets: dict[Key, _Pending] = {}


class PendingTransactionalOffsets:
    """Open transactions by partition of ``__consumer_offsets`` and producer id, as markers name them."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], OffsetsOfTransaction] = {}
        self._ending: set[OffsetsOfTransaction] = set()
        self._holders: dict[Key, set[OffsetsOfTransaction]] = {}
        self._groups: dict[str, set[tuple[str, int]]] = {}  # topics and partitions in `_holders`, by group
        self._written = 0  # counts writes: gives their order

    def __len__(self) -> int:
        return len(self._open)

    def add(self, index: int, producer_id: int, key: Key, committed: CommittedOffset) -> None:
        """Add an offset that a transaction commits. Call this in the order of the writes."""
        transaction = self._open.get((index, producer_id))
        if transaction is None:
            transaction = self._open[index, producer_id] = OffsetsOfTransaction((index, producer_id))
        self._written += 1
        transaction.offsets[key] = _Pending(self._written, committed)
        holders = self._holders.get(key)
        if holders is None:
            holders = self._holders[key] = set()
            self._groups.setdefault(key[0], set()).add(key[1:])
        holders.add(transaction)

    def _let_go(self, key: Key) -> None:
        del self._holders[key]
        pending = self._groups[key[0]]
        pending.discard(key[1:])
        if not pending:
            del self._groups[key[0]]

    def overtake(self, key: Key) -> None:
        """Note a commit outside of any transaction: it overrides the earlier writes of open transactions."""
        self._written += 1
        self._overtake(key, self._written)

    def _overtake(self, key: Key, serial: int) -> None:
        for transaction in self._holders.get(key, ()):
            offsets = transaction.offsets
            if offsets[key].serial < serial:
                offsets[key] = offsets[key]._replace(committed=None)

    def drop(self, key: Key) -> None:
        """Drop a deleted offset: pending commits of it never count, and it is no longer unstable."""
        if key not in self._holders:
            return
        for transaction in self._holders[key]:
            del transaction.offsets[key]
            if not transaction.offsets and self._open.get(transaction.key) is transaction:
                del self._open[transaction.key]
        self._let_go(key)

    def end(self, index: int, producer_id: int, *, commit: bool) -> dict[Key, CommittedOffset]:
        """End a transaction and return its offsets that count from now on."""
        transaction = self.ended(index, producer_id)
        return self.decide(transaction, commit=commit) if transaction is not None else {}

    def ended(self, index: int, producer_id: int) -> OffsetsOfTransaction | None:
        """Return the transaction that has got its marker, for `decide`; its offsets stay pending until then. Its
        producer may begin another one meanwhile. None: it has no offsets.
        """
        transaction = self._open.pop((index, producer_id), None)
        if transaction is not None:
            self._ending.add(transaction)
        return transaction

    def decide(
        self, transaction: OffsetsOfTransaction, *, commit: bool, at_most: int | None = None
    ) -> dict[Key, CommittedOffset]:
        """Decide at most `at_most` offsets of a transaction; they are no longer pending. Return those that count from
        now on.
        """
        counts = {}
        for key in list(islice(transaction.offsets, at_most)):
            serial, committed = transaction.offsets.pop(key)
            holders = self._holders[key]
            holders.discard(transaction)
            if commit and committed is not None:
                self._overtake(key, serial)
                counts[key] = committed
            if not holders:
                self._let_go(key)
        if not transaction.offsets:
            self._ending.discard(transaction)
        return counts

    def is_pending(self, key: Key) -> bool:
        """Return whether an open transaction has committed this offset."""
        return key in self._holders

    def of(self, group: str) -> Collection[tuple[str, int]]:
        """Return topic and partition of each pending offset of a group. Read-only."""
        return self._groups.get(group, ())

    def groups(self) -> Collection[str]:
        """Return the groups with pending offsets. Read-only."""
        return self._groups.keys()

    def merge(self, read: PendingTransactionalOffsets) -> None:
        """Take over the offsets of loaded partitions. None of their groups may be here already."""
        assert self._groups.keys().isdisjoint(read._groups)
        self._open.update(read._open)
        self._holders.update(read._holders)
        self._groups.update(read._groups)
        self._written = max(self._written, read._written)

    def forget(self, index: int) -> None:
        """Drop the pending offsets of a partition of the topic."""
        for transaction in [each for each in (*self._open.values(), *self._ending) if each.key[0] == index]:
            self._open.pop(transaction.key, None)
            self.decide(transaction, commit=False)

    def clear(self) -> None:
        for transaction in self._ending:
            transaction.offsets.clear()
        self._ending.clear()
        self._open.clear()
        self._holders.clear()
        self._groups.clear()
