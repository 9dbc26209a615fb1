"""The writer of a coordinator's records.

Each call appends one batch at once, in order. If the batch cannot be encoded or appended, for any reason, nothing of it
is in the log and the write fails with an error code. ``done`` is called when the batch is as durable as acks=all makes
it: at once, or after the flush that ``flush.messages`` asks for. Within a partition the calls come in the order of the
appends, so memory and log never disagree on which commit is the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from klamm.broker.coordinator.runtime.types import Done, Now, Records
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.partitions.partition import Partition
    from klamm.storage.log.transaction_verification import VerificationGuard

log = logging.getLogger(__name__)


NO_PRODUCER_ID = NO_EPOCH = -1


class TransactionalProducer(NamedTuple):
    """The producer of the records' transaction. ``guard`` comes from `Partition.begin_verification`."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


def nothing() -> None:
    """Do nothing: the caller needs no notice of the append."""


class _Entry:
    """An append that waits for its own flush, or for that of an earlier append."""

    __slots__ = ("code", "done")

    def __init__(self, done: Done) -> None:
        self.done = done
        self.code: ErrorCode | None = None


class CoordinatorWriter:
    """Appends records to the partitions of the coordinators' internal topics led by this broker."""

    def __init__(self, flusher: Flusher, now: Callable[[], Now], codec: Codec) -> None:
        self._flusher = flusher
        self._now = now
        self._codec = codec
        self._waiting: dict[Partition, deque[_Entry]] = {}

    def append(
        self,
        partition: Partition,
        records: Records,
        done: Done,
        now: Now,
        *,
        appended: Callable[[], None] = nothing,
        producer: TransactionalProducer | None = None,
    ) -> None:
        """Append one batch. ``appended`` is called as soon as it is in the log. A failure of the append calls ``done``
        at once. With a ``producer``, the batch is part of that producer's transaction.
        """
        try:
            self._append(partition, records, now, producer)
        except KafkaError as error:
            log.error("%s: append failed: %s", partition.name, error.message)
            done(error.code, now)
            return
        except Exception:
            log.exception("%s: append failed", partition.name)
            done(ErrorCode.UNKNOWN_SERVER_ERROR, now)
            return
        appended()
        queue = self._waiting.get(partition)
        if queue is None and not partition.flush_pending:
            done(ErrorCode.NONE, now)
            return
        entry = _Entry(done)
        self._waiting.setdefault(partition, deque()).append(entry)
        if partition.flush_pending:
            self._flusher.flush(partition).add_done_callback(lambda flushed: self._settle(partition, entry, flushed))
        else:
            entry.code = ErrorCode.NONE  # on the disk, but an earlier append has not completed yet

    def _append(self, partition: Partition, records: Records, now: Now, producer: TransactionalProducer | None) -> None:
        made = records()
        assert made
        batch = encode_batch(
            [Record(offset, now.wall_ms, key, value) for offset, (key, value) in enumerate(made)],
            codec=self._codec,
            producer_id=producer.producer_id if producer is not None else NO_PRODUCER_ID,
            producer_epoch=producer.producer_epoch if producer is not None else NO_EPOCH,
            transactional=producer is not None,
        )
        partition.append_coordinator_records(
            batch, now_ms=now.wall_ms, guard=producer.guard if producer is not None else None
        )

    def _settle(self, partition: Partition, entry: _Entry, flushed: asyncio.Future[None]) -> None:
        error = None if flushed.cancelled() else flushed.exception()
        if error is None:
            entry.code = ErrorCode.NONE
        else:
            entry.code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        queue = self._waiting[partition]
        while queue and queue[0].code is not None:
            head = queue.popleft()
            assert head.code is not None
            if not queue:
                del self._waiting[partition]
            try:
                head.done(head.code, self._now())
            except Exception:  # later entries still need their `done`
                log.exception("%s: the completion of an append failed", partition.name)
            if partition not in self._waiting:
                return
