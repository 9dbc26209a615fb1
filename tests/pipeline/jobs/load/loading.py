"""Loads of tests: a cluster, a table, and how its rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from klamm.pipeline.jobs.load.job import Loader, LoadJob
from klamm.pipeline.jobs.load.rows import Rows
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import EARLIEST, OffsetRange, TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.options import BATCH, Bound, parse
from klamm.pipeline.spark.tasks import LocalTasks, Tasks
from klamm.pipeline.table import Location, Table
from klamm.pipeline.values import parse_format
from klamm.protocol.records.batch import Record, encode_batch

START_MS = 1_700_000_000_000
KEPT = {"retention.ms": "-1"}
Row = tuple[int, int, bytes | None, Any]


@dataclass
class Loading:
    """Loads `topics` of a cluster into a table below `path`. `extra` are options of the data source."""

    cluster: Cluster
    path: Path
    topics: str
    extra: tuple[tuple[str, str], ...] = ()

    def job(self, **changes: Any) -> LoadJob:
        given = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "subscribe": self.topics,
            "includeHeaders": "true",
            **dict(self.extra),
        }
        job = LoadJob(Location.of(str(self.path)), parse(given, BATCH), Bound("--from", everywhere=EARLIEST))
        return replace(job, **changes)

    @contextmanager
    def loader(self, tasks: Tasks | None = None, **changes: Any) -> Iterator[Loader]:
        with Report() as report:
            yield Loader(self.job(**changes), self.cluster, tasks or LocalTasks(), report)

    def once(self, since_ms: int | None = None, **changes: Any) -> int:
        with self.loader(**changes) as loader:
            return loader.once(since_ms)

    def table(self, version: int | None = None) -> Table:
        return Table.open(Location.of(str(self.path)), version)


def rows_of(path: Path, version: int | None = None) -> list[Row]:
    """(partition, offset, key, value), sorted; by delta-rs."""
    read = DeltaTable(path, version=version).to_pyarrow_table(columns=["partition", "offset", "key", "value"])
    columns = [read[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    return sorted(zip(*columns, strict=True), key=lambda row: row[:2])


def duckdb_rows(path: Path) -> list[Row]:
    """The same by DuckDB, over what delta-rs says are the files: its own extension is not there without a network."""
    with duckdb.connect() as connection:
        connection.register("topics", DeltaTable(path).to_pyarrow_dataset())
        found = connection.sql('select "partition", "offset", key, value from topics order by 1, 2').fetchall()
    return [tuple(row) for row in found]


def log_rows(cluster: Cluster, topic: str) -> list[Row]:
    """The same out of the log, over the wire."""
    from klamm.pipeline.arrow import record_batches
    from klamm.pipeline.kafka.fetcher import fetch_columns

    partitions = cluster.topics([topic])[topic].topic_partitions
    starts, ends = cluster.earliest(partitions), cluster.latest(partitions)
    rows: list[Row] = []
    for partition in partitions:
        wanted = OffsetRange(*partition, starts[partition], ends[partition])
        for batch in record_batches(fetch_columns(cluster, wanted), *partition):
            rows += [(row["partition"], row["offset"], row["key"], row["value"]) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row[:2])


def produce(
    cluster: Cluster, partition: TopicPartition, values: Sequence[bytes | None], *, at_ms: int = START_MS
) -> None:
    """One batch, keys k0, k1, ..."""
    records = [Record(index, at_ms + index, b"k%d" % index, value, ()) for index, value in enumerate(values)]
    with Producer(cluster) as producer:
        producer.send(partition, encode_batch(records))


def new_topic(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> TopicPartition:
    """Create a topic; return its partition 0. Config keys have `_` for dots."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    create_topic(cluster, name, partitions=partitions, configs=KEPT | given)
    return TopicPartition(name, 0)


def json_rows(tmp_path: Path, ddl: str = "a INT") -> Rows:
    (tmp_path / "value.ddl").write_text(ddl)
    return Rows(value=parse_format("value", "json", [str(tmp_path / "value.ddl")]))


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text
