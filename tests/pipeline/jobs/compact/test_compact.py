"""`compact` from topics and from tables, kept up to date; what makes it stop."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from klamm.pipeline.__main__ import main
from klamm.pipeline.errors import BadOption, ConcurrentCommit, DataLoss, NotATable, SourceReplaced, UnknownTopic
from klamm.pipeline.jobs.compact.job import CompactJob, Compactor, Source
from klamm.pipeline.jobs.compact.source import LoadedTable
from klamm.pipeline.jobs.verify.compare import Verifier
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import LocalTasks
from klamm.pipeline.table import Location
from klamm.protocol.records.batch import Record, encode_batch
from tests.pipeline.jobs.load.changing import delete_topic
from tests.pipeline.jobs.load.loading import Loading, log_rows, new_topic
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = pytest.mark.clients
START_MS = 1_700_000_000_000
Latest = dict[tuple[int, bytes], bytes]


def produce(cluster: Cluster, partition: TopicPartition, pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    records = [Record(index, START_MS + index, key, value, ()) for index, (key, value) in enumerate(pairs)]
    with Producer(cluster) as producer:
        producer.send(partition, encode_batch(records))


def some(rng: random.Random, count: int) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (b"%d" % rng.randrange(40), None if rng.random() < 0.3 else b"%d" % rng.getrandbits(32)) for _ in range(count)
    ]


def expected(cluster: Cluster, topic: str) -> Latest:
    found: Latest = {}
    for partition, _, key, value in log_rows(cluster, topic):
        assert key is not None
        found.pop((partition, key), None)
        if value is not None:
            found[partition, key] = value
    return found


def found_in(path: Path, version: int | None = None) -> Latest:
    rows = DeltaTable(path, version=version).to_pyarrow_table(columns=["partition", "key", "value"]).to_pylist()
    found = {(row["partition"], row["key"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


@contextmanager
def from_topic(load: Loading, **changes: Any) -> Iterator[Compactor]:
    with Report() as report:
        now = {name: changes.pop(name) for name in ("now_ms",) if name in changes}
        job = CompactJob(Location.of(str(load.path)), load.job().source, **changes)
        yield Compactor(job, Source(job, load.cluster, None), LocalTasks(), report, **now)


@contextmanager
def from_table(load: Loading, path: Path) -> Iterator[Compactor]:
    with Report() as report:
        job = CompactJob(Location.of(str(path)))
        loaded = LoadedTable(Location.of(str(load.path)), frozenset(load.topics.split(",")))
        yield Compactor(job, Source(job, None, loaded), LocalTasks(), report)


def test_a_topic_run_after_run(cluster: Cluster, tmp_path: Path) -> None:
    rng = random.Random(5)
    new_topic(cluster, "latest", 2)
    load = Loading(cluster, tmp_path / "table", "latest")
    for run in range(4):
        for number in range(2):
            produce(cluster, TopicPartition("latest", number), some(rng, 60))
        with from_topic(load, buckets=3 if run == 0 else None) as compactor:
            assert compactor.once() == 120
            assert compactor.once() == 0
        assert found_in(load.path) == expected(cluster, "latest")
    assert load.table().version == 4
    with from_topic(load, buckets=2) as compactor, pytest.raises(BadOption, match="has 3, which cannot be changed"):
        compactor.once()
    with from_topic(load) as compactor:
        assert compactor.once(rebuild=True) == 480
    assert found_in(load.path) == found_in(load.path, 4) == expected(cluster, "latest")


def test_a_loaded_table_run_after_run(cluster: Cluster, tmp_path: Path) -> None:
    rng = random.Random(6)
    new_topic(cluster, "via", 2)
    new_topic(cluster, "beside")
    load, target = Loading(cluster, tmp_path / "loaded", "via,beside"), tmp_path / "latest"
    only = Loading(cluster, load.path, "via")
    for _ in range(3):
        for number in range(2):
            produce(cluster, TopicPartition("via", number), some(rng, 50))
        produce(cluster, TopicPartition("beside", 0), some(rng, 5))
        load.once(max_records_per_task=20)
        with from_table(only, target) as compactor:
            assert compactor.once() == 100
            assert compactor.once() == 0
        assert found_in(target) == expected(cluster, "via")
    load.once(0)
    with from_table(only, target) as compactor:
        with pytest.raises(SourceReplaced, match="via-0 was loaded again from 0 on in version 4; --rebuild"):
            compactor.once()
        assert compactor.once(rebuild=True) == 300
        assert compactor.once() == 0
    assert found_in(target) == expected(cluster, "via")


def test_records_without_key_are_left_out_and_counted(cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "keyless")
    produce(cluster, partition, [(None, b"1"), (b"a", b"2"), (None, None)])
    load = Loading(cluster, tmp_path / "table", "keyless")
    with from_topic(load) as compactor:
        assert compactor.once() == 3
    assert found_in(load.path) == {(0, b"a"): b"2"}


def test_a_concurrent_commit_is_an_error(cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "contested")
    produce(cluster, partition, [(b"a", b"1")])
    load = Loading(cluster, tmp_path / "table", "contested")
    with from_topic(load) as compactor, from_topic(load) as rival:
        compactor.once()
        produce(cluster, partition, [(b"a", b"2")])
        plan, work = compactor.plan(), None
        assert rival.once() == 1
        work = compactor.work(plan)
        compactor.plan = lambda **_: plan  # type: ignore[method-assign]
        with pytest.raises(ConcurrentCommit):
            compactor.once()
    assert len(work) == 1 and found_in(load.path) == {(0, b"a"): b"2"}


def test_a_run_later_than_tombstones_last_stops(cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "rare", cleanup_policy="compact", delete_retention_ms="1000")
    load = Loading(cluster, tmp_path / "table", "rare")
    produce(cluster, partition, [(b"a", b"1")])
    with from_topic(load) as compactor:
        compactor.once()
    written_ms = next(load.table().commits()).timestamp_ms
    with from_topic(load, now_ms=lambda: written_ms + 200) as compactor:
        compactor.once()
    assert load.table().version == 1
    with from_topic(load, now_ms=lambda: written_ms + 5000) as compactor:
        compactor.once()  # nothing new: the run itself is logged
    assert load.table().version == 2
    written_ms = next(load.table().commits()).timestamp_ms
    produce(cluster, partition, [(b"a", None)])
    with from_topic(load, now_ms=lambda: written_ms + 5000) as compactor:
        with pytest.raises(DataLoss, match="topic rare keeps tombstones for 1000 ms"):
            compactor.once()
        assert compactor.once(rebuild=True) == 2
    assert found_in(load.path) == {}


def test_a_recreated_topic_needs_a_rebuild(cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "reborn")
    load = Loading(cluster, tmp_path / "table", "reborn")
    produce(cluster, partition, [(b"a", b"1"), (b"b", b"1")])
    with from_topic(load) as compactor:
        compactor.once()
    delete_topic(cluster, "reborn")
    new_topic(cluster, "reborn")
    produce(cluster, partition, [(b"a", b"2")])
    with from_topic(load) as compactor:
        with pytest.raises(DataLoss, match="was deleted and created again"):
            compactor.once()
        assert compactor.once(rebuild=True) == 1
        assert compactor.once() == 0
    assert found_in(load.path) == {(0, b"a"): b"2"}


def test_sources_that_cannot_be_used(cluster: Cluster, tmp_path: Path) -> None:
    partition = new_topic(cluster, "usable")
    produce(cluster, partition, [(b"a", b"1")])
    load = Loading(cluster, tmp_path / "table", "usable")
    with from_topic(load) as compactor:
        compactor.once()
    with pytest.raises(NotATable, match="is not a table that load has made"):
        LoadedTable(Location.of(str(load.path)), None)
    loaded = Loading(cluster, tmp_path / "loaded", "usable")
    loaded.once()
    both = Loading(cluster, loaded.path, "usable,none")
    with from_table(both, tmp_path / "x") as other, pytest.raises(UnknownTopic, match="has no topic none"):
        other.once()


def test_the_command(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        def stop(self) -> None:
            pass

    monkeypatch.setattr("klamm.pipeline.commands.compact.spark_session", lambda *_: Session())
    monkeypatch.setattr("klamm.pipeline.spark.tasks.SparkTasks", lambda *_: LocalTasks())
    partition = new_topic(cluster, "commanded")
    produce(cluster, partition, [(b"a", b"1"), (b"a", b"2")])
    Loading(cluster, tmp_path / "loaded", "commanded").once()
    table = ["--table", str(tmp_path / "t"), "--progress", "none"]
    topic = ["compact", *table, "--bootstrap-servers", cluster.bootstrap_servers, "--topics", "commanded"]
    assert main([*topic, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"table {tmp_path / 't'} (will be created)",
        "commanded partition=0 start=0 end=2",
        "total partitions=1 offsets=2 tasks=1",
    ]
    assert main(topic) == main(topic) == 0
    assert found_in(tmp_path / "t") == {(0, b"a"): b"2"}
    other = ["--table", str(tmp_path / "u"), "--progress", "none", "--from-table", str(tmp_path / "loaded")]
    assert main(["compact", *other, "--pattern", "comm.*"]) == 0
    assert found_in(tmp_path / "u") == {(0, b"a"): b"2"}
    for given, line in (
        (["compact", *table], "--topics or --pattern is required"),
        (["compact", *other, "--value", "json"], "--value is for topics, not for --from-table"),
        (["compact", *other, "--topics", "none"], "has no topic none"),
    ):
        assert main(given) == 1
        assert line in capsys.readouterr().err


def test_a_topic_while_the_broker_compacts_it(tmp_path: Path) -> None:
    """The table of the latest stays the same, and `verify` tells compacted records from missing ones."""
    rng = random.Random(8)
    cleaner = {"log.cleaner.backoff.ms": "50"}
    with BrokerProcess(tmp_path / "data", cleaner) as broker, Cluster(broker.address) as cluster:
        configs = {"cleanup_policy": "compact", "segment_bytes": str(1 << 20), "min_cleanable_dirty_ratio": "0.01"}
        partition = new_topic(cluster, "cleaned", **configs)
        load, latest = Loading(cluster, tmp_path / "loaded", "cleaned"), Loading(cluster, tmp_path / "l", "cleaned")
        for _ in range(6):  # filled up, so that each fills a segment
            produce(cluster, partition, [*some(rng, 60), (b"large", b"x" * 600_000)])
            load.once()
            with from_topic(latest) as compactor:
                compactor.once()
        wait_for(lambda: len(log_rows(cluster, "cleaned")) < 250, what="the topic is compacted")
        with Report() as report:
            verifier = Verifier(load.table(), cluster, load.job().source, report)
            (verdict,) = verifier.run(verifier.pieces(), LocalTasks())
        assert verdict.is_good and verdict.in_table == 6 * 61 > verdict.in_log and verdict.compacted > 100
        assert found_in(latest.path) == expected(cluster, "cleaned")
