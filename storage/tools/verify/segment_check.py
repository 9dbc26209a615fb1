"""Check one segment by itself: one pass over its batches, in any process.

- every batch: whole, its checksum, ascending offsets within the segment; with `deep` also its records;
- `.index`: ascending, each entry at the batch with that last offset; `.timeindex`: ascending, each timestamp that of
  the batch with that offset, none before it larger; the last one is the largest of a closed segment;
- `.txnindex` and the producer snapshot at the end, compared with the snapshot at the start and the batches. Not for
  compacted segments (known by a checkpoint or missing offsets), which may have lost the batches needed to compute them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import NO_TIMESTAMP, UNKNOWN_COUNT, BatchHeader, payload, records
from klamm.protocol.records.check import check_records
from klamm.protocol.records.control import read_end_marker
from klamm.storage import paths
from klamm.storage.filesystem import File, Filesystem, OsFilesystem
from klamm.storage.log.index import OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.log.producer_state_entry import ProducerStateEntry, SnapshotError, parse_snapshot
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.scan import batches, problem_of
from klamm.storage.log.transaction_index import ENTRY as TRANSACTION_ENTRY
from klamm.storage.log.transaction_index import AbortedTransaction
from klamm.storage.log.transaction_index import check as check_transaction_index
from klamm.storage.recovery.damage import find_damage
from klamm.storage.tools.verify.findings import Finding
from klamm.storage.tools.verify.index_check import OffsetIndexCheck, TimeIndexCheck

DECOMPRESS_LIMIT = 1 << 30
FOR_EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class SegmentJob:
    """The description of a segment to check. `next_base` is the base offset of the next one, None for the last one."""

    directory: Path
    base_offset: int
    size_bytes: int
    next_base: int | None
    is_first: bool
    is_settled: bool
    """Whether it is closed for good, so that its indexes must be complete. The last segment is not while a broker
    writes, nor after a crash."""
    is_compacted: bool
    deep: bool


@dataclass(slots=True)
class SegmentReport:
    """The result. `epochs` are (leader epoch, first offset, last offset) of each run of batches."""

    base_offset: int
    size_bytes: int
    next_offset: int
    batches: int = 0
    records: int = 0
    missing_offsets: int = 0
    is_damaged: bool = False
    epochs: list[tuple[int, int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def check_segment(job: SegmentJob, filesystem: Filesystem | None = None) -> SegmentReport:
    """Check a segment in one pass; an unreadable file is a finding, too."""
    return _Check(job, filesystem if filesystem is not None else OsFilesystem()).run()


class _Check:
    def __init__(self, job: SegmentJob, filesystem: Filesystem) -> None:
        self._job = job
        self._filesystem = filesystem
        self._report = SegmentReport(job.base_offset, job.size_bytes, job.base_offset)
        self._log = self._path(paths.LOG_SUFFIX)
        self._producers = ProducerStateManager(job.directory.name, FOR_EVER_MS)
        self._aborted: list[AbortedTransaction] = []
        self._largest = NO_TIMESTAMP

    def _path(self, suffix: str) -> Path:
        return paths.offset_file(self._job.directory, self._job.base_offset, suffix)

    def _problem(self, path: Path, what: str, *, is_note: bool = False) -> None:
        self._report.findings.append(Finding(path, what, is_note))

    def run(self) -> SegmentReport:
        try:
            self._run()
        except OSError as error:
            self._problem(self._log, f"cannot be read: {error.strerror}")
            self._report.is_damaged = True
        return self._report

    def _run(self) -> None:
        job, report = self._job, self._report
        file = self._filesystem.open_read(self._log)
        replays = not job.is_compacted and self._load_producers()
        offset_index, time_index = self._offset_entries(), self._time_entries()
        size = min(file.size(), job.size_bytes) if job.next_base is None else file.size()
        end = 0
        for position, header, data in batches(file, 0, size):
            problem = problem_of(header, data, report.next_offset, job.base_offset)
            if problem is None and job.next_base is not None and header.last_offset >= job.next_base:
                problem = f"last offset {header.last_offset} where the next segment begins with {job.next_base}"
            if problem is not None:
                break
            self._account(header)
            if offset_index or time_index:
                offset_index.pass_batch(position, header)
                time_index.pass_batch(position, header)
            if replays and header.has_producer_id:
                self._replay(header, data)
            if job.deep:
                self._check_records(position, header, data)
            end = position + header.size_bytes
        if end < size:
            self._tell_damage(file, size)
            return
        if job.next_base is not None:
            report.missing_offsets += job.next_base - report.next_offset
        self._finish_indexes(offset_index, time_index)
        if replays and not report.missing_offsets:
            self._check_transactions()
            self._check_snapshot()

    def _account(self, header: BatchHeader) -> None:
        report = self._report
        report.batches += 1
        if header.record_count != UNKNOWN_COUNT:
            report.records += header.record_count
        if header.magic == 2:
            report.missing_offsets += header.base_offset - report.next_offset
        epochs = report.epochs
        if epochs and epochs[-1][0] == header.leader_epoch:
            epochs[-1] = (header.leader_epoch, epochs[-1][1], header.last_offset)
        else:
            epochs.append((header.leader_epoch, header.base_offset, header.last_offset))
        report.next_offset = header.last_offset + 1
        self._largest = max(self._largest, header.max_timestamp)

    def _tell_damage(self, file: File, size: int) -> None:
        """Report all damage. Bytes after the last good batch of an unsettled segment are an unfinished write."""
        job, report = self._job, self._report
        report.is_damaged = True
        for damage in find_damage(file, job.base_offset, size, end_offset=job.next_base):
            is_tail = job.next_base is None and not job.is_settled and damage.end_position == size
            words = "; a start cuts it" if is_tail else ""
            self._problem(self._log, f"{damage}{words}", is_note=is_tail)

    def _check_records(self, position: int, header: BatchHeader, data: memoryview) -> None:
        where = f"batch at position {position}"
        largest, count, last = NO_TIMESTAMP, 0, header.base_offset - 1
        try:
            if (
                header.magic == 2 and header.record_count == header.last_offset_delta + 1
            ):  # none is missing: the fast path
                _, delta, _, _ = check_records(payload(data, header, DECOMPRESS_LIMIT), header.record_count)
                if not header.is_log_append_time and header.base_timestamp + delta > header.max_timestamp:
                    self._problem(self._log, f"{where}: a record has a later timestamp than the batch")
                return
            for record in records(data, header, DECOMPRESS_LIMIT):
                if header.magic == 2 and not last < record.offset <= header.last_offset:
                    self._problem(self._log, f"{where}: record offset {record.offset} after {last}")
                last, count, largest = record.offset, count + 1, max(largest, record.timestamp)
        except KafkaError as error:
            self._problem(self._log, f"{where}: {error}")
            return
        if count and header.magic == 2 and largest > header.max_timestamp:
            self._problem(self._log, f"{where}: a record has timestamp {largest}, the batch {header.max_timestamp}")

    # Indexes

    def _offset_entries(self) -> OffsetIndexCheck:
        entries = self._entries(paths.INDEX_SUFFIX, OFFSET_ENTRY)
        return OffsetIndexCheck(self._path(paths.INDEX_SUFFIX), self._job.base_offset, entries, self._problem)

    def _time_entries(self) -> TimeIndexCheck:
        entries = self._entries(paths.TIME_INDEX_SUFFIX, TIME_ENTRY)
        return TimeIndexCheck(self._path(paths.TIME_INDEX_SUFFIX), self._job.base_offset, entries, self._problem)

    def _entries(self, suffix: str, layout: Struct) -> list[tuple[int, int]]:
        """Return (key, value) of each entry, with absolute offsets, without preallocated entries at the end."""
        job, path = self._job, self._path(suffix)
        try:
            content = self._filesystem.read_bytes(path)
        except FileNotFoundError:
            if job.size_bytes and job.is_settled:  # entries of an open segment are in memory at first
                self._problem(path, "is missing; a start rebuilds it")
            return []
        used = content.rstrip(b"\0")
        count = -(-len(used) // layout.size)
        if len(content) % layout.size:
            self._problem(path, f"{len(content)} bytes are not whole entries of {layout.size}")
            count = min(count, len(content) // layout.size)
        return list(layout.iter_unpack(content[: count * layout.size]))

    def _finish_indexes(self, offset_index: OffsetIndexCheck, time_index: TimeIndexCheck) -> None:
        offset_index.finish()
        time_index.finish()
        if self._job.is_settled and self._largest != NO_TIMESTAMP and time_index.is_there:
            last = time_index.last
            if last is not None and last[0] != self._largest:
                what = f"the last timestamp is {last[0]}, the largest of the segment {self._largest}"
                self._problem(self._path(paths.TIME_INDEX_SUFFIX), what)

    # Producers and transactions

    def _load_producers(self) -> bool:
        """Load the snapshot at the start of the segment; return whether the earlier state is known."""
        path = self._path(paths.SNAPSHOT_SUFFIX)
        try:
            self._producers.load(self._filesystem.read_bytes(path), 0)
        except FileNotFoundError:
            return self._job.is_first
        except SnapshotError as error:
            self._problem(path, str(error))
            return False
        return True

    def _replay(self, header: BatchHeader, data: memoryview) -> None:
        try:
            marker = read_end_marker(data, header) if header.is_control else None
        except KafkaError as error:
            self._problem(self._log, f"control batch at offset {header.base_offset}: {error}")
            return
        aborted = self._producers.replay(header, marker)
        if aborted is not None:
            self._aborted.append(aborted)

    def _check_transactions(self) -> None:
        path = self._path(paths.TXN_INDEX_SUFFIX)
        try:
            content = self._filesystem.read_bytes(path)
        except FileNotFoundError:
            content = b""
        try:
            check_transaction_index(content, self._job.base_offset, self._report.next_offset)
        except ValueError as error:
            self._problem(path, str(error))
            return
        found = [AbortedTransaction(*fields) for _, *fields in TRANSACTION_ENTRY.iter_unpack(content)]
        known = {(one.producer_id, one.last_offset): one.first_offset for one in found}
        for one in self._aborted:
            first_offset = known.pop((one.producer_id, one.last_offset), None)
            if first_offset is None:
                what = (
                    f"the transaction of producer_id={one.producer_id} aborted at offset {one.last_offset} is missing"
                )
                self._problem(path, what)
            elif first_offset != one.first_offset:
                what = f"the transaction of producer_id={one.producer_id} aborted at offset {one.last_offset} began at"
                self._problem(path, f"{what} {one.first_offset}, not at {first_offset}")
        for producer_id, last_offset in known:
            self._problem(
                path, f"producer_id={producer_id} has no transaction that was aborted at offset {last_offset}"
            )

    def _check_snapshot(self) -> None:
        """Check the snapshot at the end of this segment. A producer that is missing from it may have expired."""
        end = self._job.next_base if self._job.next_base is not None else self._report.next_offset
        path = paths.offset_file(self._job.directory, end, paths.SNAPSHOT_SUFFIX)
        try:
            found = parse_snapshot(self._filesystem.read_bytes(path))
        except FileNotFoundError:
            return
        except SnapshotError as error:
            if self._job.next_base is None:  # otherwise the next segment reports it
                self._problem(path, str(error))
            return
        for producer in found:
            known = self._producers.get(producer.producer_id)
            if known is None:
                self._problem(path, f"producer_id={producer.producer_id} has written nothing")
            elif _facts(producer) != _facts(known):
                what = f"producer_id={producer.producer_id} has {_facts(producer)}, the batches say {_facts(known)}"
                self._problem(path, what)


def _facts(producer: ProducerStateEntry) -> str:
    last_offset = producer.batches[-1].last_offset if producer.batches else -1
    return (
        f"epoch={producer.epoch} last_sequence={producer.last_sequence} last_offset={last_offset} "
        f"open_from={producer.first_transaction_offset}"
    )
