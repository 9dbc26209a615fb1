"""Twelve bugs that a broker might have, made on purpose: the checker must find every one.

Each is a patch of the running classes, which nothing but a test can apply: `with planted("no-deduplication"): ...`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from klamm.broker.background import flusher
from klamm.broker.coordinator.group.classic.classic_group import ClassicGroup
from klamm.broker.coordinator.group.commits import Commits
from klamm.broker.coordinator.transaction.markers import MarkerWriter
from klamm.broker.coordinator.transaction.transactions import Transactions
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import KafkaError, OutOfOrderSequenceNumber
from klamm.storage.log.log import Log
from klamm.storage.log.producer_state_manager import ProducerStateEntry, ProducerStateManager
from klamm.storage.log.results import AppendResult
from klamm.storage.log.segment_list import SegmentList
from klamm.storage.recovery import loader

Patch = AbstractContextManager[Any]
RARELY: Final = 0.05


def ack_before_write(rng: random.Random) -> Iterator[Patch]:
    """The acknowledgement goes out at once, the write comes later; unless the broker dies in between."""
    append = Partition.append_records

    def early(self: Partition, records: memoryview | None, **options: Any) -> AppendResult:
        if rng.random() > RARELY or records is None or self.log is None:
            return append(self, records, **options)
        copy = memoryview(bytearray(records))

        def write() -> None:
            with contextlib.suppress(KafkaError, OSError):
                append(self, copy, **options)

        asyncio.get_running_loop().call_later(0.05, write)
        return AppendResult(self.log.log_end_offset, self.log.log_end_offset, -1, False)

    yield patch.object(Partition, "append_records", early)


def flush_skipped(rng: random.Random) -> Iterator[Patch]:
    """Requests do not wait for the disk."""
    yield patch.object(flusher, "_sync", dict)


def no_deduplication(rng: random.Random) -> Iterator[Patch]:
    """A batch that is sent again is appended again."""
    check = ProducerStateManager.check_batch

    def blind(self: ProducerStateManager, *what: Any, **options: Any) -> Any:
        found = check(self, *what, **options)
        return None if found is not None else found

    yield patch.object(ProducerStateManager, "check_batch", blind)


def no_sequence_check(rng: random.Random) -> Iterator[Patch]:
    """A batch may overtake the one before it."""
    check = ProducerStateManager.check_batch

    def blind(self: ProducerStateManager, *what: Any, **options: Any) -> Any:
        try:
            return check(self, *what, **options)
        except OutOfOrderSequenceNumber:
            return None

    yield patch.object(ProducerStateManager, "check_batch", blind)


def stable_offset_off_by_one(rng: random.Random) -> Iterator[Patch]:
    """The last stable offset is one after the first record of an open transaction."""
    stable = Log.last_stable_offset.fget
    assert stable is not None
    wrong = property(lambda self: min(stable(self) + 1, self.high_watermark))
    yield patch.object(Log, "last_stable_offset", wrong)


def transaction_index_dropped(rng: random.Random) -> Iterator[Patch]:
    """Fetch responses do not list aborted transactions."""
    yield patch.object(SegmentList, "aborted", lambda self, start, end: [])


def marker_twice(rng: random.Random) -> Iterator[Patch]:
    """A marker comes once more, when the next transaction has begun."""
    write = MarkerWriter.write

    def twice(self: MarkerWriter, markers: Any, coordinator_epoch: int, done: Any, now: Any) -> None:
        write(self, markers, coordinator_epoch, done, now)

        def again() -> None:
            for key in markers.partitions:
                partition = self._partitions.get_partition(*key)
                if partition is None or partition.log is None:
                    continue
                producer = partition.log.producers.get(markers.producer_id)
                if producer is not None and producer.first_transaction_offset >= 0:
                    with contextlib.suppress(KafkaError, OSError):
                        partition.append_marker(
                            markers.producer_id,
                            producer.epoch,
                            is_commit=markers.commit,
                            coordinator_epoch=coordinator_epoch,
                            transaction_version=0,
                            now_ms=now.wall_ms,
                        )

        asyncio.get_running_loop().call_later(0.01, again)

    yield patch.object(MarkerWriter, "write", twice)


def old_epoch_accepted(rng: random.Random) -> Iterator[Patch]:
    """A producer continues after its successor has started."""
    find, check, check_epoch = Transactions._find, ProducerStateManager.check_batch, ProducerStateManager.check_epoch

    def careless(self: Transactions, transactional_id: str, identity: Any) -> Any:
        entry = self._entries.get(transactional_id)
        if entry is not None and identity.producer_epoch < entry.current.producer_epoch:
            identity = identity._replace(producer_epoch=entry.current.producer_epoch)
        return find(self, transactional_id, identity)

    def blind(self: ProducerStateManager, producer_id: int, epoch: int, *what: Any, **options: Any) -> Any:
        producer: ProducerStateEntry | None = self.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return None
        return check(self, producer_id, epoch, *what, **options)

    def any_epoch(self: ProducerStateManager, producer_id: int, epoch: int) -> None:
        producer = self.get(producer_id)
        if producer is None or epoch >= producer.epoch:
            check_epoch(self, producer_id, epoch)

    yield patch.object(Transactions, "_find", careless)
    yield patch.object(ProducerStateManager, "check_batch", blind)
    yield patch.object(ProducerStateManager, "check_epoch", any_epoch)


def offsets_before_commit(rng: random.Random) -> Iterator[Patch]:
    """Offsets of a transaction count at once."""

    def early(self: Commits, producer: Any, key: Any, committed: Any) -> None:
        self._offsets.put(*key, committed)

    yield patch.object(Commits, "_stored", early)


def stale_generation(rng: random.Random) -> Iterator[Patch]:
    """A member commits after its group has gone on without it."""
    yield patch.object(ClassicGroup, "check_commit", lambda self, *what, **options: None)


def offset_twice(rng: random.Random) -> Iterator[Patch]:
    """The same offset is given to two batches."""
    append = Log.append_as_leader

    def careless(self: Log, *what: Any, **options: Any) -> AppendResult:
        if rng.random() < RARELY and self.log_end_offset > self.log_start_offset and not self.name.startswith("__"):
            self.local.log_end_offset -= 1
            self.high_watermark = min(self.high_watermark, self.log_end_offset)
        return append(self, *what, **options)

    yield patch.object(Log, "append_as_leader", careless)


def truncation_in_the_middle(rng: random.Random) -> Iterator[Patch]:
    """Recovery cuts off more than the damaged batches."""
    scan_segment = loader.scan_segment

    def short(segment: Any, next_offset: int, *what: Any, **options: Any) -> Any:
        scan = scan_segment(segment, next_offset, *what, **options)
        last = [(position, head) for position, head in segment.batch_headers() if head.base_offset >= next_offset][-1:]
        if last and not segment.directory.name.startswith("__") and segment.size_bytes == scan.end_position:
            position, head = last[0]
            return replace(scan, end_position=position, next_offset=head.base_offset, problem="planted")
        return scan

    yield patch.object(loader, "scan_segment", short)
    yield patch.object(loader, "find_batch_after", lambda *_: None)


BUGS: dict[str, Callable[[random.Random], Iterator[Patch]]] = {
    "ack-before-write": ack_before_write,
    "flush-skipped": flush_skipped,
    "no-deduplication": no_deduplication,
    "no-sequence-check": no_sequence_check,
    "stable-offset-off-by-one": stable_offset_off_by_one,
    "transaction-index-dropped": transaction_index_dropped,
    "marker-twice": marker_twice,
    "old-epoch-accepted": old_epoch_accepted,
    "offsets-before-commit": offsets_before_commit,
    "stale-generation": stale_generation,
    "offset-twice": offset_twice,
    "truncation-in-the-middle": truncation_in_the_middle,
}


@contextlib.contextmanager
def planted(name: str, rng: random.Random) -> Iterator[None]:
    """The broker has this bug inside the block."""
    with ExitStack() as stack:
        for change in BUGS[name](rng):
            stack.enter_context(change)
        yield
