"""The segments of one log on disk: append, roll, read, flush, cut, compact, delete.

The meaning of the batches (producers, transactions, leader epochs, the high watermark, the log start) is the concern of
`log.py`, which decides when a segment is rolled and where the log is cut.

Threads: everything runs on the caller's one thread except `flush`, which blocks and may run in any other thread during
appends and reads (`durability.py`). Code that removes files holds `durability.lock`. The segments are a `SegmentList`:
its module describes how they leave the list, and `segment_swap.py` how compacted ones enter it.

A write error leaves the log as it was; reads continue.
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.protocol.errors import KafkaStorageError
from klamm.storage.clock import Clock
from klamm.storage.filesystem import Buffer, Filesystem, describe, is_transient, storage_errors, unlink_if_exists
from klamm.storage.hard_links import unshare_files
from klamm.storage.log.durability import Durability
from klamm.storage.log.leader_epochs import LeaderEpochCache
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.segment import Segment
from klamm.storage.log.segment_list import SegmentList, retire
from klamm.storage.log.segment_swap import SegmentSwap, SwapStuck
from klamm.storage.log.transaction_index import write_list

if TYPE_CHECKING:
    from klamm.storage.log.cleaned_segment import Cleaned

logger = logging.getLogger(__name__)

REFUSAL_LOG_MS = 1000
"""How often at most a refused append is logged: a full disk refuses them all."""


class LocalLog:
    """The segments of one log, up to `log_end_offset`. `offline_reason` is set once its files cannot be relied on."""

    __slots__ = (
        "_jitter",
        "_refusal_logged_ms",
        "clock",
        "config",
        "directory",
        "durability",
        "filesystem",
        "log_end_offset",
        "name",
        "no_room",
        "offline_reason",
        "on_sync_failure",
        "segment_swap",
        "segments",
    )

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        segments: list[Segment],
        *,
        clock: Clock,
        filesystem: Filesystem,
        leader_epochs: LeaderEpochCache,
        log_end_offset: int,
        recovery_point: int,
        flushed_offset: int,
        jitter: Callable[[int], int] = random.randrange,
    ) -> None:
        assert segments and recovery_point <= log_end_offset
        self.directory = directory
        self.name = directory.name  # <topic>-<partition>
        self.config = config
        self.clock = clock
        self.filesystem = filesystem
        self._jitter = jitter
        self.log_end_offset = log_end_offset
        self.offline_reason: str | None = None
        self.no_room = False  # whether the log directory has released its reserve
        self.on_sync_failure: Callable[[str], None] | None = None
        self._refusal_logged_ms = 0
        self.segments = SegmentList(segments)
        self.durability = Durability(
            filesystem,
            directory,
            leader_epochs,
            recovery_point,
            flushed_offset,
            None if recovery_point == log_end_offset else clock.wall_ms(),
        )
        self.segment_swap = SegmentSwap(filesystem, directory, self.segments)

    # State

    @property
    def size_bytes(self) -> int:
        return self.segments.closed_bytes + self.segments.active.size_bytes

    @property
    def recovery_point(self) -> int:
        """The offset from which a start after a crash checks the log."""
        return self.durability.recovery_point

    @property
    def flushed_offset(self) -> int:
        """The offset below which batches survive a power cut."""
        return self.durability.flushed_offset

    def configure(self, config: LogConfig) -> None:
        self.config = config
        for segment in self.segments.all:
            segment.set_index_limits(config.index_interval_bytes, config.segment_index_bytes)

    # Writing

    def append_batch(
        self, data: Buffer, size: int, base_offset: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Write a batch with these offsets at the end of the active segment. Raises KafkaStorageError."""
        try:
            self.segments.active.append_batch(data, size, base_offset, last_offset, max_timestamp)
        except OSError as error:
            raise self._write_failed(error) from error
        self.log_end_offset = last_offset + 1
        durability = self.durability
        if durability.first_unflushed_ms is None:
            durability.first_unflushed_ms = now_ms

    def refusal(self) -> KafkaStorageError:
        """Return the error of an append that is refused now."""
        if self.offline_reason is not None:
            return KafkaStorageError(f"{self.name}: offline: {self.offline_reason}")
        return self._refused("append", OSError(errno.ENOSPC, "the disk is full, and its reserve is released"))

    def _write_failed(self, error: OSError) -> KafkaStorageError:
        if not is_transient(error) or not self.segments.active.writable:
            self.offline_reason = f"write failed: {describe(error)}"
        return self._refused("append", error)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        now_ms = self.clock.wall_ms()
        if self.offline_reason is not None or not 0 <= now_ms - self._refusal_logged_ms < REFUSAL_LOG_MS:
            self._refusal_logged_ms = now_ms
            logger.error("%s: %s failed: %s", self.name, what, describe(error))
        return KafkaStorageError(f"{self.name}: {what} failed: {describe(error)}")

    def begin_segment(self) -> Segment:
        """Create the files of a new segment at the log end, and complete the active one; `add_segment` follows.

        Raises KafkaStorageError when the disk refuses: nothing has changed.
        """
        segment = self._new_segment(self.log_end_offset)
        try:
            segment.create()
        except OSError as error:
            raise self._refused("roll", error) from error
        old = self.segments.active
        old.become_inactive()
        try:
            old.write_indexes()
        except OSError as error:
            logger.warning("%s: segment %d not completed: %s", self.name, old.base_offset, describe(error))
        self.list_transaction_indexes()
        return segment

    def add_segment(self, segment: Segment) -> None:
        """Make `segment` the active one."""
        self.segments.append_segment(segment)
        self.durability.directory_unsynced = True

    def move_empty(self, offset: int) -> None:
        """Move the start of the empty active segment to `offset`, above the log end. Raises KafkaStorageError."""
        old = self.segments.active
        assert old.size_bytes == 0 and offset > old.base_offset
        segment = self._new_segment(offset)
        with self.durability.lock, storage_errors(f"{self.name}: roll failed"):
            old.delete()  # first: a start must not find two empty segments with a gap between them
            try:
                segment.create()
            except OSError:
                old.create()
                raise
            self.segments.set_segments([*self.segments.all[:-1], segment])
            self.durability.directory_unsynced = True

    def _new_segment(self, base_offset: int) -> Segment:
        config = self.config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return Segment(
            self.filesystem,
            self.directory,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
            created_ms=self.clock.wall_ms(),
            roll_jitter_ms=self._jitter(jitter) if jitter > 0 else 0,
            preallocate_bytes=config.segment_bytes if config.preallocate else 0,
        )

    # Durability

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.durability.flushed_offset

    @property
    def unflushed_segments_end(self) -> int | None:
        """The base offset of the active segment if an older segment is not durable yet, else None.

        A flush is due up to there, but nobody waits for it.
        """
        base_offset = self.segments.active.base_offset
        return base_offset if self.durability.flushed_offset < base_offset else None

    def flush_due(self, now_ms: int) -> bool:
        """Return whether flush.messages or flush.ms requires a flush now."""
        unflushed = self.unflushed_messages
        if unflushed <= 0:
            return False
        return unflushed >= self.config.flush_messages or self.durability.unflushed_ms(now_ms) >= self.config.flush_ms

    def flush(self, up_to: int | None = None) -> int:
        """Make the batches below `up_to` (default: the log end) durable; return the offset below which all are.

        Blocks: to be run in a thread. Raises KafkaStorageError when the disk refuses; after a failed sync the log is
        offline. Indexes that cannot be written (the disk is full) only hold back the recovery point.
        """
        durability = self.durability
        with durability.lock:
            target = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            if target <= durability.recovery_point and not durability.directory_unsynced:
                return durability.flushed_offset
            if self.offline_reason is not None:
                raise KafkaStorageError(f"{self.name}: offline: {self.offline_reason}")
            try:
                return durability.flush(self.segments.all, target, lambda: self.log_end_offset)
            except OSError as error:
                self._sync_failed(error)
                raise KafkaStorageError(f"{self.name}: flush failed: {describe(error)}") from error

    def _sync_failed(self, error: OSError) -> None:
        """Take the log offline: the kernel may have dropped what it could not write, so nothing can be promised."""
        reason = f"fsync failed: {describe(error)}"
        logger.error("%s: %s: offline until it is recovered from disk", self.name, reason)
        self.offline_reason = reason
        if self.on_sync_failure is not None:
            self.on_sync_failure(f"{self.name}: {reason}")

    # Cutting. The caller holds `durability.lock`: a flush in a thread must not find files gone.

    def batch_start(self, offset: int) -> int:
        """Return the log end without the batch that holds `offset`, and any gap before it: a limit for checkpoints."""
        segment = self.segments.all[self.segments.index_of(offset)]
        found = segment.find_batch(offset)
        end = segment.next_offset_at(0, found[0] if found is not None else segment.size_bytes)
        return min(offset, end if end >= 0 else segment.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove all batches that hold `offset` or later ones. Raises KafkaStorageError, OSError."""
        self.segment_swap.cut_count += 1
        if self.segment_swap.is_under_way:
            raise KafkaStorageError(f"{self.name}: compacted segments are half-way in their place")
        if offset < self.segments.bases[0]:
            self._replace_all(offset)
        else:
            self._cut_segments(offset)
        self.durability.cut_at(self.log_end_offset)

    def _cut_segments(self, offset: int) -> None:
        kept = [segment for segment in self.segments.all if segment.base_offset <= offset]
        removed = self.segments.all[len(kept) :]
        self.segments.set_segments(kept)
        for segment in reversed(removed):  # newest first, so that a crash leaves no gap
            segment.delete()
        active = self.segments.active
        if unshare_files(self.filesystem, self.directory, active.base_offset):
            active.close()
        active.truncate_to(offset)
        self.log_end_offset = active.load_end()

    def _replace_all(self, offset: int) -> None:
        for segment in reversed(self.segments.all):
            segment.delete()
        fresh = self._new_segment(offset)
        fresh.create()
        self.segments.set_segments([fresh])
        self.log_end_offset = offset

    def sync_truncation(self) -> None:
        """Make the changes of `truncate_to`, here and in the log above, durable. Raises OSError."""
        self.segments.note_aborts()
        try:
            self.durability.sync_truncation(self.segments.active)
        except OSError as error:
            self._sync_failed(error)
            raise

    # Removing segments: off the list on the loop, then `retire_segments` and `unlink_files` in a thread

    def retire_segments(self, segments: Iterable[Segment]) -> list[Path]:
        """Give the files of detached segments the suffix `.deleted`, durably; return the new names. Blocks.

        From then on a start removes them. Waits for a running flush, since its thread may use these files.
        """
        with self.durability.lock, storage_errors(self.name):
            return retire(self.filesystem, self.directory, segments)

    def unlink_files(self, files: Iterable[Path]) -> None:
        """Remove the files that `retire_segments` has renamed. Blocks."""
        with storage_errors(self.name):
            for path in files:
                unlink_if_exists(self.filesystem, path)

    # Compacted segments (`segment_swap.py`)

    def begin_swap(self, cleaned: Cleaned) -> bool:
        """Reserve the segments that a compacted one is to replace; return False when they are gone."""
        return self.offline_reason is None and self.segment_swap.begin(cleaned, self.recovery_point)

    def swap_files(self, cleaned: Cleaned) -> list[Path]:
        """Move the compacted files into place, durably; return the files to unlink later. Blocks.

        Raises KafkaStorageError: nothing has changed; or, if the log is offline then, the next start finishes the swap.
        Readers continue with the files that they hold. `finish_swap` follows.
        """
        with self.durability.lock, storage_errors(self.name):
            try:
                return self.segment_swap.swap_files(cleaned, self._new_segment)
            except SwapStuck as error:
                self.offline_reason = error.strerror
                raise KafkaStorageError(f"{self.name}: {error.strerror}") from error

    def finish_swap(self) -> None:
        """Show the compacted segment to readers, if its files are in place."""
        if self.segment_swap.finish():
            self.list_transaction_indexes()

    def list_transaction_indexes(self, *, sync: bool = False) -> None:
        """Write the list of existing transaction indexes, so that a missing one is noticed."""
        aborting = [(segment.base_offset, segment.transaction_index) for segment in self.segments.aborting]
        write_list(self.filesystem, self.directory, aborting, sync=sync)

    # Shutdown

    def abandon(self, reason: str) -> None:
        """Refuse appends from now on and close the files as they are."""
        self.offline_reason = reason
        with self.durability.lock:
            for segment in self.segments.all:
                segment.close()
