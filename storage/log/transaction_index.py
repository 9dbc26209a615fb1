"""The aborted transactions with markers in a segment (`.txnindex`), which a read_committed reader must leave out.

Format (Apache Kafka's; big endian, 34 bytes each, created at the first abort):
    int16 version = 0, int64 producer id, int64 first offset, int64 last offset (of the marker),
    int64 last stable offset when the marker was written, as far as transactions hold it back
The last offsets ascend; the last stable offsets never descend. A transaction may have begun segments earlier. So a
reader of offsets below `end` also searches later segments, up to an entry with a last stable offset at or above `end`:
no transaction that ended later can have begun below that.

The entry of an abort is written at once. If the disk refuses, it stays in memory and the recovery point does not
advance. After a crash the index of a segment above the recovery point is rebuilt from the batches, whatever the file
has. For the other segments the list below tells, after a crash as after a clean close, whether the file is the one that
was written. A file that was not read is never written, whatever else is done to the segment: it holds the only copy of
its entries.

`klamm.txnindexes`, a plain file in the partition directory, lists the existing transaction indexes:
    0            version
    1            number of lines that follow
    1200 3 c0ffee00      base offset, number of entries, CRC-32C of the content in hex
Without it a missing `.txnindex` would look like a segment without aborts. A missing or outdated list does no harm: an
index with more entries than listed is taken as it is, one that does not match is rebuilt.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from klamm.protocol.records.crc import crc32c
from klamm.storage import paths
from klamm.storage.checkpoints import CheckpointError, format_lines, parse_lines
from klamm.storage.filesystem import Filesystem, describe, replace_file
from klamm.storage.log.index import EntryFile

logger = logging.getLogger(__name__)

ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
VERSION = 0
_LAST_OFFSET = Struct(">18xq")


class AbortedTransaction(NamedTuple):
    """A transaction aborted by the marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex(EntryFile):
    """The aborted transactions of one segment, in the order of their markers."""

    __slots__ = ("_is_known", "_listed")

    def __init__(self, filesystem: Filesystem, path: Path) -> None:
        super().__init__(filesystem, path, ENTRY, _LAST_OFFSET)
        self._is_known = False  # the file was read, or its content no longer counts
        self._listed: tuple[int, int] | None = None

    def open_existing(self, size_bytes: int) -> None:
        super().open_existing(size_bytes)
        self._is_known = True

    def clear(self) -> None:
        super().clear()
        self._is_known = True

    def append(self, aborted: AbortedTransaction) -> None:
        assert not self.count or aborted.last_offset > self.entry(self.count - 1).last_offset
        self._tail += ENTRY.pack(VERSION, *aborted)
        self._grown()

    def write_through(self) -> None:
        """Write the new entries to the file, if the disk lets it."""
        self._spill()

    def entry(self, index: int) -> AbortedTransaction:
        _, *fields = ENTRY.unpack_from(*self._at(index))
        return AbortedTransaction(*fields)

    def collect(self, start: int, end: int, found: list[AbortedTransaction]) -> bool:
        """Add the transactions with offsets in [start, end); return whether later segments cannot have more of them."""
        for index in range(self._floor(start - 1) + 1, self.count):
            aborted = self.entry(index)
            if aborted.first_offset < end:
                found.append(aborted)
            if aborted.last_stable_offset >= end:
                return True
        return False

    def truncate(self, offset: int) -> None:
        """Forget the transactions with markers at `offset` or above."""
        self._cut(self._floor(offset - 1) + 1)

    @property
    def is_in_use(self) -> bool:
        """Whether the file exists or must be written: none is made before the first abort."""
        return self.count > 0 or (self._is_known and self._filesystem.exists(self.path))

    def listed(self) -> tuple[int, int]:
        """Return the number of entries and the CRC, for the list."""
        if self._listed is None or self._listed[0] != self.count:
            self._listed = self.count, crc32c(self.content())
        return self._listed

    def content(self) -> bytes:
        """Return all entries, including those only in memory."""
        written = self._tail_first * ENTRY.size
        header = self._filesystem.open_read(self.path).read_at(written, 0) if written else b""
        return header + self._tail

    def _cut(self, count: int) -> None:
        super()._cut(count)
        self._listed = None


def entries(content: bytes) -> Iterator[AbortedTransaction]:
    """Yield the entries of a whole file."""
    for _, *fields in ENTRY.iter_unpack(content):
        yield AbortedTransaction(*fields)


def check(content: bytes, start: int, end: int) -> None:
    """Raise a ValueError that describes the defect of the index of a segment with offsets in [start, end)."""
    if len(content) % ENTRY.size:
        raise ValueError(f"{len(content)} bytes are not a whole number of entries")
    last_offset = last_stable_offset = -1
    for version, producer_id, first, last, stable in ENTRY.iter_unpack(content):
        what = f"aborted transaction of producer_id={producer_id} at [{first}, {last}]"
        if version != VERSION:
            raise ValueError(f"version {version} is not {VERSION}")
        if producer_id < 0 or not 0 <= first < last:
            raise ValueError(f"{what} has no valid offsets")
        if not start <= last < end:
            raise ValueError(f"{what} does not end in the segment, [{start}, {end})")
        if last <= last_offset:
            raise ValueError(f"{what} is not after offset {last_offset}")
        if not last_stable_offset <= stable <= last + 1:
            raise ValueError(f"{what} has the last stable offset {stable}")
        last_offset, last_stable_offset = last, stable


def write_list(
    filesystem: Filesystem, directory: Path, indexes: list[tuple[int, TransactionIndex]], *, sync: bool
) -> None:
    """Write the list of a log's transaction indexes. If the disk refuses, a missing index may go unnoticed."""
    path = directory / paths.TXN_INDEX_LIST
    if not indexes and not filesystem.exists(path):
        return
    try:
        replace_file(filesystem, path, format_list(indexes), sync=sync, sync_directory=False)
    except OSError as error:
        logger.warning("%s: %s not written: %s", directory.name, path.name, describe(error))


def format_list(indexes: Iterable[tuple[int, TransactionIndex]]) -> bytes:
    """Return the content of `klamm.txnindexes` for indexes and the base offsets of their segments."""
    listed = ((base_offset, *index.listed()) for base_offset, index in indexes)
    return format_lines([f"{base_offset} {count} {crc:08x}" for base_offset, count, crc in listed])


def parse_list(content: bytes) -> dict[int, tuple[int, int]]:
    """Return number of entries and CRC by base offset. Raises CheckpointError."""
    try:
        return {int(base): (int(count), int(crc, 16)) for base, count, crc in parse_lines(content)}
    except ValueError as error:
        raise CheckpointError(f"not a list of transaction indexes: {error}") from error


def is_as_listed(content: bytes, listed: tuple[int, int]) -> bool:
    """Return whether a file begins with the listed content; it may have grown since."""
    count, crc = listed
    return len(content) >= count * ENTRY.size and crc32c(content[: count * ENTRY.size]) == crc
