"""Tables go to topics whole or not at all, and once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from klamm.pipeline.__main__ import main
from klamm.pipeline.arrow import HEADERS
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from tests.pipeline.mirroring import all_rows, rows
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker, Cluster(broker.address) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[:80]
    create_topic(cluster, name, partitions=2, configs={"retention.ms": "-1"})
    return name


def records(first: int, end: int, topic: str = "flights") -> pa.Table:
    """Records as `load` writes them."""
    numbers = range(first, end)
    columns = {
        "key": pa.array([None if n % 5 == 0 else b"k%d" % n for n in numbers], pa.binary()),
        "value": pa.array([None if n % 3 == 0 else b"v%d" % n for n in numbers], pa.binary()),
        "topic": pa.array([topic] * len(numbers)),
        "partition": pa.array([n % 2 for n in numbers], pa.int32()),
        "offset": pa.array(numbers, pa.int64()),
        "timestamp": pa.array([n * 1000 for n in numbers], pa.timestamp("us", "UTC")),
        "headers": pa.array([[{"key": "h", "value": b"%d" % n}] if n % 2 else None for n in numbers], HEADERS),
    }
    return pa.table(columns)


def command(cluster: Cluster, table: Path, *arguments: str) -> list[str]:
    servers = cluster.bootstrap_servers
    return ["publish", "--table", str(table), "--bootstrap-servers", servers, "--progress", "none", *arguments]


def publish(cluster: Cluster, table: Path, *arguments: str) -> int:
    return main(command(cluster, table, *arguments))


def found(cluster: Cluster, topic: str) -> list[Any]:
    """(key, value, milliseconds, headers) of all partitions, by time."""
    all_ = [row for part in all_rows(cluster, topic) for row in part]
    return sorted(((k, v, int(t.timestamp() * 1000), h) for k, v, t, h in all_), key=lambda row: row[2])


def expected(numbers: range) -> list[Any]:
    return [
        (
            None if n % 5 == 0 else b"k%d" % n,
            None if n % 3 == 0 else b"v%d" % n,
            n,
            [("h", b"%d" % n)] if n % 2 else [],
        )
        for n in numbers
    ]


def test_a_table_arrives_whole_and_once(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_deltalake(tmp_path, records(0, 40), partition_by=["topic"])
    assert publish(cluster, tmp_path, "--topic", topic, "--dry-run") == 0
    assert capsys.readouterr().out == f"topic {topic}\ntable {tmp_path} version=0 records=40\n"
    assert publish(cluster, tmp_path, "--topic", topic, "--compression", "zstd") == 0
    assert found(cluster, topic) == expected(range(40))
    assert publish(cluster, tmp_path, "--topic", topic, "--compression", "zstd", "--progress", "log") == 0
    assert "already published version=0" in capsys.readouterr().err
    assert len(found(cluster, topic)) == 40
    assert publish(cluster, tmp_path, "--topic", topic, "--compression", "zstd", "--again") == 0
    assert len(found(cluster, topic)) == 80


def test_a_version_a_condition_and_the_partitions(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    write_deltalake(tmp_path, records(0, 10))
    write_deltalake(tmp_path, records(10, 20), mode="append")
    more = ("--version", "0", "--where", '"offset" >= 5', "--keep-partitions")
    assert publish(cluster, tmp_path, "--topic", topic, *more) == 0
    assert found(cluster, topic) == expected(range(5, 10))
    assert [int(row[2].timestamp() * 1000) for row in rows(cluster, TopicPartition(topic, 1))] == [5, 7, 9]


def test_what_changed_since_a_version(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """This holds even when the files were rewritten meanwhile."""
    write_deltalake(tmp_path, records(0, 10))
    write_deltalake(tmp_path, records(5, 25), mode="overwrite")
    more = ("--topic", topic, "--since-version", "0", "--tombstones")
    assert publish(cluster, tmp_path, *more) == 0
    gone = [row for row in found(cluster, topic) if row[0] in {b"k1", b"k2", b"k3", b"k4"}]
    assert [row[1] for row in gone] == [None] * 4
    assert [row for row in found(cluster, topic) if row not in gone] == expected(range(10, 25))


def test_the_column_topic_says_where(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    create_topic(cluster, f"{topic}-2", configs={"retention.ms": "-1"})
    write_deltalake(tmp_path, pa.concat_tables([records(0, 10, topic), records(10, 15, f"{topic}-2")]))
    assert publish(cluster, tmp_path) == 0
    assert found(cluster, topic) == expected(range(10))
    assert found(cluster, f"{topic}-2") == expected(range(10, 15))


def test_other_columns_and_json(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    values = pa.array([{"a": 1, "b": "ä"}, None, {"a": None, "b": "x"}])
    write_deltalake(tmp_path, pa.table({"name": ["x", "y", None], "row": values}))
    more = ("--topic", topic, "--key", "name", "--value", "row")
    assert publish(cluster, tmp_path, *more) == 1
    assert publish(cluster, tmp_path, *more, "--json") == 0
    sent = {row[0]: row[1] and json.loads(row[1]) for part in all_rows(cluster, topic) for row in part}
    assert sent == {b"x": {"a": 1, "b": "ä"}, b"y": None, None: {"a": None, "b": "x"}}


KILLED = """
import os, signal, sys
from klamm.pipeline.__main__ import main
from klamm.pipeline.kafka.producer import Producer
real = Producer.commit
def commit(producer):
    producer.flush()
    if sys.argv[1] == "after":
        real(producer)
    os.kill(os.getpid(), signal.SIGKILL)
Producer.commit = commit
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit_and_run_again(cluster: Cluster, topic: str, tmp_path: Path, when: str) -> None:
    write_deltalake(tmp_path, records(0, 40))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, when, *command(cluster, tmp_path, "--topic", topic)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert publish(cluster, tmp_path, "--topic", topic) == 0
    assert found(cluster, topic) == expected(range(40))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--topic", "nosuch"], "topic nosuch does not exist on"),
        (["--topic", "{topic}", "--value", "nosuch"], "has no column nosuch; --value names one of key, value, topic"),
        (["--topic", "{topic}", "--value", "offset"], "column offset is int64, not binary or string: --json"),
        (["--topic", "{topic}", "--where", "nosuch = 1"], "No field named nosuch"),
        (["--topic", "{topic}", "--version", "7"], "version 7 is not a Delta table that can be read"),
        (["--topic", "{topic}", "--tombstones"], "--tombstones needs --since-version"),
        (["--topic", "{topic}", "--table", "/nosuch"], "/nosuch is not a Delta table"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_sent(
    cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    write_deltalake(tmp_path, records(0, 10))
    assert publish(cluster, tmp_path, *(one.format(topic=topic) for one in arguments)) == 1
    err = capsys.readouterr().err
    assert line in err
    assert err.count("\n") == 1
    assert found(cluster, topic) == []
