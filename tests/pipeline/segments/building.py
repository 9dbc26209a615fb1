"""Partition directories, made batch by batch, and what a reader should get of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.segments import LogDirs, Piece, read_piece
from klamm.protocol.records.batch import BatchHeader, Record, batches, encode_batch, read_header, records, stamp
from klamm.protocol.records.control import end_marker_batch
from klamm.storage.log.index import OFFSET_ENTRY
from klamm.storage.log.transaction_index import ENTRY, VERSION

T0 = TopicPartition("t", 0)
LIMIT = 1 << 24

Row = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


class Partition:
    """A directory `t-0` in a log directory: small segments, each with an index of every `index_bytes`."""

    def __init__(self, log_dir: Path, *, segment_bytes: int = 1500, index_bytes: int = 200, keys: int = 5) -> None:
        self.log_dir = log_dir
        self.directory = log_dir / "t-0"
        self.directory.mkdir(parents=True)
        self.segment_bytes = segment_bytes
        self.index_bytes = index_bytes
        self.keys = keys
        self.next_offset = 0
        self.open: dict[int, int] = {}
        self._base = -1
        self._since_entry = 0

    def file(self, suffix: str, base: int | None = None) -> Path:
        return self.directory / f"{self._base if base is None else base:020d}{suffix}"

    def roll(self) -> None:
        self._base = self.next_offset
        self.file(".log").touch()
        self._since_entry = 0

    def append(self, batch: bytes | bytearray) -> BatchHeader:
        head = read_header(bytes(batch))
        if self._base < 0 or self.file(".log").stat().st_size + len(batch) > self.segment_bytes:
            self.roll()
        position = self.file(".log").stat().st_size
        if self._since_entry > self.index_bytes:
            with self.file(".index").open("ab") as index:
                index.write(OFFSET_ENTRY.pack(head.last_offset - self._base, position))
            self._since_entry = 0
        with self.file(".log").open("ab") as log:
            log.write(batch)
        self._since_entry += len(batch)
        self.next_offset = head.next_offset
        return head

    def produce(self, values: Iterable[bytes | None], *, producer: int = -1, **options: Any) -> None:
        """One batch; of an open transaction, if a producer is given. The keys are few."""
        offset = self.next_offset
        listed = [Record(at, 1000 + at, self.key(at), value) for at, value in enumerate(values, offset)]
        if producer >= 0:
            options |= {"producer_id": producer, "producer_epoch": 0, "transactional": True}
            self.open.setdefault(producer, offset)
        self.append(encode_batch(listed, base_offset=offset, **options))

    def key(self, offset: int) -> bytes:
        return b"%d" % ((offset * 2654435761 >> 9) % self.keys)

    def end(self, producer: int, *, is_commit: bool, indexed: bool = True) -> None:
        marker = end_marker_batch(producer, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=0)
        stamp(marker, self.next_offset, 0)
        first = self.open.pop(producer, None)
        head = self.append(marker)
        if first is not None and not is_commit and indexed:
            stable = min(self.open.values(), default=head.next_offset)
            with self.file(".txnindex").open("ab") as index:
                index.write(ENTRY.pack(VERSION, producer, first, head.base_offset, stable))

    def logs(self) -> LogDirs:
        return LogDirs([self.log_dir])


def stored(partition: Partition) -> Iterator[Record]:
    """All records that are not control records, by the plain decoder."""
    for path in sorted(partition.directory.glob("*.log")):
        data = path.read_bytes()
        for position, head in batches(data):
            if not head.is_control:
                yield from records(data, head, LIMIT, position)


def whole(logs: LogDirs, *, read_committed: bool = True) -> OffsetRange:
    end = logs.end_offset(T0, read_committed=read_committed)
    return OffsetRange("t", 0, logs.start_offset(T0), end)


def rows(pieces: Iterable[Piece], **options: Any) -> list[Row]:
    found: list[Row] = []
    for piece in pieces:
        for batch in read_piece(piece, **options):
            found += zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
    return found


def as_rows(listed: Iterable[Record]) -> list[Row]:
    return [(one.offset, one.key, one.value) for one in listed]
