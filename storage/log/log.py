"""The log of one partition: segments in order, appended to at the end, read anywhere.

What happens to a batch here: its producer sequence is checked, base offset and leader epoch are stamped in place, it
is written at the end of the active segment, the indexes take note. One call, no system call but the write. Reading
touches no records either: an answer is a region of a file.

Threads: everything runs on the caller's one thread, but `flush`, which blocks, and may run in any other thread beside
appends and reads (`durability.py`).

Offsets: `log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset`. The segments are a `SegmentList`;
how they leave it is told there, how compacted ones come into it in `replacement.py`.

After a crash: see `loader.py`. A write error leaves the log as it was before the append; reads go on.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError, OffsetOutOfRange
from klamm.protocol.records.batch import BatchHeader, stamp
from klamm.storage import paths
from klamm.storage.clock import Clock
from klamm.storage.filesystem import (
    Buffer,
    Filesystem,
    describe,
    is_transient,
    replace_file,
    storage_errors,
    unlink_if_exists,
)
from klamm.storage.log import timestamps
from klamm.storage.log.admission import check_producer
from klamm.storage.log.durability import Durability
from klamm.storage.log.index import MAX_RELATIVE_OFFSET, NO_TIMESTAMP
from klamm.storage.log.leader_epochs import EpochCache
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.producer import NO_PRODUCER
from klamm.storage.log.producer_state import ProducerState
from klamm.storage.log.replacement import Replacement, SwapStuck
from klamm.storage.log.replay import load_producers, replay
from klamm.storage.log.results import NOTHING, AppendResult, EpochEnd, LogRead, TimestampOffset, appended
from klamm.storage.log.segment import Segment
from klamm.storage.log.segment_list import SegmentList, retire
from klamm.storage.log.transaction_index import AbortedTransaction, format_list
from klamm.storage.log.verification import VerificationGuard, Verifications
from klamm.storage.sharing import own_files

if TYPE_CHECKING:
    from klamm.protocol.records.control import EndMarker
    from klamm.protocol.records.validate import ValidBatch
    from klamm.storage.log.cleaned_segment import Cleaned

logger = logging.getLogger(__name__)

REFUSAL_LOG_MS = 1000
"""A full disk refuses every append: no more than one line in this time."""


class Log:
    """The log of one partition. Made by `Log.open` (see `loader.py`) or `LogDir`."""

    __slots__ = (
        "_clock",
        "_config",
        "_durability",
        "_filesystem",
        "_jitter",
        "_name",
        "_refusal_told_ms",
        "_replacement",
        "_segments",
        "_snapshot_offset",
        "before_truncate",
        "directory",
        "high_watermark",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "no_room",
        "offline_reason",
        "on_roll",
        "on_sync_failure",
        "producers",
        "topic_id",
        "verifications",
    )

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        segments: list[Segment],
        *,
        clock: Clock,
        filesystem: Filesystem,
        producers: ProducerState,
        leader_epochs: EpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        jitter: Callable[[int], int] = random.randrange,
    ) -> None:
        assert segments and log_start_offset <= log_end_offset and recovery_point <= log_end_offset
        self.directory = directory
        self._name = directory.name
        self._clock = clock
        self._filesystem = filesystem
        self._jitter = jitter
        self.producers = producers
        self.verifications = Verifications(directory.name)
        self.leader_epochs = leader_epochs
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.topic_id: bytes | None = None
        self.offline_reason: str | None = None
        self.no_room = False  # the log directory has let its reserve go
        self.on_roll: Callable[[Log], None] | None = None
        self.on_sync_failure: Callable[[str], None] | None = None
        self.before_truncate: Callable[[Log, int], None] | None = None
        self._refusal_told_ms = 0
        self._snapshot_offset = -1  # of the newest snapshot, once it is known that a clean close needs no other
        self._durability = Durability(
            filesystem,
            recovery_point,
            max(recovery_point, log_start_offset),  # the log start was made durable when that was
            None if recovery_point == log_end_offset else clock.wall_ms(),
        )
        self._config = config
        self._segments = SegmentList(segments)
        self._replacement = Replacement(filesystem, directory, self._segments)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        clock: Clock,
        filesystem: Filesystem,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool,
        high_watermark: int = 0,
        power_loss: bool = False,
        quarantine: Path | None = None,
        producer_expiration_ms: int = 86_400_000,
        jitter: Callable[[int], int] = random.randrange,
        recovered: bool = False,
        on_segment: Callable[[int], None] | None = None,
    ) -> Log:
        """Open what is in `directory`, or begin an empty log there.

        `clean`: the log was closed properly; else everything from the recovery point on is checked. `power_loss`: the
        machine went down since, so bytes that were not synced may be damaged in any order; what has to be cut then is
        kept in `quarantine`. `recovered`: another process has checked it since, its files are as after a clean close,
        but not synced. `on_segment` is told the size of each segment that was checked. Raises `LogDamaged` (nothing was
        changed) or KafkaStorageError.
        """
        from klamm.storage.recovery.loader import Loader

        return Loader(
            directory,
            config,
            clock=clock,
            filesystem=filesystem,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            high_watermark=high_watermark,
            power_loss=power_loss,
            quarantine=quarantine,
            producer_expiration_ms=producer_expiration_ms,
            jitter=jitter,
            recovered=recovered,
            on_segment=on_segment,
        ).load()

    # Facts

    @property
    def name(self) -> str:
        """`<topic>-<partition>`"""
        return self._name

    @property
    def segments(self) -> list[Segment]:
        """The segments of this moment, oldest first. Not to be changed."""
        return self._segments.all

    @property
    def size_bytes(self) -> int:
        return self._segments.closed_bytes + self._segments.active.size_bytes

    @property
    def last_stable_offset(self) -> int:
        """Every transaction with records below it has ended, and those below it are below the high watermark."""
        stable = self.high_watermark
        first = self.producers.first_unstable_offset
        if first is not None and first < stable:
            stable = max(first, self.log_start_offset)
        assert self.log_start_offset <= stable <= self.high_watermark <= self.log_end_offset, f"{self} {stable=}"
        return stable

    def set_high_watermark(self, offset: int) -> None:
        """What is below `offset` is committed."""
        self.high_watermark = offset
        self.producers.decide_below(offset)

    @property
    def recovery_point(self) -> int:
        """Where a start after a crash begins to check."""
        return self._durability.recovery_point

    @property
    def flushed_offset(self) -> int:
        """The batches below it survive a power cut."""
        return self._durability.flushed_offset

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments.all:
            segment.set_index_limits(config.index_interval_bytes, config.segment_index_bytes)

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self._durability.flushed_offset

    def flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a flush now."""
        return self._durability.is_due(self, now_ms)

    @property
    def unflushed_segments_end(self) -> int | None:
        """Where the active segment begins, if anything in an older one is not durable yet: up to there a flush is due,
        but nobody waits for it."""
        base_offset = self._segments.active.base_offset
        return base_offset if self._durability.flushed_offset < base_offset else None

    # Appending

    def append(
        self,
        batch: ValidBatch,
        *,
        leader_epoch: int,
        now_ms: int | None = None,
        guard: VerificationGuard | None = None,
        by_coordinator: bool = False,
    ) -> AppendResult:
        """Append one batch. Nothing else may touch its bytes until this returns.

        A batch that begins a transaction needs a guard (`verification.py`). Of a batch that a coordinator writes for a
        producer the epoch is checked, it has no sequence. Raises OutOfOrderSequenceNumber, InvalidProducerEpoch,
        InvalidTxnState, or KafkaStorageError when the disk refuses: then the log is as it was before.
        """
        if self.offline_reason is not None or self.no_room:
            raise self._not_taken()
        producer_id = batch.producer_id
        if producer_id != NO_PRODUCER:
            before = check_producer(self, batch, guard, by_coordinator=by_coordinator)
            if before is not None:
                append_time = before.timestamp if batch.log_append_time_ms >= 0 else NO_TIMESTAMP
                return AppendResult(before.first_offset, before.last_offset, append_time, True)
        if now_ms is None:
            now_ms = self._clock.wall_ms()
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        self._write(batch, base_offset, last_offset, leader_epoch, now_ms)
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
        """Append the control batch that ends a producer's transaction; harmless where none is open.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, or KafkaStorageError: the log is as it was before.
        """
        if self.offline_reason is not None or self.no_room:
            raise self._not_taken()
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        self.producers.check_marker(producer_id, epoch, marker.coordinator_epoch, transaction_version)
        offset = self.log_end_offset
        ended = self.producers.ending(producer_id, offset)
        segment = self._write(batch, offset, offset, leader_epoch, now_ms)
        if ended is not None and not marker.is_commit:
            segment.transaction_index.append(ended)
            segment.transaction_index.write_through()
            self._durability.directory_unsynced = True
            self._segments.note_aborts()
        self.producers.end_transaction(producer_id, epoch, marker, offset)
        self.verifications.end(producer_id)
        return appended(offset, offset, batch.log_append_time_ms)

    def append_as_follower(self, data: Buffer, head: BatchHeader) -> None:
        """Append a batch that another log has accepted, at the offset that it has there; there may be a gap before it.

        Nothing is asked of its producer. Raises KafkaStorageError: the log is as it was before.
        """
        if self.offline_reason is not None or self.no_room:
            raise self._not_taken()
        assert head.base_offset >= self.log_end_offset, f"{self}: {head.base_offset} is there already"
        now_ms = self._clock.wall_ms()
        # The first offset in a wrapper of an old format is not known: not so far below its last one.
        first_offset = head.base_offset if head.magic == 2 else head.last_offset - MAX_RELATIVE_OFFSET
        segment = self._segments.active
        if not segment.takes(head.size_bytes, head.last_offset, head.max_timestamp, now_ms, self._config):
            segment = self._next_segment(first_offset, head.last_offset)
        position = segment.size_bytes
        try:
            segment.append(data, head.size_bytes, head.base_offset, head.last_offset, head.max_timestamp)
        except OSError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = head.last_offset + 1
        if self._durability.first_unflushed_ms is None:
            self._durability.first_unflushed_ms = now_ms
        self._note_epoch(head)
        aborted = replay(self.producers, segment, position, head, bytes(data) if head.is_control else None)
        if aborted is not None:
            segment.transaction_index.append(aborted)
            segment.transaction_index.write_through()
            self._durability.directory_unsynced = True
            self._segments.note_aborts()

    def inherit(self, source: Log) -> None:
        """Take the place of `source`, whose records are all here: what only its memory knows of producers, too."""
        self.topic_id = source.topic_id
        self.producers = source.producers
        self.verifications = source.verifications
        self.high_watermark = source.high_watermark
        self.inherit_damage(source)

    def inherit_damage(self, source: Log) -> None:
        """What is known to be damaged in `source` is so here, too, where the bytes were copied as they were."""
        known = {segment.base_offset: segment.damage for segment in source.segments if segment.damage}
        for segment in self.segments if known else ():
            found = known.get(segment.base_offset, ())
            segment.damage = tuple(each for each in found if each.end_position <= segment.size_bytes)

    def _next_segment(self, base_offset: int, last_offset: int) -> Segment:
        """A new active segment for a batch that has no place in the old one. Raises KafkaStorageError."""
        segment = self.roll()
        if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:  # there is a gap that no segment spans
            return self._move_empty(base_offset)
        return segment

    def _move_empty(self, offset: int) -> Segment:
        """Let the active segment, which is empty, begin at `offset`, behind the log end. Raises KafkaStorageError."""
        old = self._segments.active
        assert old.size_bytes == 0 and offset > old.base_offset
        segment = self._new_segment(offset)
        with self._durability.lock, storage_errors(f"{self._name}: roll failed"):
            old.delete()  # first: a start must not find two that are empty, with a gap between
            try:
                segment.create()
            except OSError:
                old.create()
                raise
            self._segments.set([*self._segments.all[:-1], segment])
            self._durability.directory_unsynced = True
        return segment

    def _write(self, batch: ValidBatch, base_offset: int, last_offset: int, leader_epoch: int, now_ms: int) -> Segment:
        """Give the batch these offsets, at the log end, and write it; returns where. Raises KafkaStorageError."""
        size, timestamp = batch.size_bytes, batch.max_timestamp
        segment = self._segments.active
        if not segment.takes(size, last_offset, timestamp, now_ms, self._config):
            segment = self._next_segment(base_offset, last_offset)
        stamp(batch.data, base_offset, leader_epoch)
        try:
            segment.append(batch.data, size, base_offset, last_offset, timestamp)
        except OSError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = last_offset + 1
        durability = self._durability
        if durability.first_unflushed_ms is None:
            durability.first_unflushed_ms = now_ms
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        return segment

    def _note_epoch(self, head: BatchHeader) -> None:
        """As it is in the batch, even if older: the leader is right. Without epochs before it, where it has none."""
        if head.magic < 2 and self.leader_epochs:
            logger.warning("%s: a message of format %d clears the leader epochs", self._name, head.magic)
            self.leader_epochs.clear()
            self._write_epochs()
        elif head.leader_epoch != self.leader_epochs.latest and head.leader_epoch >= 0:
            self._begin_epoch(head.leader_epoch, head.base_offset)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        self.leader_epochs.assign(epoch, start_offset)
        self._write_epochs()

    def _write_epochs(self) -> None:
        try:
            self.leader_epochs.write()
        except OSError as error:  # recovery completes it from the batches
            logger.warning("%s: leader epochs not written: %s", self._name, describe(error))
        self._durability.directory_unsynced = True

    def _not_taken(self) -> KafkaStorageError:
        """Why nothing is appended now."""
        if self.offline_reason is not None:
            return KafkaStorageError(f"{self._name}: offline: {self.offline_reason}")
        return self._refused("append", OSError(errno.ENOSPC, "the disk is full, and its reserve is let go"))

    def _write_failed(self, error: OSError) -> KafkaStorageError:
        if not is_transient(error) or not self._segments.active.writable:
            self.offline_reason = f"write failed: {describe(error)}"
        return self._refused("append", error)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        now_ms = self._clock.wall_ms()
        if self.offline_reason is not None or not 0 <= now_ms - self._refusal_told_ms < REFUSAL_LOG_MS:
            self._refusal_told_ms = now_ms
            logger.error("%s: %s failed: %s", self._name, what, describe(error))
        return KafkaStorageError(f"{self._name}: {what} failed: {describe(error)}")

    def roll(self) -> Segment:
        """Begin a new segment at the log end. KafkaStorageError when the disk refuses: the old one stays active."""
        old = self._segments.active
        if old.size_bytes == 0:
            return old
        segment = self._new_segment(self.log_end_offset)
        try:
            segment.create()
        except OSError as error:
            raise self._refused("roll", error) from error
        old.become_inactive()
        try:
            old.write_indexes()
        except OSError as error:
            logger.warning("%s: segment %d not completed: %s", self._name, old.base_offset, describe(error))
        self.write_snapshot()
        self._list_transaction_indexes()
        self._segments.append(segment)
        self._durability.directory_unsynced = True
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        config = self._config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self._filesystem,
            self.directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
            created_ms=self._clock.wall_ms(),
            roll_jitter_ms=self._jitter(jitter) if jitter > 0 else 0,
            preallocate_bytes=config.segment_bytes if config.preallocate else 0,
        )

    def forget_idle_producers(self, at_most: int | None = None) -> int:
        """Forget producers, and transactions that were asked for and not begun, after `producer.id.expiration.ms`;
        returns how many producers."""
        now_ms = int(self._clock.monotonic() * 1000)
        self.verifications.remove_expired(now_ms, self.producers.expiration_ms)
        return self.producers.remove_expired(now_ms, at_most)

    def write_snapshot(self, *, sync: bool = False) -> None:
        """Write the producer state at the log end. A disk that refuses costs a scan at the next start, nothing else."""
        self.forget_idle_producers()
        path = paths.offset_file(self.directory, self.log_end_offset, paths.SNAPSHOT_SUFFIX)
        try:
            content = self.producers.snapshot(self._clock.wall_ms())
            replace_file(self._filesystem, path, content, sync=sync, sync_directory=False)
            self._snapshot_offset = self.log_end_offset
        except OSError as error:
            logger.warning("%s: producer snapshot not written: %s", self._name, describe(error))

    def _list_transaction_indexes(self, *, sync: bool = False) -> None:
        """Note which transaction indexes there are, so that a missing one is missed."""
        aborting = self._segments.aborting
        path = self.directory / paths.TXN_INDEX_LIST
        if not aborting and not self._filesystem.exists(path):
            return
        content = format_list((segment.base_offset, segment.transaction_index) for segment in aborting)
        try:
            replace_file(self._filesystem, path, content, sync=sync, sync_directory=False)
        except OSError as error:
            logger.warning("%s: %s not written: %s", self._name, paths.TXN_INDEX_LIST, describe(error))

    # Reading

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool = True) -> LogRead:
        """Batches from the one that holds `offset` on, below `max_offset`, cut at `max_bytes`: the last may be partial.

        With `min_one` the first batch is whole, however large. Raises OffsetOutOfRange, CorruptMessage when `offset` is
        known to be damaged, or KafkaStorageError when the disk cannot be read.
        """
        end = self.log_end_offset
        if offset < self.log_start_offset or offset > end:
            raise OffsetOutOfRange(f"{self._name}: offset {offset} not in [{self.log_start_offset}, {end}]")
        if offset >= max_offset or offset == end:
            return NOTHING
        try:
            return self._segments.read(offset, end, max_bytes=max_bytes, max_offset=max_offset, min_one=min_one)
        except OSError as error:
            logger.error("%s: read failed: offset=%d: %s", self._name, offset, describe(error))
            raise KafkaStorageError(f"{self._name}: read failed: {describe(error)}") from error

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records in [start, end): a read_committed reader leaves them out. Raises KafkaStorageError."""
        if not self._segments.aborting:
            return []
        with storage_errors(f"{self._name}: transaction index"):
            return self._segments.aborted(start, end)

    def lookup_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record, at or above the log start, with a timestamp at or after `timestamp`; None without one."""
        return self.timestamp_search(timestamp).run()

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; None when no record has one."""
        return self.timestamp_search(None).run()

    def timestamp_search(self, timestamp: int | None) -> timestamps.Search:
        """The same two, to be run in another thread: what is appended from now on is not found."""
        with storage_errors(self._name):
            return timestamps.Search(
                self._name,
                self._segments.all,
                self.log_start_offset,
                timestamp,
                is_served=lambda segment: segment in self._segments.all,
                max_decompressed_bytes=self._config.max_decompressed_bytes,
            )

    def segment_offsets(self, timestamp: int, max_count: int) -> list[int]:
        """What ListOffsets v0 asks for: base offsets of segments last written before `timestamp`, newest first.

        -1 stands for the end of time and begins with the log end, -2 for the log start alone. Any other may block, and
        may run in another thread.
        """
        if timestamp == -2:
            return [self.log_start_offset][:max_count]
        offsets = []
        if self._segments.active.size_bytes and (timestamp == -1 or timestamp >= self._clock.wall_ms()):
            offsets.append(self.log_end_offset)
        with storage_errors(self._name):
            offsets += [
                max(segment.base_offset, self.log_start_offset)
                for segment in reversed(self._segments.all)
                if timestamp == -1 or timestamps.last_written_ms(segment) <= timestamp
            ]
        return list(dict.fromkeys(offsets))[:max_count]

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch` ends, for a replica that wants to know where its log parted from this one."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # Durability

    def flush(self, up_to: int | None = None) -> int:
        """Make the batches below `up_to` (default: the log end) survive a power cut; returns the offset below which
        all do. Blocks; for a thread.

        Raises KafkaStorageError when the disk refuses; after a sync that failed the log is offline. Indexes that cannot
        be written (the disk is full) do no more than hold back the recovery point.
        """
        return self._durability.flush(self, up_to)

    def sync_failed(self, error: OSError) -> None:
        """The kernel may have dropped what it could not write: nothing can be promised any more."""
        reason = f"fsync failed: {describe(error)}"
        logger.error("%s: %s: offline until it is recovered from disk", self._name, reason)
        self.offline_reason = reason
        if self.on_sync_failure is not None:
            self.on_sync_failure(f"{self._name}: {reason}")

    # Cutting. These wait for a flush that is under way: its thread must not find files gone.

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that holds `offset` or a later one.

        Where no segment reaches that far down, the log begins anew at `offset`. A log start within a batch that goes
        moves down to where the batch began, as no checkpoint may be above the log end. Blocks: when it returns, a power
        cut does not bring anything back.
        """
        if offset >= self.log_end_offset:
            return
        with storage_errors(self._name):
            offset = self._batch_start(offset)
        if self.before_truncate is not None:
            self.before_truncate(self, min(self.recovery_point, offset))
        with self._durability.lock, storage_errors(self._name):
            self.finish_swap()
            self._replacement.cut_count += 1
            if self._replacement.is_under_way:
                raise KafkaStorageError(f"{self._name}: compacted segments are half-way in their place")
            if offset < self._segments.bases[0]:
                self._replace_all(offset)
            else:
                self._cut_segments(offset)
            self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
            self._durability.cut_at(self.log_end_offset)
            self._snapshot_offset = -1
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            self.leader_epochs.write()
            self._rebuild_producers()
            self.set_high_watermark(min(self.high_watermark, self.log_end_offset))
            self._segments.note_aborts()
            self._durability.directory_unsynced = False
            try:
                self._segments.active.sync()
                self.leader_epochs.sync()
                self._filesystem.sync_directory(self.directory)
            except OSError as error:
                self.sync_failed(error)
                raise

    def _batch_start(self, offset: int) -> int:
        """Where the log ends without the batch that holds `offset`, and gaps before it: no checkpoint may be above."""
        segment = self._segments.all[self._segments.index_of(offset)]
        found = segment.find(offset)
        end = segment.next_offset_at(0, found[0] if found is not None else segment.size_bytes)
        return min(offset, end if end >= 0 else segment.base_offset)

    def _cut_segments(self, offset: int) -> None:
        kept = [segment for segment in self._segments.all if segment.base_offset <= offset]
        removed = self._segments.all[len(kept) :]
        self._segments.set(kept)
        for segment in reversed(removed):  # newest first: a crash on the way leaves no hole
            segment.delete()
        active = self._segments.active
        if own_files(self._filesystem, self.directory, active.base_offset):
            active.close()
        active.truncate(offset)
        self.log_end_offset = active.load_end()

    def _replace_all(self, offset: int) -> None:
        for segment in reversed(self._segments.all):
            segment.delete()
        fresh = self._new_segment(offset)
        fresh.create()
        self._segments.set([fresh])
        self.log_end_offset = offset

    def _rebuild_producers(self) -> None:
        names = [paths.parse_offset_file(entry.name) for entry in self._filesystem.list(self.directory)]
        snapshots = sorted(offset for offset, suffix in filter(None, names) if suffix == paths.SNAPSHOT_SUFFIX)
        load_producers(
            self.producers,
            self._segments.all,
            self.log_end_offset,
            self._filesystem,
            self._clock.wall_ms(),
            self.directory,
            snapshots,
        )

    def advance_log_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers (DeleteRecords, retention).

        Files go with `detach_unreachable`.
        """
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(f"{self._name}: log start {offset} above the log end {self.log_end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.set_high_watermark(max(self.high_watermark, offset))
            self.leader_epochs.truncate_from_start(offset)
            self._write_epochs()

    # Segments that leave: `detach_unreachable` on the loop, then `retire` and `unlink_files` in a thread

    def detach_unreachable(self) -> list[Segment]:
        """Take the segments that end below the log start out of the list; the active one stays.

        The caller has made the log start durable before (`LogDir.checkpoint`): after a crash it must not be below the
        first segment that is left. The files are those of `retire`.
        """
        if self._replacement.is_under_way:  # the files that are being renamed are left to the next time
            return []
        return self._segments.detach_below(self.log_start_offset)

    def retire(self, segments: Iterable[Segment]) -> list[Path]:
        """Give the files of detached segments the suffix `.deleted`, durably; returns the new names. Blocks.

        From then on a start removes them. Waits for a flush that is under way, whose thread may be at their files.
        """
        with self._durability.lock, storage_errors(self._name):
            return retire(self._filesystem, self.directory, segments)

    def unlink_files(self, files: Iterable[Path]) -> None:
        """Remove what `retire` has renamed. Blocks."""
        with storage_errors(self._name):
            for path in files:
                unlink_if_exists(self._filesystem, path)

    def delete_unreachable(self) -> int:
        """All three steps at once, for callers that may block; returns how many segments went."""
        removed = self.detach_unreachable()
        self.unlink_files(self.retire(removed))
        return len(removed)

    # Compacted segments (`replacement.py`)

    @property
    def cut_count(self) -> int:
        """How often the log was cut since it was opened: compaction that began before must not go on."""
        return self._replacement.cut_count

    def begin_swap(self, cleaned: Cleaned) -> bool:
        """Reserve the segments that a compacted one is to replace; False when they are not there any more."""
        return self.offline_reason is None and self._replacement.begin(cleaned, self.recovery_point)

    def swap_files(self, cleaned: Cleaned) -> list[Path]:
        """Put the compacted files in their place, durably; returns what may be unlinked later. Blocks.

        Raises KafkaStorageError: nothing has happened, or, when the log is offline then, the next start finishes it.
        Readers go on with the files that they hold.
        """
        with self._durability.lock, storage_errors(self._name):
            try:
                return self._replacement.swap_files(cleaned, self._new_segment)
            except SwapStuck as error:
                self.offline_reason = error.strerror
                raise KafkaStorageError(f"{self._name}: {error.strerror}") from error

    def finish_swap(self) -> None:
        """Let readers see the compacted segment, if its files are in place."""
        if self._replacement.finish():
            self._list_transaction_indexes()

    # The end

    def close(self) -> None:
        """Make everything durable and let go of the files.

        KafkaStorageError when the disk refuses, even if it is but an index: not a clean close.
        """
        if self.offline_reason is not None:
            self.abandon(self.offline_reason)
            return
        active = self._segments.active
        is_saved = self._snapshot_offset == self.log_end_offset == self.recovery_point and not active.is_preallocated
        if not is_saved:
            try:
                with self._durability.lock:
                    active.become_inactive()
                    active.sync_indexes()
                    self.write_snapshot(sync=True)
                    self._list_transaction_indexes(sync=True)
                    self.leader_epochs.write()
                    self._durability.directory_unsynced = True
                self.flush()
                if self.recovery_point < self.log_end_offset:
                    raise KafkaStorageError(f"recovery_point={self.recovery_point} log_end={self.log_end_offset}")
            except (OSError, KafkaStorageError) as error:
                reason = describe(error) if isinstance(error, OSError) else error.message
                with suppress(KafkaStorageError):  # the records at least, when it was the indexes
                    self.flush()
                self.abandon(f"close failed: {reason}")
                raise KafkaStorageError(f"{self._name}: close failed: {reason}") from error
        self.abandon("closed")

    def nothing_to_save(self) -> None:
        """The files are as a clean close left them: unless something is appended, closing again writes nothing."""
        self._snapshot_offset = self.log_end_offset
        self._durability.directory_unsynced = False

    def abandon(self, reason: str) -> None:
        """Refuse appends from now on and let go of the files, as they are."""
        self.offline_reason = reason
        with self._durability.lock:
            for segment in self._segments.all:
                segment.close()

    def __repr__(self) -> str:
        return f"Log({self._name}, [{self.log_start_offset}, {self.log_end_offset}), segments={len(self.segments)})"
