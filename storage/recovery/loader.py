"""Open a log: read the files of a partition directory at the start, check and repair them.

After a clean close nothing is scanned: names, sizes, the last index entries and the snapshot suffice. After an unclean
one every batch of the segments from the recovery point on is checked, the indexes are rebuilt, and epochs and producers
are completed. The first bad batch decides:
- below the recovery point it was synced once, so the medium is damaged: `LogDamaged`, nothing is changed;
- above it, after a power cut: unsynced data survives in any order, so the log is cut there, later segments too, and the
  removed bytes are kept outside the log directory;
- above it, when only the process died: all written data is in the page cache, so a bad tail is a torn write and is cut.
  But good batches after a bad one mean damage: `LogDamaged`.
A log has lost files if it ends below a checkpoint (recovery point, log start, high watermark), or has the indexes of a
segment in its middle without the segment: `LogDamaged`. It never starts empty. Remains of a crash (`.deleted`,
`.cleaned`, `.tmp`, indexes without a log) are removed.

One file holds all of it, because these decisions depend on each other: each follows from everything before.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from pathlib import Path

from klamm.storage import paths
from klamm.storage.clock import Clock
from klamm.storage.filesystem import (
    Entry,
    Filesystem,
    describe,
    make_durable_directory,
    storage_errors,
    unlink_if_exists,
)
from klamm.storage.hard_links import unshare_files
from klamm.storage.log.index import MAX_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.leader_epochs import LeaderEpochCache
from klamm.storage.log.local_log import LocalLog
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.replay import load_producers, open_transaction_indexes
from klamm.storage.log.segment import Segment
from klamm.storage.log.swap_manifest import SwapManifestError, finish
from klamm.storage.recovery.lost_segments import lost_segments
from klamm.storage.recovery.recovery import Scan, end_of_content, find_batch_after, rebuild_epochs, scan_segment
from klamm.storage.recovery.split import overflows, split

logger = logging.getLogger(__name__)

LEFTOVER_SUFFIXES = (paths.DELETED_SUFFIX, paths.CLEANED_SUFFIX, paths.TEMPORARY_SUFFIX)
COPY_BYTES = 1 << 20


class LogDamaged(Exception):
    """The log cannot be opened without losing promised data. It stays as it is until an operator decides."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """The input of `open_log`: the directory, and the known facts about its content."""

    directory: Path
    config: LogConfig
    _: KW_ONLY
    clock: Clock
    filesystem: Filesystem
    clean: bool
    """Whether the log was closed properly; otherwise everything from the recovery point on is checked."""
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0
    power_loss: bool = False
    """Whether the machine went down since: unsynced bytes may be damaged in any order."""
    quarantine: Path | None = None
    """The directory for bytes that must be cut after a power cut."""
    producer_expiration_ms: int = 86_400_000
    jitter: Callable[[int], int] = random.randrange
    recovered: bool = False
    """Whether another process has checked it since: its files are as after a clean close, but not synced."""
    on_segment: Callable[[int], None] | None = None
    """Called with the size of each checked segment."""


def open_log(source: LogSource) -> Log:
    """Open the log in the directory, or begin an empty one.

    Raises LogDamaged (nothing was changed) or KafkaStorageError.
    """
    return _Loader(source).load()


class _Loader:
    """The opening of one log; used once."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._directory = source.directory
        self._name = source.directory.name
        self._config = source.config
        self._clock = source.clock
        self._filesystem = source.filesystem
        self._recovery_point = source.recovery_point
        self._power_loss = source.power_loss
        self._clean = source.clean
        self._epochs = LeaderEpochCache(source.filesystem, source.directory)
        self._producers = ProducerStateManager(self._name, source.producer_expiration_ms)
        self._files: dict[str, Entry] = {}
        self._snapshots: list[int] = []
        self._rebuilt: set[int] = set()  # base offsets of segments that have lost the indexes a close left

    def load(self) -> Log:
        with storage_errors(self._name):
            make_durable_directory(self._filesystem, self._directory)
            self._files = {entry.name: entry for entry in self._filesystem.list_directory(self._directory)}
            self._finish_swap()
            segments = self._find_segments()
            if self._split_overflowing(segments):
                segments = self._find_segments()
            self._check_logs()
            if segments:
                epochs_known = self._epochs.load()
                end = self._open_clean(segments) if self._clean or self._source.recovered else None
                if end is None:
                    self._clean = False
                    segments = self._recover(segments)
                    end = self._end_of(segments)
                log_end_offset = end
                self._check_end(log_end_offset)
            else:
                log_end_offset = self._source.log_start_offset
                self._check_end(0)
                epochs_known = True
                segments = [self._segment(log_end_offset, 0, self._clock.wall_ms())]
                segments[0].create()
            self._remove_leftovers(segments, log_end_offset)
            return self._make_log(segments, log_end_offset, epochs_known)

    def _make_log(self, segments: list[Segment], log_end_offset: int, epochs_known: bool) -> Log:
        log_start_offset = max(self._source.log_start_offset, segments[0].base_offset)
        self._own_files(segments[-1])
        if not epochs_known or (not len(self._epochs) and log_end_offset > segments[0].base_offset):
            rebuild_epochs(self._epochs, segments)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._epochs.try_write()
        recovery_point = log_end_offset if self._clean else min(self._recovery_point, log_end_offset)
        local = LocalLog(
            self._directory,
            self._config,
            segments,
            clock=self._clock,
            filesystem=self._filesystem,
            leader_epochs=self._epochs,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            flushed_offset=max(recovery_point, log_start_offset),  # the log start became durable with it
            jitter=self._source.jitter,
        )
        log = Log(local, producers=self._producers, leader_epochs=self._epochs, log_start_offset=log_start_offset)
        log.set_high_watermark(max(log_start_offset, min(self._source.high_watermark, log_end_offset)))
        if self._clean and self._snapshots and self._snapshots[-1] == log_end_offset:
            log.nothing_to_save()
        return log

    def _try(self, what: str, write: Callable[[], None]) -> None:
        """Write a file that can be rebuilt. If the disk refuses, the next start takes longer."""
        try:
            write()
        except OSError as error:
            logger.warning("%s: %s not written: %s", self._name, what, describe(error))

    # Files in the directory

    def _finish_swap(self) -> None:
        """Finish or drop an interrupted segment swap of a compaction."""
        try:
            if finish(self._filesystem, self._directory, self._files):
                logger.info("%s: finished an interrupted compaction", self._name)
                self._files = {entry.name: entry for entry in self._filesystem.list_directory(self._directory)}
        except SwapManifestError as error:
            raise LogDamaged(str(error)) from error

    def _split_overflowing(self, segments: list[Segment]) -> bool:
        """Split segments with too many offsets for their indexes; return whether there were any."""
        found = False
        for segment, following in zip(segments, [*segments[1:], None], strict=False):
            next_base_offset = following.base_offset if following is not None else None
            known = max(self._recovery_point, self._source.high_watermark)
            may_overflow = self._config.compacted and not 0 < known <= segment.base_offset + MAX_RELATIVE_OFFSET + 1
            if overflows(self._filesystem, segment, next_base_offset, last_may=may_overflow, names=self._files):
                parts = split(self._filesystem, self._directory, segment, self._part)
                self._rebuilt.update(parts)
                found |= bool(parts)
        if found:
            self._files = {entry.name: entry for entry in self._filesystem.list_directory(self._directory)}
        return found

    def _part(self, base_offset: int, suffix: str) -> Segment:
        return Segment(
            self._filesystem,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            segment_index_bytes=self._config.segment_index_bytes,
            created_ms=self._clock.wall_ms(),
            suffix=suffix,
        )

    def _find_segments(self) -> list[Segment]:
        segments = []
        self._snapshots = []
        for name, entry in self._files.items():
            parsed = paths.parse_offset_file(name)
            if parsed is not None and parsed[1] == paths.LOG_SUFFIX:
                segments.append(self._segment(parsed[0], entry.size_bytes, entry.modified_ms))
            elif parsed is not None and parsed[1] == paths.SNAPSHOT_SUFFIX:
                self._snapshots.append(parsed[0])
        segments.sort(key=lambda segment: segment.base_offset)
        self._snapshots.sort()
        return segments

    def _segment(self, base_offset: int, size_bytes: int, created_ms: int) -> Segment:
        jitter = min(self._config.segment_jitter_ms, self._config.segment_ms)
        return Segment(
            self._filesystem,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            segment_index_bytes=self._config.segment_index_bytes,
            created_ms=created_ms,
            roll_jitter_ms=self._source.jitter(jitter) if jitter > 0 else 0,
            size_bytes=size_bytes,
            preallocate_bytes=self._config.segment_bytes if self._config.preallocate else 0,
        )

    def _remove_leftovers(self, segments: list[Segment], log_end_offset: int) -> None:
        bases = {segment.base_offset for segment in segments}
        newest = max((offset for offset in self._snapshots if offset <= log_end_offset), default=-1)
        # Names without a suffix first: indexes must not outlive the `.deleted` log that explains why it is missing.
        for name in sorted(self._files, key=lambda name: name.endswith(LEFTOVER_SUFFIXES)):
            parsed = paths.parse_offset_file(name)
            if name.endswith(LEFTOVER_SUFFIXES):
                stale = True
            elif parsed is None:
                continue
            elif parsed[1] == paths.SNAPSHOT_SUFFIX:
                stale = parsed[0] > log_end_offset or (parsed[0] not in bases and parsed[0] != newest)
            else:
                stale = parsed[1] in paths.SEGMENT_SUFFIXES and parsed[0] not in bases
            if stale:
                self._remove_leftover(name)
        self._snapshots = [offset for offset in self._snapshots if offset <= log_end_offset]

    def _remove_leftover(self, name: str) -> None:
        """Remove a leftover file. An index or a snapshot without a suffix would count at the next start: it must go."""
        try:
            if unlink_if_exists(self._filesystem, self._directory / name):
                logger.info("%s: removed leftover %s", self._name, name)
        except OSError as error:
            if not name.endswith(LEFTOVER_SUFFIXES):
                raise
            logger.warning("%s: leftover %s stays until the next start: %s", self._name, name, describe(error))

    def _check_logs(self) -> None:
        """Refuse a log with indexes of a segment but no `.log`, unless a power cut may have lost its name."""
        for offset in lost_segments(self._filesystem, self._directory, self._files):
            if offset < self._recovery_point or not self._power_loss:
                raise LogDamaged(f"segment {offset} has lost its log: data is missing")

    def _check_end(self, log_end_offset: int) -> None:
        """Refuse a log that ends below a checkpoint of it."""
        known = {"recovery point": self._recovery_point, "log start": self._source.log_start_offset}
        if not self._power_loss:
            known["high watermark"] = self._source.high_watermark
        for what, offset in known.items():
            if offset > log_end_offset:
                raise LogDamaged(f"the log ends at {log_end_offset}, below its {what} {offset}: data is missing")

    # After a clean close

    def _open_clean(self, segments: list[Segment]) -> int | None:
        """Open the files unchecked; return the log end, or None when they do not match and must be checked."""
        active = segments[-1]
        for segment, following in pairwise(segments):
            if not self._open_indexes(segment, following.base_offset):
                self._rebuild_indexes(segment)
        if not self._open_indexes(active, active.base_offset + MAX_RELATIVE_OFFSET):
            self._rebuild_indexes(active)
        try:
            end_offset = active.load_end()
        except ValueError as error:
            logger.warning("%s: not as a clean close leaves it: %s", self._name, error)
            return None
        if not active.indexes_are_sane(end_offset):
            self._rebuild_indexes(active)
        active.load_largest_timestamp()
        self._open_transaction_indexes(segments, end_offset)
        self._load_producers(segments, end_offset)
        return end_offset

    def _rebuild_indexes(self, segment: Segment) -> None:
        logger.warning("%s: rebuilding the indexes of segment %d", self._name, segment.base_offset)
        self._rebuilt.add(segment.base_offset)
        segment.rebuild_indexes()
        segment.become_inactive()
        self._try("indexes", segment.sync_indexes)

    def _open_transaction_indexes(self, segments: list[Segment], end_offset: int) -> None:
        open_transaction_indexes(segments, end_offset, self._filesystem, self._files, self._snapshots, self._rebuilt)

    def _open_indexes(self, segment: Segment, end_offset: int) -> bool:
        """Open both indexes; return whether they exist and their last entries are plausible."""
        offset_entry = self._files.get(segment.offset_index.path.name)
        time_entry = self._files.get(segment.time_index.path.name)
        if offset_entry is None or time_entry is None:
            return segment.size_bytes == 0
        if offset_entry.size_bytes % OFFSET_ENTRY.size or time_entry.size_bytes % TIME_ENTRY.size:
            return False
        segment.offset_index.open_existing(offset_entry.size_bytes)
        segment.time_index.open_existing(time_entry.size_bytes)
        if not segment.indexes_are_sane(end_offset):
            return False
        if (offset_entry.size_bytes, time_entry.size_bytes) != segment.index_bytes:  # zeros after the entries
            self._try("indexes", segment.sync_indexes)
        return True

    # After an unclean close

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Check everything from the recovery point on; return the segments that stay.

        A segment that ends at the recovery point may have been rolled after the flush: its indexes may be incomplete.
        """
        first = max(0, bisect_left([segment.base_offset for segment in segments], self._recovery_point) - 1)
        for segment, following in pairwise(segments[: first + 1]):
            if not self._open_indexes(segment, following.base_offset):
                self._rebuild_indexes(segment)
        base_offset = segments[first].base_offset
        self._open_transaction_indexes(segments[:first], base_offset)
        self._snapshots = [offset for offset in self._snapshots if offset <= base_offset]
        self._load_producers(segments[:first], base_offset)
        self._epochs.truncate_from_end(base_offset)
        next_offset = base_offset
        for index in range(first, len(segments)):
            segment = segments[index]
            is_gap = segment.base_offset != next_offset and segment.base_offset > self._recovery_point
            if is_gap and (self._power_loss or not self._config.compacted):  # compaction makes gaps below it
                previous = segments[index - 1]
                gap = Scan(previous.size_bytes, next_offset, f"segment {segment.base_offset} follows")
                return self._cut(segments, index - 1, gap)
            scan = scan_segment(
                segment,
                max(next_offset, segment.base_offset),
                self._epochs,
                self._producers,
                power_loss=self._power_loss,
            )
            if scan.problem is not None:
                return self._cut(segments, index, scan)
            if self._source.on_segment is not None:
                self._source.on_segment(segment.size_bytes)
            if index + 1 < len(segments):
                segment.become_inactive()
            next_offset = scan.next_offset
        return segments

    def _cut(self, segments: list[Segment], index: int, scan: Scan) -> list[Segment]:
        """Decide whether the first problem allows a cut, and cut there."""
        segment = segments[index]
        where = f"segment {segment.base_offset} position {scan.end_position} offset {scan.next_offset}: {scan.problem}"
        if scan.next_offset < self._recovery_point:
            raise LogDamaged(f"{where}; below the recovery point {self._recovery_point}, the medium is damaged")
        if not self._power_loss:
            if index + 1 < len(segments):
                raise LogDamaged(f"{where}; later segments follow")
            good = find_batch_after(segment.file, scan.end_position, segment.size_bytes, scan.next_offset)
            if good is not None:
                raise LogDamaged(f"{where}; a good batch follows at position {good}")
        self._check_end(scan.next_offset)
        cut_bytes = segment.size_bytes - scan.end_position + sum(later.size_bytes for later in segments[index + 1 :])
        if self._power_loss:
            kept = self._keep(segments[index:], scan.end_position)
            logger.error(
                "%s: power was lost: cut at %s; cut_bytes=%d later_segments=%d kept=%s",
                self._name, where, cut_bytes, len(segments) - index - 1, kept,
            )  # fmt: skip
        else:
            logger.info("%s: torn write cut at %s; cut_bytes=%d", self._name, where, cut_bytes)
        for later in reversed(segments[index + 1 :]):
            later.delete()
        self._own_files(segment)
        segment.file.truncate(scan.end_position)
        segment.size_bytes = scan.end_position
        if self._power_loss:  # so that a second power cut does not bring back the removed files
            self._filesystem.sync_directory(self._directory)
            segment.sync()
        return segments[: index + 1]

    def _own_files(self, segment: Segment) -> None:
        """Unshare the files of a segment that is cut or appended to: a snapshot must not change with them."""
        entry = self._files.get(segment.path.name)
        if (
            entry is not None
            and entry.link_count > 1
            and unshare_files(self._filesystem, self._directory, segment.base_offset)
        ):
            segment.close()

    def _keep(self, segments: Iterable[Segment], position: int) -> Path | None:
        """Copy the bytes to be cut out of the log directory. An OSError here leaves the partition offline, uncut."""
        if self._source.quarantine is None:
            return None
        directory = self._source.quarantine / f"{self._name}.{self._clock.wall_ms()}"
        make_durable_directory(self._filesystem, directory)
        for segment in segments:
            end = end_of_content(segment.file, position, segment.size_bytes)
            if end > position:
                copy = self._filesystem.open_file(directory / f"{segment.path.name}.from-{position}", create=True)
                for at in range(position, end, COPY_BYTES):
                    copy.write_at(segment.file.read_at(min(COPY_BYTES, end - at), at), at - position)
                copy.truncate(segment.size_bytes - position)  # zeros at the end take no space
                copy.sync()
            position = 0
        self._filesystem.sync_directory(directory)
        return directory

    # After either

    def _end_of(self, segments: list[Segment]) -> int:
        try:
            return segments[-1].load_end()
        except ValueError as error:
            raise LogDamaged(str(error)) from error

    def _load_producers(self, segments: list[Segment], end_offset: int) -> None:
        load_producers(
            self._producers,
            segments,
            end_offset,
            self._filesystem,
            self._clock.wall_ms(),
            self._directory,
            self._snapshots,
        )
