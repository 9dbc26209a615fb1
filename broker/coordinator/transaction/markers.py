"""End transaction markers on their way into the partitions of a transaction.

A marker counts when it is as durable as acks=all makes it. A partition that is gone needs none; one that has seen a
newer epoch of the producer has been told by somebody else; one that is offline is left over, and tried again later.
Offsets that a group committed in the transaction count, or are dropped, once their partition has its marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from klamm.broker.coordinator.runtime.machine import Now
from klamm.broker.coordinator.transaction.transaction import TopicPartition
from klamm.broker.coordinator.transaction.transactions import Markers
from klamm.broker.metadata.image import OFFSETS_TOPIC
from klamm.broker.turns import MOST, Tasks, in_turns
from klamm.protocol.errors import InvalidProducerEpoch, KafkaError, TransactionCoordinatorFenced

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager

log = logging.getLogger(__name__)

Unmarked = Callable[[frozenset[TopicPartition], Now], None]


class _Round:
    """Markers that are being written."""

    __slots__ = ("coordinator_epoch", "done", "markers", "unmarked", "waiting")

    def __init__(self, markers: Markers, coordinator_epoch: int, done: Unmarked) -> None:
        self.markers = markers
        self.coordinator_epoch = coordinator_epoch
        self.done = done
        self.unmarked: set[TopicPartition] = set()
        self.waiting: dict[TopicPartition, asyncio.Future[None]] = {}


class EndsTransactions(Protocol):
    """Who keeps offsets that wait for the outcome of a transaction."""

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, *, commit: bool) -> None: ...


class MarkerWriter:
    """Writes markers into the partitions of this broker."""

    def __init__(
        self, partitions: PartitionManager, flusher: Flusher, offsets: EndsTransactions, now: Callable[[], Now]
    ) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._offsets = offsets
        self._now = now
        self._tasks = Tasks()

    def write(self, markers: Markers, coordinator_epoch: int, done: Unmarked, now: Now) -> None:
        """Write all that can be written, many in turns; `done` is given the partitions that lack their marker still."""
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
        """Stop; the next start goes on."""
        self._tasks.cancel()

    def _write(self, key: TopicPartition, round_: _Round, now: Now) -> None:
        markers = round_.markers
        partition = self._partitions.get(*key)
        if partition is None:
            return  # deleted
        try:
            self._append(partition, markers, round_.coordinator_epoch, now)
        except KafkaError as error:
            log.warning("%s: no marker of %s yet: %s", partition.name, markers.transactional_id, error.message)
            round_.unmarked.add(key)
            return
        except Exception:
            log.exception("%s: no marker of %s yet", partition.name, markers.transactional_id)
            round_.unmarked.add(key)
            return
        if partition.flush_pending:
            round_.waiting[key] = self._flusher.flush(partition)
        else:
            self._marked(key, markers)

    def _settle(self, round_: _Round, now: Now) -> None:
        """Call `done` when what was written is durable."""
        markers, unmarked, waiting, done = round_.markers, round_.unmarked, round_.waiting, round_.done
        if not waiting:
            done(frozenset(unmarked), now)
            return
        left = set(waiting)

        def flushed(key: TopicPartition, future: asyncio.Future[None]) -> None:
            left.discard(key)
            if future.cancelled() or future.exception() is not None:
                unmarked.add(key)
            else:
                self._marked(key, markers)
            if not left:
                done(frozenset(unmarked), self._now())

        for key, future in waiting.items():
            future.add_done_callback(partial(flushed, key))

    def _append(self, partition: Partition, markers: Markers, coordinator_epoch: int, now: Now) -> None:
        try:
            partition.append_marker(
                markers.producer_id,
                markers.producer_epoch,
                is_commit=markers.commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=markers.version,
                now_ms=now.wall_ms,
            )
        except (InvalidProducerEpoch, TransactionCoordinatorFenced) as error:
            log.info("%s: needs no marker of %s: %s", partition.name, markers.transactional_id, error.message)

    def _marked(self, key: TopicPartition, markers: Markers) -> None:
        topic, index = key
        if topic == OFFSETS_TOPIC:
            self._offsets.transaction_ended(index, markers.producer_id, markers.producer_epoch, commit=markers.commit)
