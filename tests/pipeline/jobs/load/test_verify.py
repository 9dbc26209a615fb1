"""`verify`, `status` and `vacuum` beside tables that are right, and tables that somebody has damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.pipeline.__main__ import main
from klamm.pipeline.commands.verify import line
from klamm.pipeline.jobs.verify.compare import Verdict, Verifier
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import LocalTasks
from klamm.pipeline.table import Change, DataFile
from tests.pipeline.jobs.load.changing import delete_before, delete_topic
from tests.pipeline.jobs.load.loading import Loading, json_rows, new_topic, produce
from tests.pipeline.spark.source.filling import fill

pytestmark = pytest.mark.clients


@pytest.fixture
def loading(cluster: Cluster, tmp_path: Path) -> Callable[[str], Loading]:
    return lambda topics: Loading(cluster, tmp_path / "table", topics)


def verdicts(load: Loading) -> list[Verdict]:
    with Report() as report:
        verifier = Verifier(load.table(), load.cluster, load.job().source, report)
        return verifier.run(verifier.pieces(), LocalTasks())


def change(load: Loading, *, added: list[DataFile] | None = None, removed: list[DataFile] | None = None) -> None:
    """Change the table like a tool that knows nothing of offsets."""
    table = load.table()
    table.commit(Change({}, {}, added or [], removed or []))


def test_a_loaded_table_is_good_and_holes_are_reported(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    fill(cluster, "verified")
    load = loading("verified")
    load.once(max_records_per_task=50)
    for verdict in verdicts(load):
        assert verdict.is_good and verdict.in_log == verdict.in_table > 100
        assert verdict.holes > 20  # aborted, and markers
    produce(cluster, TopicPartition("verified", 0), [b"not loaded yet"])
    assert all(verdict.is_good for verdict in verdicts(load))


def test_missing_and_double_rows_are_named(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "damaged")
    produce(cluster, partition, [b"v"] * 9)
    load = loading("damaged")
    load.once(max_records_per_task=3)
    first, second, third = sorted(load.table().files(), key=lambda file: file.first)
    change(load, removed=[second])
    (verdict,) = verdicts(load)
    assert line(verdict) == "damaged partition=0 offsets=0-9 log=9 table=6 MISSING 3-5"
    copy = load.path / third.path.replace("00000-", "00001-")
    copy.write_bytes((load.path / third.path).read_bytes())
    again = DataFile(str(copy.relative_to(load.path)), third.size_bytes, third.values, 0, 3, third.first, third.last)
    change(load, added=[again])
    (verdict,) = verdicts(load)
    assert line(verdict) == "damaged partition=0 offsets=0-9 log=9 table=9 MISSING 3-5; DUPLICATES 6-8"
    assert first.records == 3


def test_an_optimised_table_is_read_all_the_same(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    new_topic(cluster, "optimised", 2)
    load = loading("optimised")
    for number in range(4):
        produce(cluster, TopicPartition("optimised", number % 2), [b"v"] * 5)
        load.once()
    load.table().delta.optimize.compact()
    assert len(load.table().files()) == 1
    assert [line(verdict) for verdict in verdicts(load)] == [
        f"optimised partition={number} offsets=0-10 log=10 table=10 ok" for number in range(2)
    ]
    assert load.once() == 0


def test_dead_letters_gaps_and_where_loading_began_are_no_mismatch(
    cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path
) -> None:
    partition = new_topic(cluster, "explained")
    new_topic(cluster, "explained.dead")
    load = loading("explained")
    produce(cluster, partition, [b'{"a":1}', b"{", b'{"a":1}', b"{"])
    load.once(rows=json_rows(tmp_path), dead_letters="explained.dead")
    assert [line(verdict) for verdict in verdicts(load)] == [
        "explained partition=0 offsets=0-4 log=4 table=2 dead=2 ok"
    ]
    produce(cluster, partition, [b'{"a":1}'] * 4)
    delete_before(cluster, partition, 6)
    load.once(rows=json_rows(tmp_path), gaps_allowed=True)
    assert [line(verdict) for verdict in verdicts(load)] == ["explained partition=0 offsets=6-8 log=2 table=2 ok"]


def test_a_letter_of_a_run_that_was_replaced_explains_nothing(
    cluster: Cluster, loading: Callable[[str], Loading], tmp_path: Path
) -> None:
    partition = new_topic(cluster, "replaced")
    new_topic(cluster, "replaced.dead")
    load = loading("replaced")
    produce(cluster, partition, [b'{"a":1}', b"x"])
    load.once(rows=json_rows(tmp_path), dead_letters="replaced.dead")
    load.once(0, rows=json_rows(tmp_path), dead_letters="replaced.dead")
    assert verdicts(load)[0].dead == 1
    facts = {"ranges": {"replaced": {"0": [0, 2]}}}
    load.table().commit(Change({partition: 2}, {partition: 2}, facts=facts))
    assert line(verdicts(load)[0]).endswith("MISSING 1")


def test_rows_that_the_log_has_not(cluster: Cluster, loading: Callable[[str], Loading]) -> None:
    partition = new_topic(cluster, "surplus")
    new_topic(cluster, "kept", cleanup_policy="compact")
    for topic in ("surplus", "kept"):
        produce(cluster, TopicPartition(topic, 0), [b"v"] * 3)
    load = loading("surplus,kept")
    load.once()
    file = next(file for file in load.table().files() if file.topic == "surplus")
    foreign = load.table().location
    from klamm.pipeline.table import FilesWriter
    from tests.pipeline.table.samples import rows

    for topic, offsets in (("surplus", range(3, 5)), ("kept", range(3, 4))):
        writer = FilesWriter(foreign, topic, 0)
        writer.write(rows(offsets))
        change(load, added=writer.close())
    kept, surplus = verdicts(load)
    assert line(surplus) == "surplus partition=0 offsets=0-3 log=3 table=5 NOT IN THE LOG 3-4"
    assert line(kept) == "kept partition=0 offsets=0-3 log=3 table=4 NOT IN THE LOG 3"
    assert file.topic_partition == partition


def test_only_the_new_rows_of_a_recreated_topic_are_compared(
    cluster: Cluster, loading: Callable[[str], Loading]
) -> None:
    partition = new_topic(cluster, "twice")
    produce(cluster, partition, [b"old"] * 5)
    load = loading("twice")
    load.once()
    delete_topic(cluster, "twice")
    new_topic(cluster, "twice")
    produce(cluster, partition, [b"new"] * 3)
    load.once(gaps_allowed=True)
    assert [line(verdict) for verdict in verdicts(load)] == ["twice partition=0 offsets=0-3 log=3 table=3 ok"]


def test_the_command_exits_with_2(
    cluster: Cluster, loading: Callable[[str], Loading], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    partition = new_topic(cluster, "command")
    produce(cluster, partition, [b"v"] * 4)
    load = loading("command")
    load.once(max_records_per_task=2)
    monkeypatch.setattr("klamm.pipeline.commands.verify.spark_session", lambda *_: Session())
    monkeypatch.setattr("klamm.pipeline.spark.tasks.SparkTasks", lambda *_: LocalTasks())
    given = [
        "verify",
        "--bootstrap-servers",
        cluster.bootstrap_servers,
        "--table",
        str(load.path),
        "--progress",
        "none",
    ]
    assert main([*given, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "command partition=0 start=0 end=4 files=2",
        "total offsets=4 tasks=1",
    ]
    assert main(given) == 0
    assert capsys.readouterr().out == "command partition=0 offsets=0-4 log=4 table=4 ok\n"
    change(load, removed=load.table().files()[:1])
    assert main([*given, "--json"]) == 2
    (document,) = json.loads(capsys.readouterr().out)
    assert document["ok"] is False and document["in_table"] == 2 and len(document["missing"]) == 1
    assert main([*given, "--topics", "none"]) == 1
    assert "topic none does not exist" in capsys.readouterr().err


class Session:
    def stop(self) -> None:
        pass


def test_status_tells_lag_and_losses(
    cluster: Cluster, loading: Callable[[str], Loading], capsys: pytest.CaptureFixture[str]
) -> None:
    partition = new_topic(cluster, "lagging", 2)
    produce(cluster, partition, [b"v"] * 4)
    load = loading("lagging")
    load.once()
    produce(cluster, partition, [b"v"] * 4)
    delete_before(cluster, partition, 6)
    table = ["--table", str(load.path)]
    where = [*table, "--bootstrap-servers", cluster.bootstrap_servers]
    assert main(["status", *table]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(f"table {load.path} (version 1, version 1 at 20") and head.endswith(" by load: 4 records)")
    assert lines == ["lagging partition=0 next=4", "lagging partition=1 next=0"]
    assert main(["status", *where, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["partitions"] == [
        {"topic": "lagging", "partition": 0, "next": 4, "start": 6, "end": 8, "lag": 2, "lost": 2},
        {"topic": "lagging", "partition": 1, "next": 0, "start": 0, "end": 0, "lag": 0},
    ]
    new_topic(cluster, "lagging.new")
    assert main(["status", *where, "--pattern", "lagging.*"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "lagging.new partition=0 next=None start=0 end=0 lag=0" in lines and lines[-1] == "total partitions=3 lag=2"
    delete_topic(cluster, "lagging")
    assert main(["status", *where]) == 0
    assert "lagging partition=0 next=4" in capsys.readouterr().out
    assert main(["status", "--table", str(load.path / "none")]) == 1
    assert "is not a Delta table" in capsys.readouterr().err


def test_vacuum_names_orphans_and_deletes_them_on_request(
    cluster: Cluster, loading: Callable[[str], Loading], capsys: pytest.CaptureFixture[str]
) -> None:
    partition = new_topic(cluster, "swept")
    produce(cluster, partition, [b"v"] * 4)
    load = loading("swept")
    load.once()
    (file,) = load.table().files()
    orphan = (load.path / file.path).with_name("00000-00000000000000000000-killed.parquet")
    orphan.write_bytes(b"half")
    given = ["vacuum", "--table", str(load.path), "--progress", "none"]
    assert main(given) == 0 and capsys.readouterr().out == ""  # it may belong to a run that has not ended
    os.utime(orphan, (1, 1))
    assert main(given) == 0
    assert capsys.readouterr().out == f"{orphan.relative_to(load.path)}\n"
    assert orphan.exists()
    assert main([*given, "--retention-hours", "1"]) == 1
    assert "--short-retention allows it" in capsys.readouterr().err
    assert main([*given, "--delete"]) == 0
    assert not orphan.exists() and (load.path / file.path).exists()
    assert load.once() == 0 and verdicts(load)[0].is_good
