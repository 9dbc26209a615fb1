"""What compaction knows of transactions while it goes through the batches of a log, from the oldest on.

Records of an aborted transaction go at once. A marker goes when nothing of its transaction is left in the log: one of
an aborted transaction of which this run sees no batch any more, one of a committed transaction likewise. It waits for
its delete horizon before, as a tombstone does, so that every consumer has seen how the transaction ended. An aborted
transaction of which a batch was seen stays in the transaction index with its marker: the header of such a batch may be
kept for its producer's sequence.

Which transactions were aborted is told beforehand, by the transaction indexes, in any order; a transaction that is not
among them was committed, as all that is compacted is below the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.control import read_end_marker
from klamm.protocol.records.crc import BytesLike
from klamm.storage.log.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open where the run has come to."""

    __slots__ = ("_aborted", "_committed", "_kept", "_seen", "_to_come")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers of aborted transactions of which a batch was there
        self._committed: set[int] = set()
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records is part of an aborted transaction."""
        self._go_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_empty_after(self, batch: BytesLike, header: BatchHeader) -> bool:
        """Whether a control batch ends a transaction of which nothing is left. Raises InvalidRecord."""
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
        """The entries for the index of the segment that is being written: those ended since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def _go_to(self, offset: int) -> None:
        while self._to_come and self._to_come[-1].first_offset <= offset:
            aborted = self._to_come.pop()
            self._aborted.setdefault(aborted.producer_id, aborted)
