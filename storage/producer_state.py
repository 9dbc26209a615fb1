"""What each idempotent producer did last in a partition: no batch enters twice, none out of order.

A producer numbers its records per partition with int32 sequences that wrap around to 0. For each producer the last
five batches are kept (a client has at most five in flight): a batch that is among them is a duplicate and is answered
with the offsets it got the first time. What a coordinator writes for a producer (offsets of a group) has no sequence:
its epoch counts, and that it is part of a transaction.

Transactions: the first transactional batch of a producer begins one, its end transaction marker ends it. The first
unstable offset, where the last stable offset stops, is the first offset of the oldest transaction that is open, or
whose marker is not below the high watermark yet.

The state of everything below an offset is written to `<offset>.snapshot` when a segment is rolled and at a clean
close, in Apache Kafka's format (`ProducerSnapshot.json`; big endian):
    int16 version = 1, uint32 crc32c of everything behind it, int32 count, then per producer
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch,
    int64 its timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1
Only the newest batch of each producer is in it (-1, -1 and 0 for one of which only a marker is known). A snapshot that
is missing or wrong is rebuilt from the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from klamm.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.control import EndMarker
from klamm.protocol.records.crc import crc32c
from klamm.storage.transaction_index import AbortedTransaction

RETAINED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_EPOCH = -1
NO_OFFSET = -1
STRICT_MARKERS_FROM = 2
"""The transaction version from which every transaction ends with an epoch of its own (KIP-890, KIP-1228)."""

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = Struct(">hI")  # version, crc
SNAPSHOT_COUNT = Struct(">i")
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")


class SnapshotError(ValueError):
    """The bytes are not a producer snapshot."""


class RetainedBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """The state of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "first_transaction_offset",
        "last_sequence",
        "last_timestamp",
        "producer_id",
        "recalled",
        "seen_ms",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[RetainedBatch] = deque(maxlen=RETAINED_BATCHES)
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = -1
        self.seen_ms = -1  # when the broker saw the last batch, which may bear any timestamp
        self.coordinator_epoch = -1
        self.first_transaction_offset = NO_OFFSET
        self.recalled = False

    def enter_epoch(self, epoch: int) -> None:
        """Sequences begin anew with each epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def find(self, epoch: int, base_sequence: int, last_offset_delta: int) -> RetainedBatch | None:
        """The batch of which one with these is a duplicate."""
        if epoch == self.epoch and base_sequence >= 0:
            last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == last_offset_delta:
                    return batch
        return None

    def recall(self, heads: Iterable[BatchHeader]) -> bool:
        """Fill the retained batches up from `heads`, in their order; whether there are more of them now. Works once."""
        self.recalled = True
        found = [
            RetainedBatch(head.last_sequence, head.last_offset, head.last_offset_delta, head.max_timestamp)
            for head in heads
            if (head.producer_id, head.producer_epoch) == (self.producer_id, self.epoch) and head.base_sequence >= 0
        ][-RETAINED_BATCHES:]
        if not self.batches or len(found) <= len(self.batches) or found[-1] != self.batches[-1]:
            return False
        self.batches = deque(found, maxlen=RETAINED_BATCHES)
        return True


def increment_sequence(sequence: int, by: int) -> int:
    return (sequence + by) & MAX_SEQUENCE


def decrement_sequence(sequence: int, by: int) -> int:
    return (sequence - by) & MAX_SEQUENCE


class ProducerState:
    """The producers of one partition. Not aware of files."""

    __slots__ = ("_decided", "_ongoing", "_producers", "expiration_ms", "first_unstable_offset", "name")

    def __init__(self, name: str, expiration_ms: int = 86_400_000) -> None:
        self.name = name
        self.expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}  # first offset of an open transaction, ascending: its producer id
        self._decided: dict[int, int] = {}  # first offset: the marker, which is not below the high watermark
        self.first_unstable_offset: int | None = None

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool = False,
    ) -> RetainedBatch | None:
        """Whether a client's batch may be appended: None, or the batch of which it is a duplicate.

        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber or InvalidTxnState. A producer that is not known may begin
        anywhere, since what it wrote before may have been deleted or may have expired.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch == producer.epoch:
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
            if base_sequence != expected:
                before = producer.find(epoch, base_sequence, last_offset_delta)
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
        """Whether a coordinator may write for a producer. Raises InvalidProducerEpoch."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"{self.name}: producer_id={producer_id} epoch={epoch} is fenced by epoch={producer.epoch}"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Whether a transaction may be ended. Raises InvalidProducerEpoch or TransactionCoordinatorFenced.

        Since transaction version 2 a marker has a newer epoch than the transaction. One of the same epoch, then, is
        late and would end the next transaction; where none is open it is one that is sent again, and is harmless.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        is_strict = transaction_version >= STRICT_MARKERS_FROM and producer.first_transaction_offset >= 0
        if epoch < producer.epoch or (is_strict and epoch == producer.epoch):
            raise InvalidProducerEpoch(
                f"{self.name}: a marker of transaction version {transaction_version} for producer_id={producer_id} has "
                f"epoch={epoch}, the last one seen is {producer.epoch}"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"{self.name}: a marker for producer_id={producer_id} has coordinator epoch {coordinator_epoch}, "
                f"the last one seen is {producer.coordinator_epoch}"
            )

    def is_in_transaction(self, producer_id: int) -> bool:
        producer = self._producers.get(producer_id)
        return producer is not None and producer.first_transaction_offset >= 0

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        last_offset: int,
        timestamp: int,
        seen_ms: int = -1,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Take note of a batch that is in the log."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.enter_epoch(epoch)
        last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE if base_sequence >= 0 else NO_SEQUENCE
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        producer.seen_ms = seen_ms
        producer.batches.append(RetainedBatch(last_sequence, last_offset, last_offset_delta, timestamp))
        if is_transactional and producer.first_transaction_offset < 0:
            first_offset = last_offset - last_offset_delta
            producer.first_transaction_offset = first_offset
            self._ongoing[first_offset] = producer_id
            if self.first_unstable_offset is None:
                self.first_unstable_offset = first_offset

    def ending(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """What a transaction index has to say of the open transaction, if one is, that a marker at `offset` aborts."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.first_transaction_offset < 0:
            return None
        first_offset = producer.first_transaction_offset
        next_open = next((first for first in self._ongoing if first != first_offset), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, next_open)

    def end_transaction(self, producer_id: int, epoch: int, marker: EndMarker, offset: int, seen_ms: int = -1) -> None:
        """Take note of a marker that is in the log. What it ends is unstable until the high watermark has passed."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        producer.enter_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = marker.timestamp
        producer.seen_ms = seen_ms
        first_offset = producer.first_transaction_offset
        if first_offset >= 0:
            producer.first_transaction_offset = NO_OFFSET
            self._ongoing.pop(first_offset, None)
            self._decided[first_offset] = offset

    def decide_below(self, offset: int) -> None:
        """The high watermark, or the log start, is at `offset`: what ended below it is stable."""
        if self._decided:
            self._decided = {first: marker for first, marker in self._decided.items() if marker >= offset}
            candidates = [*self._decided, *([next(iter(self._ongoing))] if self._ongoing else [])]
            self.first_unstable_offset = min(candidates, default=None)

    def remove_expired(self, now_ms: int) -> int:
        """Forget producers that were silent for `expiration_ms` and have no open transaction."""
        expired = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.first_transaction_offset < 0
            and now_ms - max(producer.last_timestamp, producer.seen_ms) >= self.expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._decided.clear()
        self.first_unstable_offset = None

    def snapshot(self) -> bytes:
        """The content of a snapshot file."""
        body = bytearray(SNAPSHOT_COUNT.pack(len(self._producers)))
        for producer in self._producers.values():
            last = (
                producer.batches[-1]
                if producer.batches
                else RetainedBatch(NO_SEQUENCE, NO_OFFSET, 0, producer.last_timestamp)
            )
            body += SNAPSHOT_ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.first_transaction_offset,
            )
        return SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + bytes(body)

    def replay(self, head: BatchHeader, marker: EndMarker | None = None) -> AbortedTransaction | None:
        """Take note of a batch that was found in the log, a control batch with its marker (None: it says nothing).

        Returns the transaction that it aborts.
        """
        if head.producer_id == NO_PRODUCER:
            return None
        if not head.is_control:
            self.update(
                head.producer_id,
                head.producer_epoch,
                head.base_sequence,
                head.last_offset_delta,
                head.last_offset,
                head.max_timestamp,
                is_transactional=head.is_transactional,
            )
            return None
        if marker is None:
            return None
        ended = self.ending(head.producer_id, head.base_offset)
        self.end_transaction(head.producer_id, head.producer_epoch, marker, head.base_offset)
        return None if marker.is_commit else ended

    def load(self, content: bytes, now_ms: int) -> None:
        """Replace the state by that of a snapshot, without the producers that have expired. Raises SnapshotError."""
        producers = parse_snapshot(content)
        self.clear()
        for producer in producers:
            if producer.first_transaction_offset >= 0 or now_ms - producer.last_timestamp < self.expiration_ms:
                self._producers[producer.producer_id] = producer
        first_offsets = {p.first_transaction_offset: p.producer_id for p in self if p.first_transaction_offset >= 0}
        self._ongoing = dict(sorted(first_offsets.items()))
        self.first_unstable_offset = next(iter(self._ongoing), None)


def parse_snapshot(content: bytes) -> list[Producer]:
    """The producers in a snapshot file, each with at most one retained batch. Raises SnapshotError."""
    head_bytes = SNAPSHOT_HEAD.size + SNAPSHOT_COUNT.size
    if len(content) < head_bytes:
        raise SnapshotError(f"{len(content)} bytes are too few for a snapshot")
    version, crc = SNAPSHOT_HEAD.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise SnapshotError(f"version {version} is not {SNAPSHOT_VERSION}")
    if crc32c(content[SNAPSHOT_HEAD.size :]) != crc:
        raise SnapshotError("wrong CRC")
    (count,) = SNAPSHOT_COUNT.unpack_from(content, SNAPSHOT_HEAD.size)
    if len(content) != head_bytes + count * SNAPSHOT_ENTRY.size:
        raise SnapshotError(f"{len(content)} bytes do not fit {count} producers")
    producers = []
    for fields in SNAPSHOT_ENTRY.iter_unpack(content[head_bytes:]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = fields
        producer = Producer(producer_id, epoch)
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.first_transaction_offset = transaction
        if last_offset != NO_OFFSET:
            producer.batches.append(RetainedBatch(last_sequence, last_offset, delta, timestamp))
        producers.append(producer)
    return producers
