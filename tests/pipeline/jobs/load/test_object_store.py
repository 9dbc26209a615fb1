"""A table in an object store: log and files go there, with the storage options of delta-rs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from klamm.pipeline.__main__ import main
from klamm.pipeline.errors import ConcurrentCommit, NotATable
from klamm.pipeline.jobs.verify.compare import Verifier
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import LocalTasks
from klamm.pipeline.table import Change, FilesWriter, Location, Table
from tests.pipeline.jobs.load.loading import Loading, log_rows, new_topic, produce
from tests.pipeline.table.samples import P0, SCHEMA, rows
from tests.support.object_store import ObjectStore

pytestmark = pytest.mark.clients


def test_a_load_into_a_bucket(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = new_topic(cluster, "stored", 2)
    with ObjectStore() as store:
        place = Location.of("s3://lake/topics/", store.options)
        load = Loading(cluster, tmp_path, "stored")
        for _ in range(2):
            produce(cluster, partition, [b"v", None, b""])
            assert load.once(location=place) == 3
            assert load.once(location=place) == 0
        read = DeltaTable("s3://lake/topics", storage_options=store.options).to_pyarrow_table()
        found = sorted(zip(*(read[name].to_pylist() for name in ("partition", "offset", "key", "value")), strict=True))
        assert found == log_rows(cluster, "stored")
        assert all(key.startswith(("topics/_delta_log/", "topics/topic=stored/")) for key in store.keys("lake"))
        with Report() as report:
            verifier = Verifier(Table.open(place), cluster, load.job().source, report)
            assert all(verdict.is_good for verdict in verifier.run(verifier.pieces(), LocalTasks()))
        options = [f"--storage-option={key}={value}" for key, value in store.options.items()]
        assert main(["status", "--table", "s3://lake/topics", *options]) == 0
        assert "stored partition=0 next=6" in capsys.readouterr().out
        store.put("lake/other/data.csv", b"1")
        with pytest.raises(
            NotATable, match=r"s3://lake/other is not a Delta table: it has no _delta_log, but data.csv"
        ):
            load.once(location=Location.of("s3://lake/other", store.options))


def test_rivals_in_a_bucket() -> None:
    with ObjectStore() as store:
        place = Location.of("s3://lake/t", store.options)
        table = Table.create(place, SCHEMA)
        rival = Table.open(place)
        for end, one in ((3, rival), (2, table)):
            writer = FilesWriter(place, "orders", 0)
            writer.write(rows(range(end)))
            change = Change({P0: None}, {P0: end}, writer.close())
            if one is rival:
                assert one.commit(change) == 1
            else:
                with pytest.raises(ConcurrentCommit, match="another job has loaded orders-0 meanwhile, up to 3"):
                    one.commit(change)
        assert Table.open(place).next_offsets == {P0: 3}
        assert len(Table.open(place).files()) == 1
