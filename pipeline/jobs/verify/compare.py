"""The comparison of the offsets of a table with those of the log, range by range, in tasks.

missing       in the log, not in the table, and no commit says why
duplicates    in the table more than once
surplus       in the table, not in the log: compaction explains it if the topic is compacted (`compacted`), or if it is
              unknown because only directories are read
dead, gaps    not in the table, as its commits say: dead letters, and offsets that were gone before they were loaded
holes         offsets of neither: control batches, aborted transactions, records compacted away before the load
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from klamm.pipeline.jobs.verify.commit_history import PartitionHistory, current_files, read_commit_history
from klamm.pipeline.jobs.verify.intervals import Interval, Offsets, common, count, merged, runs, without
from klamm.pipeline.kafka.topics import effective_configs
from klamm.pipeline.ranges import OffsetRange, TopicPartition, split
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.options import SourceOptions
from klamm.pipeline.spark.source.planning import Logs, subscribed
from klamm.pipeline.spark.tasks import Tasks
from klamm.pipeline.table import DataFile, Location, Table
from klamm.pipeline.table.files import MIXED

TASK_OFFSETS: Final = 5_000_000
COMPACT: Final = "compact"
CLEANUP_POLICY: Final = "cleanup.policy"


@dataclass(frozen=True, slots=True)
class Piece:
    """The range of one task: `wanted` in the log, and in the table from there up to `table_end`."""

    wanted: OffsetRange
    table_end: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of one piece; `records` are those of the log."""

    wanted: OffsetRange
    records: int
    size_bytes: int
    in_table: int
    missing: tuple[Interval, ...]
    surplus: tuple[Interval, ...]
    duplicates: tuple[Interval, ...]


@dataclass(slots=True)
class Verdict:
    """The result of one topic partition; offsets from `start` up to `end` were compared."""

    partition: TopicPartition
    start: int
    end: int
    in_log: int = 0
    in_table: int = 0
    missing: list[Interval] = field(default_factory=list)
    surplus: list[Interval] = field(default_factory=list)
    duplicates: list[Interval] = field(default_factory=list)
    dead: int = 0
    gaps: int = 0
    compacted: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.surplus or self.duplicates)

    @property
    def holes(self) -> int:
        return self.end - self.start - self.in_log - self.gaps


class Verifier:
    """The comparison of a table with the logs."""

    def __init__(self, table: Table, logs: Logs, source: SourceOptions, report: Report) -> None:
        self._table = table
        self._logs = logs
        self._source = source
        self._report = report
        self._commit_history = read_commit_history(table)

    def pieces(self) -> list[Piece]:
        """Return the pieces of all topic partitions that are both selected and loaded."""
        loaded = self._table.next_offsets
        partitions = {item: number for item, number in subscribed(self._logs, self._source).items() if item in loaded}
        starts, ends = self._logs.earliest(partitions), self._logs.latest(partitions, self._source.isolation)
        files = _by_topic(current_files(self._table, self._commit_history))
        found: list[Piece] = []
        for item, topic_id in sorted(partitions.items()):
            mine = [file for file in files.get(item.topic, ()) if file.partition in (item.partition, MIXED)]
            begin = max(starts[item], self._begun(item, mine))
            end = min(loaded[item], ends[item])
            last = max([loaded[item], *(file.last + 1 for file in mine)])
            if not self._source.connection:
                last = min(last, max(end, begin))  # directories may not have the last rows yet
            found += _cut(OffsetRange(*item, begin, max(begin, end), topic_id), max(last, begin), mine)
        return found

    def run(self, pieces: list[Piece], tasks: Tasks) -> list[Verdict]:
        """Read both sides."""
        work = functools.partial(compare, self._source, self._table.location)
        with self._report.progress("verify", total=sum(piece.wanted.count for piece in pieces)) as progress:
            found = tasks.run(work, pieces, progress)
        by_partition: dict[TopicPartition, list[Compared]] = {}
        for item in found:
            by_partition.setdefault(item.wanted.topic_partition, []).append(item)
        compacted = self._compacted({item.topic for item in by_partition})
        return [self._verdict(item, results, item.topic in compacted) for item, results in sorted(by_partition.items())]

    def _verdict(self, partition: TopicPartition, results: list[Compared], is_compacted: bool) -> Verdict:
        history = self._commit_history.partitions.get(partition, PartitionHistory())
        start, end = min(item.wanted.start for item in results), max(item.wanted.end for item in results)
        missing = merged(interval for item in results for interval in item.missing)
        surplus = merged(interval for item in results for interval in item.surplus)
        verdict = Verdict(
            partition,
            start,
            end,
            in_log=sum(item.records for item in results),
            in_table=sum(item.in_table for item in results),
            missing=without(missing, history.dead),
            surplus=surplus,
            duplicates=merged(interval for item in results for interval in item.duplicates),
            dead=count(common(missing, history.dead)),
            gaps=count(common([(start, end)], history.gaps)),
        )
        if is_compacted:
            verdict.compacted, verdict.surplus = count(common(surplus, [(0, end)])), without(surplus, [(0, end)])
        return verdict

    def _begun(self, partition: TopicPartition, files: list[DataFile]) -> int:
        """Return the first loaded offset; from the files when the log of the table does not reach back so far."""
        history = self._commit_history.partitions.get(partition)
        if (
            history is not None
            and history.begun is not None
            and (self._commit_history.is_complete or partition.topic in self._commit_history.since)
        ):
            return history.begun
        lowest = [file.first for file in files if file.partition == partition.partition]
        return min([*lowest, self._table.next_offsets[partition]])

    def _compacted(self, topics: set[str]) -> set[str]:
        if self._source.connection is None:
            return topics
        with self._source.connection.cluster() as cluster:
            found = effective_configs(cluster, topics, [CLEANUP_POLICY])
        return {topic for topic, configs in found.items() if COMPACT in configs.get(CLEANUP_POLICY, "").split(",")}


def compare(source: SourceOptions, location: Location, piece: Piece) -> Compared:
    """Compare one piece, in a task."""
    from klamm.pipeline.spark.source.logs import columns_of, planned

    wanted = piece.wanted
    logged = [part.offsets for task in planned(source, [wanted]) for part in columns_of(source, task)]
    log = np.concatenate(logged).astype(np.int64) if logged else np.empty(0, np.int64)
    table = table_offsets(location, piece)
    once, repeats = np.unique(table, return_counts=True)
    return Compared(
        wanted,
        records=len(log),
        size_bytes=sum(file.size_bytes for file in piece.files),
        in_table=len(table),
        missing=runs(np.setdiff1d(log, once, assume_unique=True)),
        surplus=runs(np.setdiff1d(once, log, assume_unique=True)),
        duplicates=runs(once[repeats > 1]),
    )


def table_offsets(location: Location, piece: Piece) -> Offsets:
    """Return the offsets of all rows of the piece, duplicates too."""
    import pyarrow.parquet as pq

    filesystem = location.filesystem()
    found = [np.empty(0, np.int64)]
    for file in piece.files:
        with filesystem.open_input_file(file.path) as stream:
            rows = pq.read_table(stream, columns=["partition", "offset"])
        offsets = rows["offset"].to_numpy().astype(np.int64)
        mine = rows["partition"].to_numpy() == piece.wanted.partition
        found.append(offsets[mine & (offsets >= piece.wanted.start) & (offsets < piece.table_end)])
    return np.concatenate(found)


def _cut(wanted: OffsetRange, table_end: int, files: list[DataFile]) -> Iterator[Piece]:
    parts = split([wanted], max_records=TASK_OFFSETS) or [wanted]
    for part in parts:
        end = part.end if part is not parts[-1] else max(table_end, part.end)
        touched = [file for file in files if file.partition == MIXED or (file.last >= part.start and file.first < end)]
        yield Piece(part, end, tuple(touched))


def _by_topic(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.topic, []).append(file)
    return found
