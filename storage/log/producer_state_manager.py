"""The state of every idempotent producer in a partition, so that no batch is appended twice or out of order.

A producer numbers its records per partition with int32 sequences that wrap around to 0. For each producer the last five
batches are kept (a client has at most five in flight). A batch among them is a duplicate, and gets the offsets of the
first time. A batch that a coordinator writes for a producer (offsets of a group) has no sequence: only its epoch and
its transaction count.

Transactions: a producer's first transactional batch begins one, its end transaction marker ends it. The first unstable
offset, where the last stable offset stops, is the first offset of the oldest transaction that is open or has its marker
at or above the high watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from klamm.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.control import EndMarker
from klamm.storage.log.producer_state_entry import (
    MAX_SEQUENCE,
    NO_OFFSET,
    NO_PRODUCER,
    NO_SEQUENCE,
    BatchMetadata,
    ProducerStateEntry,
    format_snapshot,
    parse_snapshot,
)
from klamm.storage.log.transaction_index import AbortedTransaction

MAX_EPOCH = 2**15 - 1

STRICT_MARKERS_FROM = 2
"""The transaction version from which every transaction ends with an epoch of its own (KIP-890, KIP-1228)."""

SNAPSHOT_ACCURACY = 24
"""The precision of a snapshot: idle times are exact up to this part of the expiration time, an hour of a day."""


class ProducerStateManager:
    """The producers of one partition. It knows no files."""

    __slots__ = (
        "_looked_ms",
        "_ongoing",
        "_producers",
        "_unreplicated",
        "expiration_ms",
        "first_unstable_offset",
        "name",
    )

    def __init__(self, name: str, expiration_ms: int = 86_400_000) -> None:
        self.name = name
        self.expiration_ms = expiration_ms
        self._looked_ms: int | None = None  # time of the last search for idle producers
        self._producers: dict[int, ProducerStateEntry] = {}
        self._ongoing: dict[int, int] = {}  # first offset of each open transaction, ascending, to its producer id
        self._unreplicated: dict[int, int] = {}  # first offset to its marker, which is not below the high watermark
        self.first_unstable_offset: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def check_batch(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool = False,
    ) -> BatchMetadata | None:
        """Check a client's batch: return None if it may be appended, or the batch that it duplicates.

        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber or InvalidTxnState. An unknown producer may begin with any
        sequence, since its earlier batches may have been deleted or may have expired.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch == producer.epoch:
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
            if base_sequence != expected:
                before = producer.find_duplicate(epoch, base_sequence, last_offset_delta)
                if before is not None:
                    return before
                raise OutOfOrderSequenceNumber(
                    f"{self.name}: producer_id={producer_id} epoch={epoch} sent base_sequence={base_sequence}, "
                    f"expected {expected}"
                )
        else:
            self.check_epoch(producer_id, epoch)
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"{self.name}: producer_id={producer_id} sent base_sequence={base_sequence} first in its new "
                    f"epoch={epoch}, expected 0"
                )
        if producer.first_transaction_offset >= 0 and not is_transactional:
            raise InvalidTxnState(
                f"{self.name}: producer_id={producer_id} has an open transaction, and this batch is not part of it"
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Check that a coordinator may write for a producer. Raises InvalidProducerEpoch."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"{self.name}: producer_id={producer_id} epoch={epoch} is fenced by epoch={producer.epoch}"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Check that a marker may end a transaction. Raises InvalidProducerEpoch or TransactionCoordinatorFenced.

        Since transaction version 2 a marker has a newer epoch than its transaction. So a marker of the same epoch is
        late, and would end the next transaction; if none is open, it is a repeated marker and harmless. The highest
        epoch has no successor: a transaction in it is ended with the same epoch.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        is_strict = transaction_version >= STRICT_MARKERS_FROM and producer.first_transaction_offset >= 0
        if epoch < producer.epoch or (is_strict and epoch == producer.epoch < MAX_EPOCH):
            raise InvalidProducerEpoch(
                f"{self.name}: a marker of transaction version {transaction_version} for producer_id={producer_id} has "
                f"epoch={epoch}, the last one seen is {producer.epoch}"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"{self.name}: a marker for producer_id={producer_id} has coordinator epoch {coordinator_epoch}, "
                f"the last one seen is {producer.coordinator_epoch}"
            )

    def open_epoch(self, producer_id: int) -> int | None:
        """Return the epoch of the producer's open transaction; None if it has none.

        Not -1: a client may send -1 as its epoch, and must not be taken for the owner of an open transaction.
        """
        producer = self._producers.get(producer_id)
        return producer.epoch if producer is not None and producer.first_transaction_offset >= 0 else None

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        last_offset: int,
        timestamp: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Record a batch that is in the log."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.enter_epoch(epoch)
        last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE if base_sequence >= 0 else NO_SEQUENCE
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        producer.has_written = True
        producer.batches.append(BatchMetadata(last_sequence, last_offset, last_offset_delta, timestamp))
        if is_transactional and producer.first_transaction_offset < 0:
            first_offset = last_offset - last_offset_delta
            producer.first_transaction_offset = first_offset
            self._ongoing[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def ending(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """Return the index entry of the open transaction, if any, for a marker at `offset` that aborts it."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.first_transaction_offset < 0:
            return None
        first_offset = producer.first_transaction_offset
        next_open = next((first for first in self._ongoing if first != first_offset), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, next_open)

    def end_transaction(self, producer_id: int, epoch: int, marker: EndMarker, offset: int) -> None:
        """Record a marker in the log. Its transaction stays unstable until the high watermark passes the marker."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(producer_id, epoch)
        producer.enter_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        producer.has_written = True
        first_offset = producer.first_transaction_offset
        if first_offset >= 0:
            producer.first_transaction_offset = NO_OFFSET
            self._ongoing.pop(first_offset, None)
            self._unreplicated[first_offset] = offset

    def on_high_watermark_updated(self, offset: int) -> None:
        """Update the first unstable offset: transactions that ended below the high watermark `offset` are stable."""
        if self._unreplicated:
            self._unreplicated = {first: marker for first, marker in self._unreplicated.items() if marker >= offset}
            candidates = [*self._unreplicated, *([next(iter(self._ongoing))] if self._ongoing else [])]
            self.first_unstable_offset = min(candidates, default=None)

    def remove_expired(self, now_ms: int, at_most: int | None = None) -> int:
        """Forget producers idle for `expiration_ms` that have no open transaction; return how many.

        `now_ms` is monotonic. Only these calls measure idle time: it begins at the first call after a producer's last
        batch.
        """
        passed_ms = now_ms - self._looked_ms if self._looked_ms is not None else 0
        self._looked_ms = now_ms
        for producer in self._producers.values():
            producer.idle_ms = 0 if producer.has_written else producer.idle_ms + passed_ms
            producer.has_written = False
        expiring = (producer.producer_id for producer in self._producers.values() if self._is_expired(producer))
        expired = list(islice(expiring, at_most))
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def _is_expired(self, producer: ProducerStateEntry) -> bool:
        return producer.first_transaction_offset < 0 and producer.idle_ms >= self.expiration_ms

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.first_unstable_offset = None

    def snapshot(self, now_ms: int = 0) -> bytes:
        """Return the content of a snapshot file written at `now_ms`, wall time, directly after `remove_expired`."""
        return format_snapshot(self._producers.values(), now_ms, self.expiration_ms // SNAPSHOT_ACCURACY)

    def replay(self, header: BatchHeader, marker: EndMarker | None = None) -> AbortedTransaction | None:
        """Record a batch found in the log, a control batch with its marker (None: it ends no transaction).

        Return the transaction that it aborts.
        """
        if header.producer_id == NO_PRODUCER:
            return None
        if not header.is_control:
            self.update(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.last_offset,
                header.max_timestamp,
                is_transactional=header.is_transactional,
            )
            return None
        if marker is None:
            return None
        ended = self.ending(header.producer_id, header.base_offset)
        self.end_transaction(header.producer_id, header.producer_epoch, marker, header.base_offset)
        return None if marker.is_commit else ended

    def load(self, content: bytes, written_ms: int) -> None:
        """Replace the state with that of a snapshot, without the producers that had expired when it was written.

        `written_ms` is the time of writing. Its distance from now does not count: the clock may have been set since.
        Raises SnapshotError.
        """
        producers = parse_snapshot(content)
        self.clear()
        for producer in producers:
            producer.idle_ms = max(0, written_ms - producer.last_timestamp)
            producer.has_written = False
            if not self._is_expired(producer):
                self._producers[producer.producer_id] = producer
        first_offsets = {p.first_transaction_offset: p.producer_id for p in self if p.first_transaction_offset >= 0}
        self._ongoing = dict(sorted(first_offsets.items()))
        self.first_unstable_offset = next(iter(self._ongoing), None)
