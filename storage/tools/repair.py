"""Repair the log of one partition, in the way an operator chooses, while no broker has its log directory open.

- `truncate`: the log ends at the first bad batch; everything after it is removed.
- `skip`: only the damaged bytes are removed. Their offsets are then missing, as after compaction.

Before any change, the bytes to be removed are copied to the place where recovery keeps cut bytes, beside the log
directory. Then, each step durable before the next: the checkpoints are lowered to the new end; the indexes of changed
segments and the snapshots above the first damage are deleted (a start rebuilds them); segments are cut at the end, or
rewritten and swapped in as by compaction (`log/swap_manifest.py`). So a crash on the way leaves the damage, or the rest
of it, in place: repair again. At the end the log is checked as after a crash, which rebuilds indexes, epochs and
producers, and closed cleanly.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Final

from klamm.protocol.errors import KafkaStorageError
from klamm.protocol.records.batch import BatchHeader
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.clock import Clock
from klamm.storage.filesystem import (
    File,
    Filesystem,
    describe,
    make_durable_directory,
    unlink_if_exists,
)
from klamm.storage.hard_links import unshare_files
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.swap_manifest import SwapManifest, SwapManifestError, announce, carry_out, finish
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.damage import Damage, find_damage
from klamm.storage.recovery.loader import LogDamaged, LogSource, open_log
from klamm.storage.recovery.lost_segments import lost_segments
from klamm.storage.scrub.scrub_state import forget_damage

COPY_BYTES: Final = 1 << 20

CHECKPOINTS: Final = (
    paths.RECOVERY_POINT_CHECKPOINT,
    paths.LOG_START_CHECKPOINT,
    paths.HIGH_WATERMARK_CHECKPOINT,
    paths.CLEANER_CHECKPOINT,
)
INDEX_SUFFIXES: Final = (paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX)


class RepairError(Exception):
    """The repair is impossible: one line for the operator."""


class Mode(enum.Enum):
    TRUNCATE = "truncate"
    SKIP = "skip"


@dataclass(slots=True)
class _Segment:
    base_offset: int
    size_bytes: int
    file: File
    damage: list[Damage]
    next_offset: int
    """The offset after its last good batch."""


class Repair:
    """The repair of one partition; used once. The caller holds the lock of the log directory."""

    def __init__(
        self,
        log_dir: Path,
        partition: TopicPartition,
        mode: Mode,
        *,
        filesystem: Filesystem,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._log_dir = log_dir
        self._partition = partition
        self._mode = mode
        self._filesystem = filesystem
        self._clock = clock
        self._say = say
        self._directory = paths.partition_directory(log_dir, partition.topic, partition.partition)
        self._batches = 0
        self._known: dict[str, dict[TopicPartition, int]] = {}
        self._lost: list[int] = []

    def run(self) -> bool:
        """Repair all damage; return whether there was any. Raises RepairError."""
        try:
            return self._run()
        except OSError as error:
            raise RepairError(f"{self._partition}: {error.filename or self._directory}: {describe(error)}") from error
        except (KafkaStorageError, LogDamaged, SwapManifestError) as error:
            raise RepairError(f"{self._partition}: {error}") from error

    def _run(self) -> bool:
        finish(
            self._filesystem,
            self._directory,
            [entry.name for entry in self._filesystem.list_directory(self._directory)],
        )
        for name in CHECKPOINTS:
            try:
                self._known[name] = checkpoints.read_offsets(self._filesystem, self._log_dir / name)
            except CheckpointError as error:
                raise RepairError(
                    f"{self._log_dir / name}: {error}; start the broker once, which rewrites it"
                ) from None
        segments = self._survey()
        self._say(
            f"{self._partition}: checked segments={len(segments)} batches={self._batches} "
            f"size_bytes={sum(segment.size_bytes for segment in segments)} in {self._directory}"
        )
        damaged = [(segment, damage) for segment in segments for damage in segment.damage]
        end = self._new_end(segments)
        too_high = {name: offset for name in CHECKPOINTS if (offset := self._checkpoint(name)) > end}
        if not damaged and not too_high:
            self._say(f"{self._partition}: nothing is damaged, nothing was changed")
            return False
        for segment, damage in damaged:
            self._say(f"{self._partition}: damaged: segment={segment.base_offset} {damage}")
        if damaged:
            self._change(segments, damaged[0][1].first_offset, end)
        else:
            self._lower_checkpoints(end)
        for name, offset in too_high.items():
            self._say(f"{self._partition}: {name} lowered from {offset} to {end}")
        self._finish()
        return True

    # Survey

    def _survey(self) -> list[_Segment]:
        found = sorted(
            (parsed[0], entry.size_bytes)
            for entry in self._filesystem.list_directory(self._directory)
            if (parsed := paths.parse_offset_file(entry.name)) is not None and parsed[1] == paths.LOG_SUFFIX
        )
        names = [entry.name for entry in self._filesystem.list_directory(self._directory)]
        self._lost = lost_segments(self._filesystem, self._directory, names)
        if not found:
            raise RepairError(f"{self._partition}: there is no segment in {self._directory}, nothing to keep")
        segments = []
        due = found[0][0]
        ends: list[int | None] = [*(base_offset for base_offset, _ in found[1:]), None]
        for (base_offset, size_bytes), end_offset in zip(found, ends, strict=True):
            due = max(due, base_offset)
            segments.append(self._look(base_offset, size_bytes, due, end_offset))
            due = segments[-1].next_offset
        self._note_gaps(segments)
        return segments

    def _look(self, base_offset: int, size_bytes: int, due: int, end_offset: int | None) -> _Segment:
        file = self._filesystem.open_file(paths.offset_file(self._directory, base_offset, paths.LOG_SUFFIX))
        last = due

        def on_batch(header: BatchHeader) -> None:
            nonlocal last
            last = header.last_offset + 1
            self._batches += 1

        damage = list(
            find_damage(file, base_offset, size_bytes, next_offset=due, end_offset=end_offset, on_batch=on_batch)
        )
        return _Segment(base_offset, size_bytes, file, damage, last)

    def _note_gaps(self, segments: list[_Segment]) -> None:
        """Note missing segments: compaction makes no gap above the recovery point, nor one with an index in it."""
        recovery_point = self._checkpoint(paths.RECOVERY_POINT_CHECKPOINT)
        for segment, following in pairwise(segments):
            end = following.base_offset
            is_lost = any(segment.base_offset < offset < end for offset in self._lost)
            if not segment.damage and (is_lost or end > max(segment.next_offset, recovery_point)):
                size = segment.size_bytes
                segment.damage.append(Damage(size, size, segment.next_offset, end, f"segment {end} follows"))

    def _new_end(self, segments: list[_Segment]) -> int:
        if self._mode is Mode.TRUNCATE:
            for segment in segments:
                if segment.damage:
                    return segment.damage[0].first_offset
        return max(segments[-1].next_offset, segments[-1].base_offset)

    def _checkpoint(self, name: str) -> int:
        return self._known[name].get(self._partition, 0)

    # Changes

    def _change(self, segments: list[_Segment], first_offset: int, end: int) -> None:
        changed = self._changed(segments)
        if changed:
            self._say(f"{self._partition}: the cut bytes are kept in {self._keep(changed)}")
        self._lower_checkpoints(end)
        for segment in changed:
            for suffix in INDEX_SUFFIXES:
                unlink_if_exists(self._filesystem, paths.offset_file(self._directory, segment.base_offset, suffix))
        for entry in self._filesystem.list_directory(self._directory):
            parsed = paths.parse_offset_file(entry.name)
            if parsed is not None and parsed[1] == paths.SNAPSHOT_SUFFIX and parsed[0] > first_offset:
                self._filesystem.unlink(self._directory / entry.name)
        self._filesystem.sync_directory(self._directory)
        if self._mode is Mode.TRUNCATE:
            self._truncate(changed)
        else:
            for segment in changed:
                self._rewrite(segment, is_last=segment is segments[-1])
        for offset, suffix in product(self._lost, paths.SEGMENT_SUFFIXES):  # last: they show that a segment is missing
            unlink_if_exists(self._filesystem, paths.offset_file(self._directory, offset, suffix))
        self._filesystem.sync_directory(self._directory)

    def _changed(self, segments: list[_Segment]) -> list[_Segment]:
        if self._mode is Mode.SKIP:
            return [segment for segment in segments if any(self._size(damage) for damage in segment.damage)]
        first = next(index for index, segment in enumerate(segments) if segment.damage)
        return segments[first:]

    @staticmethod
    def _size(damage: Damage) -> int:
        return damage.end_position - damage.position

    def _keep(self, changed: list[_Segment]) -> Path:
        """Copy the bytes that will be removed; return the directory of the copies."""
        quarantine = self._log_dir.with_name(self._log_dir.name + ".cut")
        directory = quarantine / f"{self._partition}.{self._clock.wall_ms()}"
        make_durable_directory(self._filesystem, directory)
        for number, segment in enumerate(changed):
            if self._mode is Mode.TRUNCATE:
                self._copy(directory, segment, segment.damage[0].position if number == 0 else 0, segment.size_bytes)
            else:
                for damage in segment.damage:
                    self._copy(directory, segment, damage.position, damage.end_position)
        self._filesystem.sync_directory(directory)
        return directory

    def _copy(self, directory: Path, segment: _Segment, start: int, stop: int) -> None:
        if start < stop:
            name = f"{paths.offset_file(directory, segment.base_offset, paths.LOG_SUFFIX).name}.from-{start}"
            copy = self._filesystem.open_file(directory / name, create=True)
            _copy(segment.file, copy, start, stop, 0)
            copy.sync()

    def _lower_checkpoints(self, end: int) -> None:
        for name, offsets in self._known.items():
            if offsets.get(self._partition, 0) > end:
                offsets[self._partition] = end
                checkpoints.write_offsets(self._filesystem, self._log_dir / name, offsets)

    def _truncate(self, changed: list[_Segment]) -> None:
        for segment in reversed(changed[1:]):
            self._delete(segment)
        first = changed[0]
        if unshare_files(self._filesystem, self._directory, first.base_offset):
            first.file = self._filesystem.open_file(
                paths.offset_file(self._directory, first.base_offset, paths.LOG_SUFFIX)
            )
        first.file.truncate(first.damage[0].position)
        first.file.sync()
        self._filesystem.sync_directory(self._directory)

    def _delete(self, segment: _Segment) -> None:
        for suffix in reversed(paths.SEGMENT_SUFFIXES):  # the log last: otherwise the segment would look lost
            unlink_if_exists(self._filesystem, paths.offset_file(self._directory, segment.base_offset, suffix))

    def _rewrite(self, segment: _Segment, *, is_last: bool) -> None:
        """Replace a damaged segment with one of its good bytes."""
        if sum(self._size(damage) for damage in segment.damage) == segment.size_bytes and not is_last:
            self._delete(segment)
            self._filesystem.sync_directory(self._directory)
            return
        path = paths.offset_file(self._directory, segment.base_offset, paths.LOG_SUFFIX + paths.CLEANED_SUFFIX)
        new = self._filesystem.open_file(path, create=True)
        new.truncate(0)
        start = size = 0
        for damage in [*segment.damage, None]:
            stop = damage.position if damage is not None else segment.size_bytes
            _copy(segment.file, new, start, stop, size)
            size += stop - start
            start = damage.end_position if damage is not None else stop
        new.sync()
        swap = SwapManifest(segment.base_offset, (segment.base_offset,))
        announce(self._filesystem, self._directory, swap)
        carry_out(self._filesystem, self._directory, swap)

    def _finish(self) -> None:
        """Check the whole log, rebuild everything derived from the batches, and report the result."""
        log = open_log(
            LogSource(
                self._directory,
                LogConfig(compacted=True),  # allows gaps
                clock=self._clock,
                filesystem=self._filesystem,
                log_start_offset=self._checkpoint(paths.LOG_START_CHECKPOINT),
                clean=False,
            )
        )
        start, end, size_bytes, count = (
            log.log_start_offset,
            log.log_end_offset,
            log.local.size_bytes,
            len(log.local.segments.all),
        )
        log.close()
        points = self._known[paths.RECOVERY_POINT_CHECKPOINT]
        points[self._partition] = end
        checkpoints.write_offsets(self._filesystem, self._log_dir / paths.RECOVERY_POINT_CHECKPOINT, points)
        forget_damage(self._filesystem, self._log_dir, self._partition)
        self._say(
            f"{self._partition}: repaired, checked: offsets=[{start}, {end}) segments={count} size_bytes={size_bytes}"
        )


def _copy(source: File, target: File, start: int, stop: int, to: int) -> None:
    for at in range(start, stop, COPY_BYTES):
        target.write_at(source.read_at(min(COPY_BYTES, stop - at), at), to + at - start)
