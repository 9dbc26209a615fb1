"""Check a partition as a whole: its files, the order of its segments, its epochs, and its checkpoints."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import Entry, Filesystem
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery.lost_segments import lost_segments
from klamm.storage.tools.verify.findings import Finding
from klamm.storage.tools.verify.segment_check import SegmentJob, SegmentReport

LEFTOVER_SUFFIXES = (paths.DELETED_SUFFIX, paths.CLEANED_SUFFIX, paths.SWAP_SUFFIX, paths.TEMPORARY_SUFFIX)
KNOWN_FILES = (paths.PARTITION_METADATA, paths.LEADER_EPOCH_CHECKPOINT)
OWN_PREFIX = "klamm."


@dataclass(slots=True)
class PartitionCheck:
    """The check of one partition: `jobs` for its segments, and, when they are done, `finish`."""

    name: TopicPartition
    directory: Path
    is_clean: bool
    known: Mapping[str, int]
    """The offset of the partition in each checkpoint of the log directory, by file name."""
    deep: bool
    jobs: list[SegmentJob] = field(default_factory=list)
    reports: list[SegmentReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    topic_id: bytes | None = None

    @classmethod
    def plan(
        cls,
        filesystem: Filesystem,
        name: TopicPartition,
        directory: Path,
        *,
        is_clean: bool,
        known: Mapping[str, int],
        deep: bool,
    ) -> PartitionCheck:
        """Check the file names and plan the jobs. Raises OSError."""
        check = cls(name, directory, is_clean, known, deep)
        entries = {entry.name: entry for entry in filesystem.list_directory(directory)}
        check._plan_segments(entries)
        check._check_names(filesystem, entries)
        check._read_topic_id(filesystem)
        return check

    def _plan_segments(self, entries: Mapping[str, Entry]) -> None:
        found = sorted(
            (parsed[0], entry.size_bytes)
            for name, entry in entries.items()
            if (parsed := paths.parse_offset_file(name)) is not None and parsed[1] == paths.LOG_SUFFIX
        )
        if not found:
            self._problem(self.directory, "there is no segment")
        compacted_below = self.known.get(paths.CLEANER_CHECKPOINT, 0)
        for number, (base_offset, size_bytes) in enumerate(found):
            next_base = found[number + 1][0] if number + 1 < len(found) else None
            self.jobs.append(
                SegmentJob(
                    self.directory,
                    base_offset,
                    size_bytes,
                    next_base,
                    is_first=number == 0 and base_offset == 0,
                    is_settled=self.is_clean or next_base is not None,
                    is_compacted=base_offset < compacted_below,
                    deep=self.deep,
                )
            )

    def _check_names(self, filesystem: Filesystem, entries: Mapping[str, Entry]) -> None:
        bases = {job.base_offset for job in self.jobs}
        lost = lost_segments(filesystem, self.directory, entries)
        for offset in lost:
            path = paths.offset_file(self.directory, offset, paths.LOG_SUFFIX)
            self._problem(path, "is missing, though its index is there; a start takes the partition offline")
        for name, entry in entries.items():
            path = self.directory / name
            parsed = paths.parse_offset_file(name)
            if entry.is_directory:
                self._problem(path, "a directory in a partition")
            elif name.endswith(LEFTOVER_SUFFIXES) or name == paths.COMPACTION_MANIFEST:
                self._note(path, "left over; a start removes or finishes it")
            elif parsed is not None and parsed[1] in paths.SEGMENT_SUFFIXES:
                if parsed[0] not in bases and parsed[0] not in lost:
                    self._note(path, "belongs to no segment; a start removes it")
            elif parsed is None and name not in KNOWN_FILES and not name.startswith(OWN_PREFIX):
                self._note(path, "not a file of a log")

    def _read_topic_id(self, filesystem: Filesystem) -> None:
        path = self.directory / paths.PARTITION_METADATA
        try:
            self.topic_id = checkpoints.parse_partition_metadata(filesystem.read_bytes(path))
        except FileNotFoundError:
            self._note(path, "is missing: the partition has no topic id")
        except CheckpointError as error:
            self._problem(path, str(error))

    # When the segments are checked

    def finish(self, filesystem: Filesystem) -> None:
        """Add the findings that follow from all segments together."""
        self.reports.sort(key=lambda report: report.base_offset)
        for report in self.reports:
            self.findings += report.findings
        if not self.reports or any(report.is_damaged for report in self.reports):
            return  # the log end is unknown, and the damage is already reported
        self._check_gaps()
        self._check_epochs(filesystem)
        self._check_checkpoints()

    def _check_gaps(self) -> None:
        missing = sum(report.missing_offsets for report in self.reports)
        if missing and paths.CLEANER_CHECKPOINT not in self.known:
            self._note(self.directory, f"{missing} offsets are missing, though it was never compacted")
        for before, after in pairwise(self.reports):
            if before.next_offset > after.base_offset:
                path = paths.offset_file(self.directory, after.base_offset, paths.LOG_SUFFIX)
                self._problem(path, f"begins below the end of the segment before it, {before.next_offset}")

    def _check_epochs(self, filesystem: Filesystem) -> None:
        path = self.directory / paths.LEADER_EPOCH_CHECKPOINT
        runs = [run for report in self.reports for run in report.epochs if run[0] >= 0]
        try:
            rows = checkpoints.parse_lines(filesystem.read_bytes(path))
            entries = [(int(epoch), int(start)) for epoch, start in rows]
        except FileNotFoundError:
            if runs:
                self._problem(path, "is missing; a start rebuilds it")
            return
        except (CheckpointError, ValueError) as error:
            self._problem(path, str(error))
            return
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
            self._problem(path, f"epochs and offsets do not ascend: {entries}")
            return
        self._check_runs(path, runs, entries)

    def _check_runs(self, path: Path, runs: Sequence[tuple[int, int, int]], entries: list[tuple[int, int]]) -> None:
        starts = [start for _, start in entries]
        log_start = self.known.get(paths.LOG_START_CHECKPOINT, 0)
        for epoch, first, last in runs:
            if last < log_start:
                continue
            for offset in (max(first, log_start), last):
                index = bisect_right(starts, offset) - 1
                found = entries[index][0] if index >= 0 else None
                if found != epoch:
                    is_tail = found is not None and not self.is_clean and epoch > entries[-1][0]
                    what = f"offset {offset} has leader epoch {epoch}, here it is {found}"
                    self.findings.append(Finding(path, what, is_tail))
                    return

    def _check_checkpoints(self) -> None:
        start, end = self.reports[0].base_offset, self.reports[-1].next_offset
        for file, offset in self.known.items():
            if offset > end:
                path = self.directory.parent / file
                self._problem(path, f"{self.name} {offset} is above the log end {end}: data is missing")
        if self.known.get(paths.LOG_START_CHECKPOINT, 0) < start and start > 0 and self.is_clean:
            path = self.directory.parent / paths.LOG_START_CHECKPOINT
            self._note(path, f"{self.name} is not known to begin at {start}")

    def _problem(self, path: Path, what: str) -> None:
        self.findings.append(Finding(path, what))

    def _note(self, path: Path, what: str) -> None:
        self.findings.append(Finding(path, what, True))

    def id_text(self) -> str:
        return uuid_to_text(self.topic_id) if self.topic_id is not None else "none"
