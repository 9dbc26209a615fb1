"""`klamm-pipeline load` as a user runs it: plans, and the one line for an error."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from klamm.pipeline.__main__ import main
from klamm.pipeline.commands.load import start_bound
from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.repeating import stopped_by_signals
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.ranges import LATEST, TopicPartition
from klamm.pipeline.spark.source.options import Bound
from tests.pipeline.jobs.load.loading import Loading, new_topic, produce

pytestmark = pytest.mark.clients


def test_a_dry_run_prints_the_plan_and_changes_nothing(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(cluster, new_topic(cluster, "planned", 2), [b"v"] * 5)
    table = tmp_path / "table"
    given = ["--bootstrap-servers", cluster.bootstrap_servers, "--topics", "planned", "--table", str(table)]
    assert main(["load", *given, "--dry-run", "--max-records-per-task", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"table {table} (will be created)",
        "planned partition=0 start=0 end=5 tasks=3",
        "planned partition=1 start=0 end=0 tasks=0",
        "total partitions=2 offsets=5 tasks=3",
    ]
    assert not table.exists()
    Loading(cluster, table, "planned").once()
    produce(cluster, TopicPartition("planned", 1), [b"v"])
    assert main(["load", *given, "--dry-run", "--rerun-from", "2020-01-01"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"table {table} (version 1)",
        "planned partition=0 start=0 end=5 tasks=1",
        "planned partition=1 start=0 end=1 tasks=1",
        "replaces files=1 records=5",
        "total partitions=2 offsets=6 tasks=2",
    ]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["--topics", "none"], "topic none does not exist on"),
        (["--pattern", "no.thing"], "matches"),
        (["--pattern", "("], "is not a regular expression"),
        (["--topics", "wrong", "--from", "yesterday"], "--from yesterday: a time has the form 2026-11-21T18:30:00"),
        (["--topics", "wrong", "--from", '{"wrong":{"0":1,"7":2}}'], "--from names wrong-7, which is not read"),
        (["--topics", "wrong", "--from", '{"other":1}'], "--from has the form"),
        (["--topics", "wrong", "--rerun-from", "12"], "--rerun-from 12: a time has the form"),
        (["--topics", "wrong", "--rerun-from", "2026-01-01"], "--rerun-from: there is no table at"),
        (["--topics", "wrong", "--value", "json"], "--value json needs --value-schema FILE"),
        (["--topics", "wrong", "--option", "kafka.acks=all"], "option kafka.acks"),
        (["--topics", "wrong", "--option", "subscribe=x"], "--option subscribe: this command has its own option"),
        (["--topics", "wrong", "--max-records-per-commit", "5"], "belongs to --available-now and --every"),
        (["--topics", "wrong", "--dlq", "nowhere"], "topic nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], line: str
) -> None:
    if "wrong" not in cluster.topics():
        new_topic(cluster, "wrong")
    table = tmp_path / "table"
    where = ["--bootstrap-servers", cluster.bootstrap_servers, "--table", str(table)]
    assert main(["load", *where, *given]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("klamm-pipeline: ") and line in lines[0]
    assert not table.exists()


def test_a_path_that_is_no_table_is_left_as_it_is(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new_topic(cluster, "other")
    (tmp_path / "data.csv").write_text("1")
    where = ["--bootstrap-servers", cluster.bootstrap_servers, "--table", str(tmp_path), "--topics", "other"]
    assert main(["load", *where]) == 1
    assert "is not a Delta table: it has no _delta_log, but data.csv" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_topic_without_records_makes_an_empty_table_without_spark(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_topic(cluster, "empty")
    monkeypatch.setattr("klamm.pipeline.commands.load.spark_session", None)
    where = ["--bootstrap-servers", cluster.bootstrap_servers, "--table", str(tmp_path / "t"), "--topics", "empty"]
    assert main(["load", *where, "--progress", "none"]) == 0
    assert Loading(cluster, tmp_path / "t", "empty").table().next_offsets == {TopicPartition("empty", 0): 0}


def test_where_to_begin() -> None:
    assert start_bound("latest") == Bound("--from", everywhere=LATEST)
    assert start_bound("1700000000000") == start_bound("2023-11-14T22:13:20Z")
    assert start_bound("2023-11-14T23:13:20+01:00") == Bound("--from", timestamp=1_700_000_000_000)
    assert start_bound('{"t":{"0":5}}').offsets == {TopicPartition("t", 0): 5}
    with pytest.raises(BadOption):
        start_bound("")


def test_a_signal_asks_and_a_second_one_does_not_wait() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
