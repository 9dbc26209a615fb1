"""Tables and rows of tests."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.table import Change, DataFile, FilesWriter, Location, Table

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("date", pa.date32()),
    ]
)
DAY_MS = 86_400_000
START_MS = 20_000 * DAY_MS


def rows(offsets: range, *, partition: int = 0, times_ms: list[int] | None = None, text: str = "v") -> pa.RecordBatch:
    """Rows as tasks write them: without topic and date."""
    times = times_ms or [START_MS + offset for offset in offsets]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"k%d" % offset for offset in offsets]),
            pa.array([f"{text}{offset}".encode() for offset in offsets]),
            pa.array([partition] * len(offsets), pa.int32()),
            pa.array(list(offsets), pa.int64()),
            pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "partition", "offset", "timestamp"],
    )


def new_table(path: Path) -> Table:
    return Table.create(Location.of(str(path)), SCHEMA)


def written(table: Table, offsets: range, *, partition: TopicPartition = P0, text: str = "v") -> list[DataFile]:
    writer = FilesWriter(table.location, partition.topic, partition.partition)
    writer.write(rows(offsets, partition=partition.partition, text=text))
    return writer.close()


def loaded(table: Table, offsets: range, *, partition: TopicPartition = P0, text: str = "v") -> int:
    """Write and commit what follows the table's offsets."""
    return table.commit(
        Change(
            expected={partition: table.next_offsets.get(partition)},
            offsets={partition: offsets.stop},
            added=written(table, offsets, partition=partition, text=text),
        )
    )


def offsets_of(table: Table) -> list[tuple[int, int]]:
    """All (partition, offset) of a table, sorted."""
    read = table.delta.to_pyarrow_table(columns=["partition", "offset"])
    return sorted(zip(read["partition"].to_pylist(), read["offset"].to_pylist(), strict=True))
