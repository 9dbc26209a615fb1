"""The state of one producer id in a partition: its last batches, its epoch, its open transaction; and snapshot files.

The state of everything below an offset is written to `<offset>.snapshot` when a segment is rolled and at a clean close,
in Apache Kafka's format (`ProducerSnapshot.json`; big endian):
    int16 version = 1, uint32 crc32c of everything after it, int32 count, then per producer
    int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch,
    int64 its timestamp, int32 coordinator epoch, int64 first offset of the open transaction or -1
A snapshot has only the newest batch of each producer (-1, -1 and 0 for a producer known only by a marker). If a batch
is much older than its append, the time of the append replaces its timestamp. The timestamp and the time at which the
file was written give the idle time of the producer; Apache Kafka computes it the same way. A missing or wrong snapshot
is rebuilt from the batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from struct import Struct
from typing import NamedTuple

from klamm.protocol.records.batch import BatchHeader
from klamm.protocol.records.crc import crc32c

RETAINED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_PRODUCER = -1
NO_SEQUENCE = -1
NO_EPOCH = -1
NO_OFFSET = -1

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = Struct(">hI")  # version, crc
SNAPSHOT_COUNT = Struct(">i")
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")


class SnapshotError(ValueError):
    """The bytes are not a producer snapshot."""


class BatchMetadata(NamedTuple):
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


class ProducerStateEntry:
    """The state of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "first_transaction_offset",
        "has_written",
        "idle_ms",
        "last_sequence",
        "last_timestamp",
        "producer_id",
        "recalled",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[BatchMetadata] = deque(maxlen=RETAINED_BATCHES)
        self.last_sequence = NO_SEQUENCE
        self.last_timestamp = -1
        self.has_written = True  # since the last search for idle producers
        self.idle_ms = 0  # idle time at that search; not from timestamps, which may be arbitrary
        self.coordinator_epoch = -1
        self.first_transaction_offset = NO_OFFSET
        self.recalled = False

    def enter_epoch(self, epoch: int) -> None:
        """Begin an epoch: sequences restart with each one."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.last_sequence = NO_SEQUENCE

    def find_duplicate(self, epoch: int, base_sequence: int, last_offset_delta: int) -> BatchMetadata | None:
        """Return the retained batch that has these values, so that a batch with them is a duplicate."""
        if epoch == self.epoch and base_sequence >= 0:
            last_sequence = (base_sequence + last_offset_delta) & MAX_SEQUENCE
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == last_offset_delta:
                    return batch
        return None

    def recall(self, batch_headers: Iterable[BatchHeader]) -> bool:
        """Complete the retained batches from `batch_headers`, in log order; return whether there are more now.

        It works once.
        """
        self.recalled = True
        found = [
            BatchMetadata(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            for header in batch_headers
            if (header.producer_id, header.producer_epoch) == (self.producer_id, self.epoch)
            and header.base_sequence >= 0
        ][-RETAINED_BATCHES:]
        if not self.batches or len(found) <= len(self.batches) or found[-1] != self.batches[-1]:
            return False
        self.batches = deque(found, maxlen=RETAINED_BATCHES)
        return True


def decrement_sequence(sequence: int, by: int) -> int:
    return (sequence - by) & MAX_SEQUENCE


def format_snapshot(producers: Collection[ProducerStateEntry], now_ms: int = 0, tolerance_ms: int = 0) -> bytes:
    """Return the content of a snapshot file that is written at `now_ms`, wall time.

    A timestamp that is more than `tolerance_ms` older than its append is replaced.
    """
    body = bytearray(SNAPSHOT_COUNT.pack(len(producers)))
    for producer in producers:
        timestamp, append_ms = producer.last_timestamp, now_ms - producer.idle_ms
        if append_ms - timestamp > tolerance_ms > 0:
            timestamp = append_ms
        last = (
            producer.batches[-1]
            if producer.batches
            else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, producer.last_timestamp)
        )
        body += SNAPSHOT_ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            timestamp,
            producer.coordinator_epoch,
            producer.first_transaction_offset,
        )
    return SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + bytes(body)


def parse_snapshot(content: bytes) -> list[ProducerStateEntry]:
    """Return the producers in a snapshot file, each with at most one retained batch. Raises SnapshotError."""
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
        producer = ProducerStateEntry(producer_id, epoch)
        producer.last_sequence = last_sequence
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.first_transaction_offset = transaction
        if last_offset != NO_OFFSET:
            producer.batches.append(BatchMetadata(last_sequence, last_offset, delta, timestamp))
        producers.append(producer)
    return producers
