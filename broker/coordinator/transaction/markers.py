"""Writes end transaction markers to the partitions of a transaction.

A marker counts when it is as durable as acks=all makes it. A deleted partition needs no marker. A partition that has
seen a newer epoch of the producer has its marker from another coordinator. An offline partition is left over and tried
again later. Offsets that a group committed in the transaction are applied or dropped once their partition has its
marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from klamm.broker.coordinator.runtime.types import Now
from klamm.broker.coordinator.transaction.transaction import Markers, TopicPartition
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.broker.turns import MOST, Tasks, in_turns
from klamm.protocol.errors import InvalidProducerEpoch, KafkaError, TransactionCoordinatorFenced

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager

log = logging.getLogger(__name__)

Unmarked = Callable[[frozenset[TopicPartition], Now], None]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a producer's transaction ends, as decided by the coordinator of that epoch."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class _Round:
    """The markers of one `write` call, while they are being written."""

    __slots__ = ("done", "ending", "markers", "unmarked", "waiting")

    def __init__(self, markers: Markers, coordinator_epoch: int, done: Unmarked) -> None:
        self.markers = markers
        self.ending = Ending(
            markers.producer_id, markers.producer_epoch, markers.commit, coordinator_epoch, markers.version
        )
        self.done = done
        self.unmarked: set[TopicPartition] = set()
        self.waiting: dict[TopicPartition, asyncio.Future[None]] = {}


class EndsTransactions(Protocol):
    """Holds offsets that wait for the outcome of a transaction."""

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, *, commit: bool) -> None: ...


class MarkerWriter:
    """Writes markers to the partitions of this broker."""

    def __init__(
        self, partitions: PartitionManager, flusher: Flusher, offsets: EndsTransactions, now: Callable[[], Now]
    ) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._offsets = offsets
        self._now = now
        self._tasks = Tasks()

    def write(self, markers: Markers, coordinator_epoch: int, done: Unmarked, now: Now) -> None:
        """Write all markers that can be written; many are spread over turns. `done` receives the partitions still
        without one.
        """
        round_ = _Round(markers, coordinator_epoch, done)
        if len(markers.partitions) > MOST:
            self._tasks.start(self._write_in_turns(round_))
            return
        for key in sorted(markers.partitions):
            self._write(key, round_, now)
        self._settle(round_, now)

    async def _write_in_turns(self, round_: _Round) -> None:
        async for key in in_turns(sorted(round_.markers.partitions)):
            self._write(key, round_, self._now())
        self._settle(round_, self._now())

    def close(self) -> None:
        """Stop. The next start writes the remaining markers."""
        self._tasks.cancel()

    def append(self, partition: Partition, ending: Ending, wall_ms: int) -> asyncio.Future[None] | None:
        """Append the marker. Pending group offsets are decided once it is durable.

        Returns the flush that it waits for, or None if it is durable already. Raises what `Partition.append_marker`
        does.
        """
        self._append(partition, ending, wall_ms)
        return self._when_durable(partition, ending)

    def _write(self, key: TopicPartition, round_: _Round, now: Now) -> None:
        markers = round_.markers
        partition = self._partitions.get_partition(*key)
        if partition is None:
            return  # deleted
        try:
            self._append(partition, round_.ending, now.wall_ms)
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            log.info("%s: needs no marker for %s: %s", partition.name, markers.transactional_id, error.message)
        except KafkaError as error:
            log.warning("%s: no marker for %s yet: %s", partition.name, markers.transactional_id, error.message)
            round_.unmarked.add(key)
            return
        except Exception:
            log.exception("%s: no marker for %s yet", partition.name, markers.transactional_id)
            round_.unmarked.add(key)
            return
        flushed = self._when_durable(partition, round_.ending)
        if flushed is not None:
            round_.waiting[key] = flushed

    def _settle(self, round_: _Round, now: Now) -> None:
        """Call `done` when the appended markers are durable."""
        unmarked, waiting, done = round_.unmarked, round_.waiting, round_.done
        if not waiting:
            done(frozenset(unmarked), now)
            return
        left = set(waiting)

        def flushed(key: TopicPartition, future: asyncio.Future[None]) -> None:
            left.discard(key)
            if _has_failed(future):
                unmarked.add(key)
            if not left:
                done(frozenset(unmarked), self._now())

        for key, future in waiting.items():
            future.add_done_callback(partial(flushed, key))

    def _append(self, partition: Partition, ending: Ending, wall_ms: int) -> None:
        partition.append_marker(
            ending.producer_id,
            ending.producer_epoch,
            is_commit=ending.is_commit,
            coordinator_epoch=ending.coordinator_epoch,
            transaction_version=ending.transaction_version,
            now_ms=wall_ms,
        )

    def _when_durable(self, partition: Partition, ending: Ending) -> asyncio.Future[None] | None:
        """Decide the offsets that waited for the marker, at once or after the flush that is returned."""
        if not partition.flush_pending:
            self._decide_offsets(partition, ending)
            return None
        flushed = self._flusher.flush(partition)

        def done(future: asyncio.Future[None]) -> None:
            if not _has_failed(future):
                self._decide_offsets(partition, ending)

        flushed.add_done_callback(done)
        return flushed

    def _decide_offsets(self, partition: Partition, ending: Ending) -> None:
        if partition.topic == OFFSETS_TOPIC:
            self._offsets.transaction_ended(
                partition.index, ending.producer_id, ending.producer_epoch, commit=ending.is_commit
            )


def _has_failed(future: asyncio.Future[None]) -> bool:
    return future.cancelled() or future.exception() is not None
