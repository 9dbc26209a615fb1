"""Loads by Spark's tasks, and tables as Spark reads them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from klamm.pipeline.errors import BadRecord
from klamm.pipeline.jobs.compact.job import CompactJob, Compactor, Source
from klamm.pipeline.jobs.load.job import Loader
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import SparkTasks
from klamm.pipeline.table import Location, dataframe, files
from tests.pipeline.jobs.load.loading import Loading, json_rows, new_topic, one_line, produce, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.clients]


def test_tasks_write_and_the_driver_commits(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    for name in ("2024", "plain"):  # a topic that looks like a number stays a text
        produce(cluster, new_topic(cluster, name, 3), [b'{"a":1}'] * 7)
    load, printed = Loading(cluster, tmp_path / "table", "2024,plain"), io.StringIO()
    with Report(mode="log", stream=printed) as report:
        loader = Loader(load.job(rows=json_rows(tmp_path), max_records_per_task=3), cluster, SparkTasks(spark), report)
        assert loader.once() == 14
        assert loader.once() == 0
    assert "tasks=6 offsets=14" in printed.getvalue() and "load done records=14" in printed.getvalue()
    assert len(files(str(load.path))) == 6
    found = dataframe(spark, str(load.path)).where("topic = '2024'")
    assert sorted((row.topic, row.offset, row.value.a, str(row.date)) for row in found.collect()) == [
        ("2024", offset, 1, "2023-11-14") for offset in range(7)
    ]
    assert found.schema == dataframe(spark, str(load.path), 0).schema
    assert dataframe(spark, str(load.path), 0).count() == 0


def test_what_stops_a_task_is_one_line(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    produce(cluster, new_topic(cluster, "stopped"), [b'{"a":1}', b"nonsense"])
    load = Loading(cluster, tmp_path / "table", "stopped")
    with load.loader(SparkTasks(spark), rows=json_rows(tmp_path)) as loader, pytest.raises(BadRecord) as caught:
        loader.once()
    assert one_line(caught).startswith("stopped-0 offset 1 does not parse: value: not a JSON object: 'nonsense'")
    assert rows_of(load.path) == []


def test_compact_by_tasks(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "latest", 2)
    produce(cluster, partition, [b"1", b"2", b"3"])
    produce(cluster, partition, [b"4", None])
    job = CompactJob(Location.of(str(tmp_path / "table")), Loading(cluster, tmp_path, "latest").job().source, buckets=3)
    with Report() as report:
        compactor = Compactor(job, Source(job, cluster, None), SparkTasks(spark), report)
        assert compactor.once() == 5
    rows = dataframe(spark, str(tmp_path / "table")).select("topic", "partition", "key", "value").collect()
    assert sorted((row[0], row[1], bytes(row[2]), bytes(row[3])) for row in rows) == [
        ("latest", 0, b"k0", b"4"),
        ("latest", 0, b"k2", b"3"),
    ]
