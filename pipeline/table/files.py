"""Data files of a table: written by tasks, reported to the driver, and named in a commit with their statistics.

topic=flights/date=2026-11-21/00003-00000000000000001024-5f0c6f7e....parquet      partition, first offset, random

A file has records of one topic partition and one date, in the order of the log. Topic and date are only in its path
and in the log, as Delta requires. Its statistics have its partition and its first and last offset, so that a job finds
the files of a range of offsets without opening them.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.table.location import Location

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake.transaction import AddAction, RemoveAction

TARGET_BYTES: Final = 256 * 1024 * 1024
"""The size at which a file ends, in Arrow's bytes; compressed it is smaller."""
GROUP_BYTES: Final = 32 * 1024 * 1024
"""The bytes of rows held to make a row group."""
OPEN_FILES: Final = 8
"""The most dates written at once; one more ends the file that was not written for the longest time."""
COMPRESSION: Final = "snappy"
EPOCH: Final = date(1970, 1, 1)
FIRST_DAY: Final = (date(1, 1, 1) - EPOCH).days
LAST_DAY: Final = (date(9999, 12, 31) - EPOCH).days
DAY_US: Final = 86_400_000_000
MIXED: Final = -1


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table. `values` are its partition values in Delta's sense; `first` and `last` are offsets in it.

    A file of another writer (OPTIMIZE joins several) may have several topic partitions: MIXED.
    """

    path: str
    size_bytes: int
    values: tuple[tuple[str, str], ...]
    partition: int
    records: int
    first: int
    last: int
    first_us: int = 0
    last_us: int = 0

    @property
    def topic(self) -> str:
        return dict(self.values)["topic"]

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def add(self, now_ms: int) -> AddAction:
        from deltalake.transaction import AddAction

        low: dict[str, object] = {"offset": self.first, "timestamp": _instant(self.first_us)}
        high: dict[str, object] = {"offset": self.last, "timestamp": _instant(self.last_us)}
        if "partition" not in dict(self.values):  # those have no statistics
            low["partition"] = high["partition"] = self.partition
        nulls = dict.fromkeys(low, 0)
        stats = {"numRecords": self.records, "minValues": low, "maxValues": high, "nullCount": nulls}
        return AddAction(self.path, self.size_bytes, dict(self.values), now_ms, True, json.dumps(stats))

    def remove(self, now_ms: int) -> RemoveAction:
        from deltalake._internal import RemoveAction

        return RemoveAction(self.path, True, now_ms, self.size_bytes, dict(self.values))


class FilesWriter:
    """A writer of one topic partition's records to files by date.

    Batches have the table's columns without `topic` and `date`, and come in the order of the log.
    """

    def __init__(
        self,
        location: Location,
        topic: str,
        partition: int,
        *,
        compression: str = COMPRESSION,
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._location = location
        self._topic = topic
        self._partition = partition
        self._compression = compression
        self._target_bytes = target_bytes
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        self._done: list[DataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch. Its timestamps are within the years 1 to 9999."""
        for day, part in by_day(batch):
            self._opened(day, part).write(part)
            if self._open[day].size_bytes >= self._target_bytes:
                self._end(day)

    def close(self) -> list[DataFile]:
        """End and return all files. They are on disk, and no reader sees them before a commit names them."""
        while self._open:
            self._end(next(iter(self._open)))
        return sorted(self._done, key=lambda file: file.first)

    def _opened(self, day: int, part: pa.RecordBatch) -> _OpenFile:
        if day not in self._open:
            if len(self._open) == OPEN_FILES:
                self._end(next(iter(self._open)))
            path = self._path(day, part["offset"][0].as_py())
            self._open[day] = _OpenFile(self._location, path, part.schema, self._compression)
        self._open.move_to_end(day)
        return self._open[day]

    def _path(self, day: int, first: int) -> str:
        name = f"{self._partition:05d}-{first:020d}-{uuid.uuid4().hex}.parquet"
        return f"topic={self._topic}/date={_iso(day)}/{name}"

    def _end(self, day: int) -> None:
        file = self._open.pop(day)
        file.close()
        self._done.append(
            DataFile(
                path=file.path,
                size_bytes=file.written_bytes,
                values=(("topic", self._topic), ("date", _iso(day))),
                partition=self._partition,
                records=file.records,
                first=file.first,
                last=file.last,
                first_us=file.first_us,
                last_us=file.last_us,
            )
        )


class _OpenFile:
    """A Parquet file that grows by row groups."""

    def __init__(self, location: Location, path: str, schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.records = self.size_bytes = self.written_bytes = 0
        self.first = self.last = -1
        self.first_us = self.last_us = 0
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._stack = ExitStack()
        self._file = self._stack.enter_context(location.new_file(path))
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=compression,
            use_dictionary=[name for name in ("partition", "timestamp_type") if name in schema.names],
            write_statistics=[name for name in ("partition", "offset", "timestamp") if name in schema.names],
        )

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        offsets, times = batch["offset"], pc.min_max(batch["timestamp"].cast("int64")).as_py()
        if not self.records:
            self.first, self.first_us, self.last_us = offsets[0].as_py(), times["min"], times["max"]
        self.last = offsets[-1].as_py()
        self.first_us, self.last_us = min(self.first_us, times["min"]), max(self.last_us, times["max"])
        self.records += len(batch)
        self.size_bytes += batch.nbytes
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        self._write_group()
        self._writer.close()
        self.written_bytes = self._file.tell()
        self._stack.close()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._held, self._held_bytes = [], 0


def by_day(batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    """Return the rows of each day (since 1970, UTC), in the order in which days first come, in order within a day."""
    import numpy as np
    import pyarrow as pa

    if not len(batch):
        return []
    days = np.floor_divide(batch["timestamp"].cast("int64").to_numpy(zero_copy_only=False), DAY_US)
    low, high = int(days.min()), int(days.max())
    assert FIRST_DAY <= low <= high <= LAST_DAY, "rows without a date were left out before"
    if low == high:
        return [(low, batch)]
    order = np.argsort(days, kind="stable")
    found, starts = np.unique(days[order], return_index=True)
    parts = np.split(order, starts[1:])
    by_first = sorted(zip(found.tolist(), parts, strict=True), key=lambda item: int(item[1][0]))
    return [(day, batch.take(pa.array(rows))) for day, rows in by_first]


def _iso(day: int) -> str:
    return (EPOCH + timedelta(days=day)).isoformat()


def _instant(microseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
