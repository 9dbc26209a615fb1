"""Offsets that were committed in transactions which are still open: they count when, and if, the transaction commits.

What was committed after them, outside of a transaction or in another that has committed already, stays as it is: the
last word in the log about an offset is the last one that was written, not the last one that was decided. Until the
outcome is known the offset is unstable (KIP-447), whoever wrote last; unless it was deleted, which ends the matter.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from klamm.broker.coordinator.group.offsets import CommittedOffset

Key = tuple[str, str, int]  # group, topic, partition


class _Pending(NamedTuple):
    """What a transaction has committed; None when something that was written later counts."""

    serial: int
    committed: CommittedOffset | None


class OffsetsOfTransaction:
    """A transaction with offsets; one that has ended keeps those that `PendingTransactionalOffsets.decide` has not come
    to."""

    __slots__ = ("key", "offsets")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key
        self.offsets: dict[Key, _Pending] = {}


class PendingTransactionalOffsets:
    """By partition of ``__consumer_offsets`` and producer id, as markers name them."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], OffsetsOfTransaction] = {}
        self._ending: set[OffsetsOfTransaction] = set()
        self._holders: dict[Key, set[OffsetsOfTransaction]] = {}
        self._groups: dict[str, set[tuple[str, int]]] = {}  # what of each group is in `_holders`
        self._written = 0  # how much has been written so far: tells what came before what

    def __len__(self) -> int:
        return len(self._open)

    def add(self, index: int, producer_id: int, key: Key, committed: CommittedOffset) -> None:
        """A transaction commits an offset; called in the order in which they are written."""
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
        """An offset is written outside of any transaction: what open ones have for it comes before that."""
        self._written += 1
        self._overtake(key, self._written)

    def _overtake(self, key: Key, serial: int) -> None:
        for transaction in self._holders.get(key, ()):
            offsets = transaction.offsets
            if offsets[key].serial < serial:
                offsets[key] = offsets[key]._replace(committed=None)

    def drop(self, key: Key) -> None:
        """An offset is deleted: what open ones have for it never counts, and nobody waits for their outcome."""
        if key not in self._holders:
            return
        for transaction in self._holders[key]:
            del transaction.offsets[key]
            if not transaction.offsets and self._open.get(transaction.key) is transaction:
                del self._open[transaction.key]
        self._let_go(key)

    def end(self, index: int, producer_id: int, *, commit: bool) -> dict[Key, CommittedOffset]:
        """The offsets that count from now on, because their transaction has committed."""
        transaction = self.ended(index, producer_id)
        return self.decide(transaction, commit=commit) if transaction is not None else {}

    def ended(self, index: int, producer_id: int) -> OffsetsOfTransaction | None:
        """The transaction that has a marker now, to be decided; the producer may begin another one meanwhile. Its
        offsets stay pending until `decide` comes to them. None: it has no offsets."""
        transaction = self._open.pop((index, producer_id), None)
        if transaction is not None:
            self._ending.add(transaction)
        return transaction

    def decide(
        self, transaction: OffsetsOfTransaction, *, commit: bool, at_most: int | None = None
    ) -> dict[Key, CommittedOffset]:
        """Some of its offsets are not pending any more; those that count from now on."""
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
        """Whether a transaction is open that has committed this offset."""
        return key in self._holders

    def of(self, group: str) -> Collection[tuple[str, int]]:
        """Topic and partition of each offset of a group that is pending. Only to look at."""
        return self._groups.get(group, ())

    def groups(self) -> Collection[str]:
        """The groups with offsets that are pending. Only to look at."""
        return self._groups.keys()

    def merge(self, read: PendingTransactionalOffsets) -> None:
        """Take over what was read back of partitions that were not looked after here before: all of their groups."""
        assert self._groups.keys().isdisjoint(read._groups)
        self._open.update(read._open)
        self._holders.update(read._holders)
        self._groups.update(read._groups)
        self._written = max(self._written, read._written)

    def forget(self, index: int) -> None:
        """A partition of the topic is not looked after here any more."""
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
