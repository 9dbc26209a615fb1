"""What each idempotent producer did last in a partition: no batch enters twice, none out of order.

A producer numbers its records per partition with int32 sequences that wrap around to 0. For each producer the last
five batches are kept (a client has at most five in flight): a batch that is among them is a duplicate and is answered
with the offsets it got the first time.

The state of everything below an offset is written to `<offset>.snapshot` when a segment is rolled and at a clean
close, in Apache Kafka's format (`ProducerSnapshot.json`; big endian):
    int16 version = 1, uint32 crc32c of everything behind it, int32 count, then per producer
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch,
    int64 its timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1
Only the newest batch of each producer is in it. A snapshot that is missing or wrong is rebuilt from the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from klamm.protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.crc import crc32c

RETAINED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_EPOCH = -1

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
        self.first_transaction_offset = -1
        self.recalled = False

    def recall(self, heads: Iterable[BatchHeader]) -> bool:
        """Fill the retained batches up from `heads`, in their order; whether there are more of them now. Works once."""
        self.recalled = True
        found = [
            RetainedBatch(head.last_sequence, head.last_offset, head.last_offset_delta, head.max_timestamp)
            for head in heads
            if (head.producer_id, head.producer_epoch) == (self.producer_id, self.epoch) and head.base_sequence >= 0
        ][-RETAINED_BATCHES:]
        if len(found) <= len(self.batches) or found[-1] != self.batches[-1]:
            return False
        self.batches = deque(found, maxlen=RETAINED_BATCHES)
        return True


def increment_sequence(sequence: int, by: int) -> int:
    return (sequence + by) & MAX_SEQUENCE


def decrement_sequence(sequence: int, by: int) -> int:
    return (sequence - by) & MAX_SEQUENCE


class ProducerState:
    """The producers of one partition. Not aware of files."""

    __slots__ = ("_producers", "expiration_ms", "name")

    def __init__(self, name: str, expiration_ms: int = 86_400_000) -> None:
        self.name = name
        self.expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int) -> RetainedBatch | None:
        """Whether a producer's batch may be appended: None, or the batch of which it is a duplicate.

        Raises InvalidProducerEpoch or OutOfOrderSequenceNumber. A producer that is not known may begin anywhere, since
        what it wrote before may have been deleted or may have expired.
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch == producer.epoch:
            expected = (producer.last_sequence + 1) & MAX_SEQUENCE
            if base_sequence == expected:
                return None
            last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE
            for batch in producer.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == last_offset_delta:
                    return batch
            raise OutOfOrderSequenceNumber(
                f"{self.name}: producer_id={producer_id} epoch={epoch} sent base_sequence={base_sequence}, "
                f"expected {expected}"
            )
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"{self.name}: producer_id={producer_id} epoch={epoch} is fenced by epoch={producer.epoch}"
            )
        if base_sequence != 0:
            raise OutOfOrderSequenceNumber(
                f"{self.name}: producer_id={producer_id} sent base_sequence={base_sequence} first in its new "
                f"epoch={epoch}, expected 0"
            )
        return None

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        last_offset: int,
        timestamp: int,
        seen_ms: int = -1,
    ) -> None:
        """Take note of a batch that is in the log."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        producer.seen_ms = seen_ms
        producer.batches.append(RetainedBatch(last_sequence, last_offset, last_offset_delta, timestamp))

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

    def snapshot(self) -> bytes:
        """The content of a snapshot file."""
        body = bytearray(SNAPSHOT_COUNT.pack(len(self._producers)))
        for producer in self._producers.values():
            last = (
                producer.batches[-1] if producer.batches else RetainedBatch(NO_SEQUENCE, -1, 0, producer.last_timestamp)
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

    def replay(self, head: BatchHeader) -> None:
        """Take note of a batch that was found in the log."""
        if head.producer_id != NO_PRODUCER and head.base_sequence != NO_SEQUENCE:
            self.update(
                head.producer_id,
                head.producer_epoch,
                head.base_sequence,
                head.last_offset_delta,
                head.last_offset,
                head.max_timestamp,
            )

    def load(self, content: bytes, now_ms: int) -> None:
        """Replace the state by that of a snapshot, without the producers that have expired. Raises SnapshotError."""
        producers = parse_snapshot(content)
        self.clear()
        for producer in producers:
            if producer.first_transaction_offset >= 0 or now_ms - producer.last_timestamp < self.expiration_ms:
                self._producers[producer.producer_id] = producer


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
        if last_sequence != NO_SEQUENCE:
            producer.batches.append(RetainedBatch(last_sequence, last_offset, delta, timestamp))
        producers.append(producer)
    return producers
