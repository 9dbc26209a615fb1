"""Loads straight from log directories: the same table as over the wire, with a broker or without."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from klamm.pipeline.jobs.load.job import Loader, LoadJob
from klamm.pipeline.jobs.verify.compare import Verdict, Verifier
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.ranges import EARLIEST, TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.source.logs import opened
from klamm.pipeline.spark.source.options import BATCH, Bound, parse
from klamm.pipeline.spark.tasks import LocalTasks
from klamm.pipeline.table import Location, Table
from tests.pipeline.jobs.load.loading import Loading, log_rows, produce, rows_of
from tests.pipeline.spark.source.filling import fill
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


def load_directory(path: Path, table: Path) -> tuple[int, list[Verdict]]:
    """Load without a broker; return the exit status and the verdicts of `verify`, without one, too."""
    options = parse({"logDirs": str(path), "subscribePattern": ".*", "includeHeaders": "true"}, BATCH)
    job = LoadJob(Location.of(str(table)), options, Bound("--from", everywhere=EARLIEST))
    with opened(options) as logs, Report() as report:
        loaded = Loader(replace(job, max_records_per_task=50), logs, LocalTasks(), report).once()
        verifier = Verifier(Table.open(job.location), logs, options, report)
        return loaded, verifier.run(verifier.pieces(), LocalTasks())


def test_a_copied_directory_gives_the_same_rows(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        fill(cluster, "filled")
        over_the_wire = Loading(cluster, tmp_path / "wire", "filled")
        count = over_the_wire.once()
        both = Loading(cluster, tmp_path / "both", "filled", (("logDirs", str(broker.data)),))
        assert both.once() == count
        shutil.copytree(broker.data, tmp_path / "copy")
        expected = log_rows(cluster, "filled")
        loaded, verdicts = load_directory(tmp_path / "copy", tmp_path / "table")
        assert loaded == count and all(item.is_good and item.in_log == item.in_table for item in verdicts)
        assert rows_of(tmp_path / "table") == rows_of(over_the_wire.path) == rows_of(both.path) == expected
        # Loaded further over the wire: an old copy then has nothing new, and is no loss.
        produce(cluster, TopicPartition("filled", 0), [b"later"])
        assert Loading(cluster, tmp_path / "table", "filled").once() == 1
        loaded, verdicts = load_directory(tmp_path / "copy", tmp_path / "table")
        assert loaded == 0 and all(item.is_good for item in verdicts)
        assert Loading(cluster, tmp_path / "table", "filled").once() == 0
        assert rows_of(tmp_path / "table") == log_rows(cluster, "filled")
