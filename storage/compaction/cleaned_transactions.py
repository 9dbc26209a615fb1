"""The transactions seen by compaction while it walks the batches of a log, oldest first.

Records of an aborted transaction are removed at once. A marker is removed when nothing else of its transaction is left
in the log, that is, when this run sees no batch of the transaction, be it aborted or committed. Before that it waits
for its delete horizon, as a tombstone does, so that every consumer has seen how the transaction ended. If a batch of an
aborted transaction was seen, the transaction stays in the transaction index with its marker: the header of such a batch
may be kept for its producer's sequence.

The aborted transactions are known beforehand from the transaction indexes, in any order. All other transactions were
committed, since everything that is compacted is below the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.control import read_end_marker
from klamm.protocol.records.crc import BytesLike
from klamm.storage.log.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open at the current position of the run."""

    __slots__ = ("_aborted", "_committed", "_kept", "_seen", "_to_come")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers of aborted transactions with a batch in the log
        self._committed: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether a batch of records is part of an aborted transaction."""
        self._go_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_empty_after(self, batch: BytesLike, header: BatchHeader) -> bool:
        """Return whether a control batch ends a transaction without remaining batches. Raises InvalidRecord."""
        self._go_to(header.last_offset)
        if header.record_count == 0:
            return True
        marker = read_end_marker(batch, header)
        if marker is None:
            return False
        if marker.is_commit:
            was_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_seen
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted is None or header.producer_id not in self._seen:
            return True
        self._seen.discard(header.producer_id)
        self._kept.append(aborted)
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Return the index entries for the segment being written: the transactions ended since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def _go_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            aborted = self._to_come.pop()
            self._aborted.setdefault(aborted.producer_id, aborted)
