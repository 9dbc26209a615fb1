"""Compaction of one log: the last record of each key stays; order and offsets of the remaining records do not change.

    |  clean, once compacted  |  dirty  ...  end offset |  not yet: active, young, above the high watermark |
1. The keys of the dirty part are read into a map of bounded memory (`offset_map.py`); when it is full, the end offset
   is reached.
2. All segments below the end are filtered, batch by batch (`batch_filter.py`). Neighbours that fit into one segment are
   merged, into `<base offset>.log.cleaned` and its indexes, which are synced.
3. The output is read again and checked (`log/cleaned_segment.py`).
4. The broker swaps each new segment in as soon as it is ready (`log/swap_manifest.py`): no space is needed for a second
   log, and finished work is kept. Until then nothing that readers or a start use has changed.

This burns CPU, so it runs in its own process (`cleaner_worker.py`), which knows only the `Job`. A damaged batch raises
InvalidRecord or CorruptMessage: data with a wrong CRC is never rewritten. If an output file already exists, another
cleaner made it: that raises FileExistsError, so two never write to one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import BatchHeader, crc_is_valid, payload, read_header, records
from klamm.storage import paths
from klamm.storage.compaction.batch_filter import Rules, filter_batch, slices
from klamm.storage.compaction.cleaned_transactions import CleanedTransactions
from klamm.storage.compaction.offset_map import OffsetMap
from klamm.storage.filesystem import File, Filesystem, unlink_if_exists
from klamm.storage.log.cleaned_segment import Cleaned, check
from klamm.storage.log.index import MAX_RELATIVE_OFFSET
from klamm.storage.log.scan import batches
from klamm.storage.log.segment import Segment
from klamm.storage.log.transaction_index import AbortedTransaction, entries

WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A closed segment, as described by the broker."""

    base_offset: int
    end_offset: int  # base offset of the next one
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


@dataclass(frozen=True, slots=True)
class Job:
    """One run over one log. `sources` are all segments below `first_uncleanable`, oldest first."""

    directory: str
    sources: tuple[Source, ...]
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    decompress_limit: int
    last_offsets: dict[int, int] = field(default_factory=dict)
    last_epochs: dict[int, int] = field(default_factory=dict)
    aborted: tuple[AbortedTransaction, ...] = ()
    """Those that end at or above `first_uncleanable`; the others are in the sources' transaction indexes."""
    map_bytes: int = 128 << 20
    map_load_factor: float = 0.9
    bytes_per_second: float = float("inf")
    cut_count: int = 0
    """See `Log.cut_count`."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run; the next one begins at `end_offset`."""

    end_offset: int
    groups: tuple[Cleaned, ...]
    bytes_read: int
    bytes_written: int


class Cleaner:
    """The execution of one job; used once. `spent` gets the counts of bytes read and written, and may wait."""

    def __init__(self, job: Job, filesystem: Filesystem, spent: Callable[[int], None] = lambda _: None) -> None:
        self._job = job
        self._filesystem = filesystem
        self._spent = spent
        self._directory = Path(job.directory)
        self._bytes_read = self._bytes_written = 0
        self._aborted: list[AbortedTransaction] = []

    def run(self, on_group: Callable[[Cleaned], None] = lambda _: None) -> Result:
        """Run; call `on_group` for each finished group. Raises InvalidRecord, CorruptMessage, OSError."""
        job = self._job
        self._aborted = [*self._read_aborted(), *job.aborted]
        offsets = self._read_keys()
        if offsets.latest < job.first_dirty:
            return Result(job.first_dirty, (), self._bytes_read, 0)
        rules = Rules(
            offsets,
            job.now_ms,
            job.delete_retention_ms,
            job.last_offsets,
            job.decompress_limit,
            CleanedTransactions(self._aborted),
            job.last_epochs,
            job.first_uncleanable,
        )
        end_offset = offsets.latest + 1
        groups = []
        for sources in grouped(job, end_offset):
            group = self._clean(sources, rules)
            if group is not None:
                groups.append(group)
                on_group(group)
        return Result(end_offset, tuple(groups), self._bytes_read, self._bytes_written)

    def _read_aborted(self) -> Iterator[AbortedTransaction]:
        """Yield the entries of the sources' transaction indexes; they were checked when the log was opened."""
        for source in self._job.sources:
            if self._has_transaction_index(source):
                yield from entries(self._filesystem.read_bytes(self._transaction_index(source)))

    def _transaction_index(self, source: Source) -> Path:
        return paths.offset_file(self._directory, source.base_offset, paths.TXN_INDEX_SUFFIX)

    def _has_transaction_index(self, source: Source) -> bool:
        return self._filesystem.exists(self._transaction_index(source))

    def _read_keys(self) -> OffsetMap:
        job = self._job
        transactions = CleanedTransactions(self._aborted)
        offsets = OffsetMap(job.map_bytes, job.map_load_factor)
        for source in job.sources:
            if source.end_offset <= job.first_dirty:
                continue
            for header, data in self._batches(source):
                if header.last_offset < job.first_dirty:
                    continue
                if header.is_control:
                    transactions.is_empty_after(data, header)
                elif not transactions.is_aborted(header) and not self._take_keys(offsets, header, data):
                    return offsets
                offsets.latest = max(offsets.latest, header.last_offset)
            offsets.latest = max(offsets.latest, source.end_offset - 1)
        return offsets

    def _take_keys(self, offsets: OffsetMap, header: BatchHeader, data: memoryview) -> bool:
        """Add the keys of a batch; return False when the map is full."""
        base_offset, first_dirty = header.base_offset, self._job.first_dirty
        if header.magic < 2:
            return all(
                record.offset < first_dirty or record.key is None or offsets.put(record.key, record.offset)
                for record in records(data, header, self._job.decompress_limit)
            )
        found = slices(payload(data, header, self._job.decompress_limit), header.record_count)
        for _, _, _, _, _, offset_delta, key, _ in found:
            offset = base_offset + offset_delta
            if offset >= first_dirty and key is not None and not offsets.put(key, offset):
                return False
        return True

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield every batch of a segment, checked."""
        path = paths.offset_file(self._directory, source.base_offset, paths.LOG_SUFFIX)
        end = 0
        for position, header, data in batches(self._filesystem.open_read(path), 0, source.size_bytes):
            if not crc_is_valid(data, header):
                raise CorruptMessage(f"{path.name}: position {position} offset {header.base_offset}: wrong CRC")
            self._bytes_read += header.size_bytes
            self._spent(header.size_bytes)
            yield header, data
            end = position + header.size_bytes
        if end != source.size_bytes:
            raise CorruptMessage(f"{path.name}: no whole batch at position {end}")

    def _clean(self, group: list[Source], rules: Rules) -> Cleaned | None:
        """Write the remaining batches of some segments as one; None when that equals the existing segment."""
        out = _Output(self._job, group[0].base_offset, self._filesystem)
        rules.transactions.take_kept()  # drop those of a segment that stayed unchanged: so did its index
        unchanged = len(group) == 1
        for source in group:
            for header, data in self._batches(source):
                kept = filter_batch(data, header, rules)
                unchanged = unchanged and kept is data
                if kept is not None:
                    out.write(kept)
                    self._spent(len(kept))
        if unchanged:
            out.discard()
            return None
        out.finish(rules.transactions.take_kept(), has_index=any(map(self._has_transaction_index, group)))
        self._bytes_written += out.segment.size_bytes
        cleaned = Cleaned(
            group[0].base_offset,
            tuple(source.base_offset for source in group),
            out.segment.size_bytes,
            out.record_count,
            group[-1].end_offset,
            self._job.cut_count,
        )
        check(self._filesystem.open_read(out.segment.path), cleaned)
        return cleaned


def grouped(job: Job, end_offset: int) -> Iterator[list[Source]]:
    """Yield groups of the segments below `end_offset` that, by their present sizes, fit into one segment."""
    group: list[Source] = []
    for source in job.sources:
        if source.base_offset >= end_offset:
            break
        if group and not _fits(job, [*group, source]):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _fits(job: Job, group: list[Source]) -> bool:
    return (
        sum(source.size_bytes for source in group) <= job.segment_bytes
        and sum(source.offset_index_bytes for source in group) <= job.segment_index_bytes
        and sum(source.time_index_bytes for source in group) <= job.segment_index_bytes
        and group[-1].end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )


class _Output:
    """A segment with the suffix `.cleaned` that is being written."""

    def __init__(self, job: Job, base_offset: int, filesystem: Filesystem) -> None:
        self._directory = Path(job.directory)
        self._filesystem = filesystem
        self._buffer = bytearray()
        self.record_count = 0
        self.segment = Segment(
            filesystem,
            self._directory,
            base_offset,
            index_interval_bytes=job.index_interval_bytes,
            segment_index_bytes=job.segment_index_bytes,
            created_ms=job.now_ms,
            suffix=paths.CLEANED_SUFFIX,
        )
        self.segment.create(exclusive=True)

    def write(self, batch: memoryview | bytearray) -> None:
        segment, header = self.segment, read_header(batch)
        segment.account_batch(segment.size_bytes + len(self._buffer), header)
        self.record_count += header.record_count
        self._buffer += batch
        if len(self._buffer) >= WRITE_BYTES:
            self._spill()

    def _spill(self) -> None:
        if self._buffer:
            self.segment.file.write_at(self._buffer, self.segment.size_bytes)
            self.segment.size_bytes += len(self._buffer)
            self._buffer = bytearray()

    def finish(self, aborted: Iterable[AbortedTransaction], *, has_index: bool) -> None:
        """Complete the segment; `aborted` have their markers in it. It gets an index if a source `has_index`."""
        self._spill()
        if has_index:
            self._filesystem.open_file(self.segment.transaction_index.path, create=True)
        for transaction in aborted:
            self.segment.transaction_index.append(transaction)
        self.segment.become_inactive()
        files: list[File] = [self.segment.file, *self.segment.write_indexes()]
        for file in files:
            file.sync()

    def discard(self) -> None:
        for path in self.segment.files():
            unlink_if_exists(self._filesystem, path)
