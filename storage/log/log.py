"""The log of one partition: the meaning of its batches, above the segments that hold them (`local_log.py`).

An append checks the producer's sequence, stamps base offset and leader epoch in place, writes the batch at the end of
the active segment, and updates the indexes: one call, and no system call but the write. A read touches no records
either: its result is a region of a file.

The log knows producers and their transactions, leader epochs, the log start and the high watermark. `local` holds
everything that concerns only files: the segments, the log end, flushes, whether the log is offline.

Offsets: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`.

After a crash: see `recovery/loader.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError, OffsetOutOfRange
from klamm.protocol.records.batch import BatchHeader, stamp
from klamm.storage import paths
from klamm.storage.filesystem import Buffer, describe, replace_file, storage_errors
from klamm.storage.log import timestamps
from klamm.storage.log.index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP
from klamm.storage.log.leader_epochs import LeaderEpochCache
from klamm.storage.log.local_log import LocalLog
from klamm.storage.log.producer_check import check_producer
from klamm.storage.log.producer_state_entry import NO_PRODUCER
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.replay import reload_producers, replay
from klamm.storage.log.results import NOTHING, AppendResult, LogRead, appended
from klamm.storage.log.segment import Segment
from klamm.storage.log.transaction_index import AbortedTransaction
from klamm.storage.log.transaction_verification import TransactionVerifications, VerificationGuard

if TYPE_CHECKING:
    from klamm.protocol.records.control import EndMarker
    from klamm.protocol.records.validate import ValidBatch

logger = logging.getLogger(__name__)


class Log:
    """The log of one partition. Made by `open_log` (`recovery/loader.py`)."""

    __slots__ = (
        "_snapshot_offset",
        "before_truncate",
        "high_watermark",
        "leader_epochs",
        "local",
        "log_start_offset",
        "name",
        "on_roll",
        "producers",
        "topic_id",
        "verifications",
    )

    def __init__(
        self,
        local: LocalLog,
        *,
        producers: ProducerStateManager,
        leader_epochs: LeaderEpochCache,
        log_start_offset: int,
    ) -> None:
        assert log_start_offset <= local.log_end_offset
        self.local = local
        self.name = local.name
        self.producers = producers
        self.verifications = TransactionVerifications(local.name)
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.topic_id: bytes | None = None
        self.on_roll: Callable[[Log], None] | None = None
        self.before_truncate: Callable[[Log, int], None] | None = None
        self._snapshot_offset = -1  # of the newest snapshot, if a clean close needs no newer one

    # Offsets

    @property
    def log_end_offset(self) -> int:
        """The log end offset. Appends read `local.log_end_offset` directly."""
        return self.local.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction has ended, with its marker below the high watermark."""
        stable = self.high_watermark
        first = self.producers.first_unstable_offset
        if first is not None and first < stable:
            stable = max(first, self.log_start_offset)
        assert self.log_start_offset <= stable <= self.high_watermark <= self.local.log_end_offset, f"{self} {stable=}"
        return stable

    def set_high_watermark(self, offset: int) -> None:
        """Record that everything below `offset` is committed."""
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)

    # Appending

    def append_as_leader(
        self,
        batch: ValidBatch,
        *,
        leader_epoch: int,
        now_ms: int | None = None,
        guard: VerificationGuard | None = None,
        by_coordinator: bool = False,
    ) -> AppendResult:
        """Append one batch. Nothing else may touch its bytes until this returns.

        A batch that begins a transaction needs a guard (`transaction_verification.py`). A batch that a coordinator
        writes for a producer has no sequence; only its epoch is checked. Raises OutOfOrderSequenceNumber,
        InvalidProducerEpoch, InvalidTxnState, or KafkaStorageError when the disk refuses; the log is then unchanged.
        """
        local = self.local
        if local.offline_reason is not None or local.no_room:
            raise local.refusal()
        producer_id = batch.producer_id
        if producer_id != NO_PRODUCER:
            before = check_producer(batch, guard, by_coordinator, self.producers, self.verifications, local.segments)
            if before is not None:
                append_time = before.timestamp if batch.log_append_time_ms >= 0 else NO_TIMESTAMP
                return AppendResult(before.first_offset, before.last_offset, append_time, True)
        if now_ms is None:
            now_ms = local.clock.wall_ms()
        base_offset = local.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        size, timestamp = batch.size_bytes, batch.max_timestamp
        if not local.segments.active.has_room_for(size, last_offset, timestamp, now_ms, local.config):
            self._next_segment(base_offset, last_offset)
        stamp(batch.data, base_offset, leader_epoch)
        local.append_batch(batch.data, size, base_offset, last_offset, timestamp, now_ms)
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        if producer_id != NO_PRODUCER:
            self.producers.update(
                producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_offset_delta,
                last_offset,
                batch.max_timestamp,
                is_transactional=batch.is_transactional,
            )
            if batch.is_transactional:
                self.verifications.end(producer_id)
        return appended(base_offset, last_offset, batch.log_append_time_ms)

    def append_marker(
        self, batch: ValidBatch, marker: EndMarker, *, transaction_version: int, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append the control batch that ends a producer's transaction; harmless if none is open.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, or KafkaStorageError; the log is then unchanged.
        """
        local = self.local
        if local.offline_reason is not None or local.no_room:
            raise local.refusal()
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        self.producers.check_marker(producer_id, epoch, marker.coordinator_epoch, transaction_version)
        offset = local.log_end_offset
        ended = self.producers.ending(producer_id, offset)
        size, timestamp = batch.size_bytes, batch.max_timestamp
        if not local.segments.active.has_room_for(size, offset, timestamp, now_ms, local.config):
            self.roll()
        stamp(batch.data, offset, leader_epoch)
        local.append_batch(batch.data, size, offset, offset, timestamp, now_ms)
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, offset)
        if ended is not None and not marker.is_commit:
            self._note_abort(ended)
        self.producers.end_transaction(producer_id, epoch, marker, offset)
        self.verifications.end(producer_id)
        return appended(offset, offset, batch.log_append_time_ms)

    def append_as_follower(self, data: Buffer, header: BatchHeader) -> None:
        """Append a batch with an offset from another log, perhaps after a gap. The producer is not checked.

        Raises KafkaStorageError; the log is then unchanged.
        """
        local = self.local
        if local.offline_reason is not None or local.no_room:
            raise local.refusal()
        assert header.base_offset >= local.log_end_offset, f"{self}: {header.base_offset} is there already"
        now_ms = local.clock.wall_ms()
        # The first offset in a wrapper of an old format is unknown, but at most this far below its last one.
        first_offset = header.base_offset if header.magic == 2 else header.last_offset - MAX_RELATIVE_OFFSET
        if not local.segments.active.has_room_for(
            header.size_bytes, header.last_offset, header.max_timestamp, now_ms, local.config
        ):
            self._next_segment(first_offset, header.last_offset)
        segment = local.segments.active
        position = segment.size_bytes
        local.append_batch(
            data, header.size_bytes, header.base_offset, header.last_offset, header.max_timestamp, now_ms
        )
        if self.leader_epochs.follow(header):
            self._write_epochs()
        aborted = replay(self.producers, segment, position, header, bytes(data) if header.is_control else None)
        if aborted is not None:
            self._note_abort(aborted)

    def _note_abort(self, aborted: AbortedTransaction) -> None:
        """Index an aborted transaction; its marker has just been appended."""
        local = self.local
        index = local.segments.active.transaction_index
        index.append(aborted)
        index.write_through()
        local.durability.directory_unsynced = True
        local.segments.note_aborts()

    def _next_segment(self, base_offset: int, last_offset: int) -> None:
        """Start a segment for a batch that does not fit into the active one. Raises KafkaStorageError."""
        self.roll()
        local = self.local
        reach = last_offset - local.segments.active.base_offset
        if reach > MAX_RELATIVE_OFFSET:  # a gap wider than any segment
            local.move_empty(base_offset)

    def roll(self) -> Segment:
        """Start a new segment at the log end. Raises KafkaStorageError on a full disk: the old one stays active."""
        local = self.local
        if local.segments.active.size_bytes == 0:
            return local.segments.active
        segment = local.begin_segment()
        self.write_snapshot()
        local.add_segment(segment)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        self.leader_epochs.assign(epoch, start_offset)
        self._write_epochs()

    def _write_epochs(self) -> None:
        self.leader_epochs.try_write()
        self.local.durability.directory_unsynced = True

    def forget_idle_producers(self, at_most: int | None = None) -> int:
        """Forget producers, and verifications, older than `producer.id.expiration.ms`; return how many producers."""
        now_ms = int(self.local.clock.monotonic() * 1000)
        self.verifications.remove_expired(now_ms, self.producers.expiration_ms)
        return self.producers.remove_expired(now_ms, at_most)

    def write_snapshot(self, *, sync: bool = False) -> None:
        """Write the producer state at the log end. If the disk refuses, the next start scans batches instead."""
        self.forget_idle_producers()
        path = paths.offset_file(self.local.directory, self.log_end_offset, paths.SNAPSHOT_SUFFIX)
        try:
            content = self.producers.snapshot(self.local.clock.wall_ms())
            replace_file(self.local.filesystem, path, content, sync=sync, sync_directory=False)
            self._snapshot_offset = self.log_end_offset
        except OSError as error:
            logger.warning("%s: producer snapshot not written: %s", self.name, describe(error))

    # Reading

    def read_records(self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool = True) -> LogRead:
        """Return batches from the one that holds `offset` to `max_offset`, cut at `max_bytes`: the last may be partial.

        With `min_one` the first batch is whole, however large. Raises OffsetOutOfRange, CorruptMessage when `offset` is
        known to be damaged, or KafkaStorageError when the disk cannot be read.
        """
        local = self.local
        end = local.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise OffsetOutOfRange(f"{self.name}: offset {offset} not in [{self.log_start_offset}, {end}]")
        if offset >= max_offset or offset == end:
            return NOTHING
        try:
            return local.segments.read_records(offset, end, max_bytes=max_bytes, max_offset=max_offset, min_one=min_one)
        except OSError as error:
            logger.error("%s: read failed: offset=%d: %s", self.name, offset, describe(error))
            raise KafkaStorageError(f"{self.name}: read failed: {describe(error)}") from error

    def timestamp_search(self, timestamp: int | None) -> timestamps.Search:
        """Return a search for the first record, from the log start on, with a timestamp at or after `timestamp`.

        None searches for the record with the largest timestamp. The search may run in another thread; it does not find
        records that are appended later.
        """
        limit = self.local.config.max_decompressed_bytes
        with storage_errors(self.name):
            return timestamps.Search(self.name, self.local.segments, self.log_start_offset, timestamp, limit)

    def segment_offsets(self, timestamp: int, max_count: int) -> list[int]:
        """Return the base offsets of segments last written before `timestamp`, newest first, for ListOffsets v0.

        -1 means the end of time, and the result begins with the log end; -2 means the log start alone. Any other
        timestamp may block, and may run in another thread.
        """
        local = self.local
        with storage_errors(self.name):
            offsets = self.log_start_offset, local.log_end_offset
            return timestamps.segment_offsets(local.segments.all, timestamp, max_count, *offsets, local.clock.wall_ms())

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that holds `offset` or a later one.

        If all segments are above `offset`, the log restarts empty at `offset`. A log start inside a removed batch moves
        down to the start of that batch, since no checkpoint may be above the log end. Blocks: when it returns, a power
        cut cannot bring anything back.
        """
        if offset >= self.log_end_offset:
            return
        local = self.local
        with storage_errors(self.name):
            offset = local.batch_start(offset)
        if self.before_truncate is not None:
            self.before_truncate(self, min(local.recovery_point, offset))
        with local.durability.lock, storage_errors(self.name):
            local.finish_swap()
            local.truncate_to(offset)
            end = local.log_end_offset
            self.log_start_offset = min(self.log_start_offset, end)
            self._snapshot_offset = -1
            self.leader_epochs.truncate_from_end(end)
            self.leader_epochs.write()
            reload_producers(
                self.producers, local.segments.all, end, local.filesystem, local.clock.wall_ms(), local.directory
            )
            self.set_high_watermark(min(self.high_watermark, end))
            local.sync_truncation()

    def advance_log_start(self, offset: int) -> None:
        """Hide records below `offset` (DeleteRecords, retention); `detach_unreachable` removes the segments."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"{self.name}: log start {offset} above the log end {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.set_high_watermark(max(self.high_watermark, offset))
            self.leader_epochs.truncate_from_start(offset)
            self._write_epochs()

    def detach_unreachable(self) -> list[Segment]:
        """Take the segments that end below the log start out of the list; the active one stays.

        The caller has already made the log start durable (`LogDir.raise_log_starts`): after a crash it must not be
        below the first remaining segment. `LocalLog.retire_segments` renames the files.
        """
        if self.local.segment_swap.is_under_way:  # its files are being renamed: leave them to the next call
            return []
        return self.local.segments.detach_below(self.log_start_offset)

    # Shutdown

    def close(self) -> None:
        """Make everything durable and close the files. Raises KafkaStorageError after any failed write, even of an
        index: the close was not clean."""
        local = self.local
        if local.offline_reason is not None:
            local.abandon(local.offline_reason)
            return
        active = local.segments.active
        is_saved = self._snapshot_offset == local.log_end_offset == local.recovery_point and not active.is_preallocated
        if not is_saved:
            try:
                with local.durability.lock:
                    active.become_inactive()
                    active.sync_indexes()
                    self.write_snapshot(sync=True)
                    local.list_transaction_indexes(sync=True)
                    self.leader_epochs.write()
                    local.durability.directory_unsynced = True
                local.flush()
                if local.recovery_point < local.log_end_offset:  # an append came meanwhile
                    raise KafkaStorageError(f"recovery_point={local.recovery_point} log_end={local.log_end_offset}")
            except (OSError, KafkaStorageError) as error:
                reason = describe(error) if isinstance(error, OSError) else error.message
                with suppress(KafkaStorageError):  # if only the indexes failed, at least flush the records
                    local.flush()
                local.abandon(f"close failed: {reason}")
                raise KafkaStorageError(f"{self.name}: close failed: {reason}") from error
        local.abandon("closed")

    def nothing_to_save(self) -> None:
        """Record that the files are as a clean close left them: without new appends, closing writes nothing."""
        self._snapshot_offset = self.log_end_offset
        self.local.durability.directory_unsynced = False

    def __repr__(self) -> str:
        count = len(self.local.segments.all)
        return f"Log({self.name}, [{self.log_start_offset}, {self.log_end_offset}), segments={count})"
