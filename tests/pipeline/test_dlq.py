"""Letters are listed, and go back to where they came from, once."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from klamm.pipeline.__main__ import main
from klamm.pipeline.arrow import SCHEMA_WITH_HEADERS
from klamm.pipeline.jobs.dead_letters import DeadLetters
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.topics import create_topic, set_configs
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.records.batch import Record
from tests.pipeline.mirroring import all_rows, put, rows, some
from tests.pipeline.test_publish import KILLED
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients
FOREVER = {"retention.ms": "-1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as broker, Cluster(broker.address) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[:80]
    create_topic(cluster, name, partitions=3, configs=FOREVER)
    create_topic(cluster, f"{name}.dead", partitions=2, configs=FOREVER)
    return name


def die(cluster: Cluster, topic: str, *numbers: int, origin: str | None = None) -> None:
    """Letters of records with these offsets."""
    found = [
        {"key": b"k%d" % n, "value": b"v%d" % n, "topic": origin or topic, "partition": n % 3, "offset": n,
         "timestamp": n * 1000, "timestampType": 0, "headers": [{"key": "h", "value": b"%d" % n}]}
        for n in numbers
    ]  # fmt: skip
    with DeadLetters(cluster, f"{topic}.dead", job="load") as letters:
        letters.put(
            pa.RecordBatch.from_pylist(found, SCHEMA_WITH_HEADERS), dict.fromkeys(range(len(numbers)), "value: no")
        )


def command(cluster: Cluster, action: str, topic: str, *more: str) -> list[str]:
    servers = cluster.bootstrap_servers
    return ["dlq", action, "--bootstrap-servers", servers, "--topic", f"{topic}.dead", "--progress", "none", *more]


def dlq(cluster: Cluster, action: str, topic: str, *more: str) -> int:
    return main(command(cluster, action, topic, *more))


def test_records_are_as_they_were_and_replayed_once(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    die(cluster, topic, 1, 2, 3, 4)
    die(cluster, topic, 2, 3)  # the job was killed, and wrote these again
    assert dlq(cluster, "replay", topic, "--dry-run") == 0
    assert capsys.readouterr().out == f"topic {topic} records=4\ntotal letters=6 doubles=2\n"
    assert dlq(cluster, "replay", topic, "--progress", "log") == 0
    assert "replayed letters=4 doubles=2" in capsys.readouterr().err
    for partition, wanted in enumerate(([3], [1, 4], [2])):
        found = [(k, v, int(t.timestamp() * 1000), h) for k, v, t, h in rows(cluster, TopicPartition(topic, partition))]
        assert sorted(found) == [(b"k%d" % n, b"v%d" % n, n, [("h", b"%d" % n)]) for n in wanted]
    assert dlq(cluster, "replay", topic) == 0
    die(cluster, topic, 5)
    assert dlq(cluster, "replay", topic) == 0
    assert sum(map(len, all_rows(cluster, topic))) == 5


def test_lists(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    die(cluster, topic, 7)
    assert dlq(cluster, "replay", topic) == 0
    die(cluster, topic, 7, 8)
    put(cluster, TopicPartition(f"{topic}.dead", 0), some(1))
    assert dlq(cluster, "list", topic) == 0
    lines = capsys.readouterr().out.splitlines()
    states = {line.split()[2] for line in lines}
    assert len(lines) == 4
    assert states == {"replayed", "double", "pending"}
    assert f"{topic}-2 offset 8 load VALUE_CONVERTER value: no" in "\n".join(lines)
    assert dlq(cluster, "list", topic, "--pending", "--from-topic", topic, "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        (one["state"], one["from"]["offset"], one["key"]) for one in sorted(found, key=lambda one: one["state"])
    ] == [
        ("double", 7, "azc="),
        ("pending", 8, "azg="),
    ]
    assert dlq(cluster, "list", topic, "--limit", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_any_timestamp(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    far = 300_000_000_000_000  # in the year 11476
    create_topic(cluster, f"{topic}-later", configs=FOREVER | {"message.timestamp.after.max.ms": str(2**63 - 1)})
    set_configs(cluster, f"{topic}.dead", {"message.timestamp.after.max.ms": str(2**63 - 1)})
    put(cluster, TopicPartition(f"{topic}.dead", 0), [Record(0, far, b"k", b"v"), Record(1, -1, b"k", b"v")])
    assert dlq(cluster, "list", topic) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines()] == [str(far), "-1"]
    assert dlq(cluster, "replay", topic, "--to", f"{topic}-later") == 0
    partition = TopicPartition(f"{topic}-later", 0)
    end = cluster.latest([partition])[partition]
    (part,) = fetch_columns(cluster, OffsetRange(*partition, 0, end))
    assert part.timestamps.tolist() == [far, -1]


def test_a_limit_and_another_topic(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, f"{topic}.fixed", configs=FOREVER)
    die(cluster, topic, *range(10))
    for _ in range(4):
        assert dlq(cluster, "replay", topic, "--to", f"{topic}.fixed", "--limit", "3") == 0
    found = [int(row[1][1:]) for row in rows(cluster, TopicPartition(f"{topic}.fixed", 0))]
    assert sorted(found) == list(range(10))


def test_what_cannot_go_back_stops_it_and_nothing_is_sent(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(cluster, "list", "nosuch")) == 1
    assert "topic nosuch.dead does not exist" in capsys.readouterr().err
    die(cluster, topic, 1, origin="gone")
    assert dlq(cluster, "replay", topic) == 1
    assert "is from topic gone, which does not exist; name one with --to" in capsys.readouterr().err
    assert dlq(cluster, "replay", topic, "--to", f"{topic}.dead") == 1
    assert "would be replayed into itself" in capsys.readouterr().err
    assert dlq(cluster, "replay", topic, "--pending") == 1
    assert "--pending does not belong to dlq replay" in capsys.readouterr().err
    assert dlq(cluster, "replay", topic, "--to", topic) == 0
    assert sum(map(len, all_rows(cluster, topic))) == 1


@pytest.mark.faults
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_a_commit_and_run_again(cluster: Cluster, topic: str, when: str) -> None:
    die(cluster, topic, *range(20))
    arguments = command(cluster, "replay", topic)
    killed = subprocess.run([sys.executable, "-c", KILLED, when, *arguments], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert dlq(cluster, "replay", topic) == 0
    assert sorted(int(row[1][1:]) for part in all_rows(cluster, topic) for row in part) == list(range(20))
