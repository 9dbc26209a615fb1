"""Four tiers that agree, and the one that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from klamm.pipeline.__main__ import main
from klamm.pipeline.arrow import SCHEMA_WITH_HEADERS
from klamm.pipeline.jobs.audit.counter import AuditCounter
from klamm.pipeline.jobs.dead_letters import DeadLetters
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm.protocol.records.batch import Record, encode_batch
from tests.pipeline.mirroring import mirror, put

pytestmark = pytest.mark.clients
FOREVER = {"retention.ms": "-1"}
HOUR_MS = 3_600_000


@pytest.fixture
def topic(clusters: tuple[Cluster, Cluster], request: pytest.FixtureRequest) -> str:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[:80]
    create_topic(clusters[0], name, partitions=2, configs=FOREVER)
    return name


def audit(clusters: tuple[Cluster, Cluster], topic: str, *more: str) -> int:
    servers = clusters[0].bootstrap_servers
    command = ["audit", "--topics", topic, "--bootstrap-servers", servers, "--master", "none", "--progress", "none"]
    return main([*command, *more])


def produce(cluster: Cluster, topic: str, counter: AuditCounter | None = None) -> list[int]:
    """Records of four hours in two partitions, and of transactions; returns the times of those that count."""
    times = [hour * HOUR_MS + 60_000 * at for hour in range(4) for at in range(10 + hour)]
    for partition in range(2):
        put(cluster, TopicPartition(topic, partition), [Record(at, time, None, b"v") for at, time in enumerate(times)])
    with Producer(cluster, transactional_id=topic) as producer:
        for is_committed in (False, True):
            producer.begin()
            producer.send(TopicPartition(topic, 0), encode_batch([Record(0, 5, None, b"x")]))
            producer.flush()
            producer.commit() if is_committed else producer.abort()
    all_ = [*times, *times, 5]
    if counter is not None:
        for time in all_:
            counter.count(topic, time)
        counter.flush()
    return all_


def test_all_tiers_agree_and_then_one_does_not(
    clusters: tuple[Cluster, Cluster], topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = clusters
    create_topic(source, f"{topic}-audit", configs=FOREVER)
    messages: list[Record] = []
    counter = AuditCounter(lambda key, value: messages.append(Record(len(messages), 1, key, value)))
    times = produce(source, topic, counter)
    put(source, TopicPartition(f"{topic}-audit", 0), messages)
    assert mirror(source, target, "--topics", topic, "--rename", "m.{topic}", "--group", topic) == 0
    stamps = pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path, pa.table({"topic": [topic] * len(times), "timestamp": stamps}))
    more = ["--window", "3600", "--producers-topic", f"{topic}-audit"]
    more += ["--mirror", target.bootstrap_servers, "--rename", "m.{topic}", "--table", str(tmp_path)]
    assert audit(clusters, topic, *more) == 0
    assert capsys.readouterr().out == ""
    assert audit(clusters, topic, *more, "--all") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{topic} 1970-01-01T0{hour}:00:00Z producer={n} broker={n} mirror={n} warehouse={n}"
        for hour, n in enumerate((21, 22, 24, 26))
    ]
    put(source, TopicPartition(topic, 1), [Record(0, 2 * HOUR_MS + 7, None, b"late")])
    assert audit(clusters, topic, *more) == 2
    line = f"{topic} 1970-01-01T02:00:00Z producer=24 broker=25 mirror=24 warehouse=24 MISMATCH\n"
    assert capsys.readouterr().out == line
    assert audit(clusters, topic, *more, "--until", "1970-01-01T02:30:00") == 0
    assert audit(clusters, topic, *more, "--from", "1970-01-01T02:30:00") == 0


def test_windows_that_the_broker_has_in_part_do_not_count(
    clusters: tuple[Cluster, Cluster], topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = clusters
    times = produce(source, topic)
    stamps = pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path, pa.table({"topic": [topic] * len(times), "timestamp": stamps}))
    assert audit(clusters, topic, "--window", "3600", "--table", str(tmp_path)) == 0
    wanted = DeleteRecordsPartition(partition_index=1, offset=15)
    asked = DeleteRecordsTopic(name=topic, partitions=[wanted])
    assert source.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=9999)).topics[0].partitions[0].error_code == 0
    assert audit(clusters, topic, "--window", "3600", "--table", str(tmp_path), "--all") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "1970-01-01T02:00:00Z", "1970-01-01T03:00:00Z"
    ]  # fmt: skip
    assert audit(clusters, topic, "--window", "3600", "--table", str(tmp_path), "--from", "1970-01-01T00:00:00") == 2


def test_what_was_put_aside_is_not_missing(
    clusters: tuple[Cluster, Cluster], topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = clusters
    dead = f"{topic}-dead"
    create_topic(source, dead, configs=FOREVER)
    times = produce(source, topic)
    bad, good = times[:2], times[2:]
    stamps = pa.array([time * 1000 for time in good], pa.timestamp("us", "UTC"))
    write_deltalake(tmp_path, pa.table({"topic": [topic] * len(good), "timestamp": stamps}))
    rows = [
        {"value": b"v", "topic": topic, "partition": 0, "offset": at, "timestamp": time * 1000, "timestampType": 0}
        for at, time in enumerate(bad)
    ]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA_WITH_HEADERS)
    with DeadLetters(source, dead, job="load") as letters:
        letters.put(batch, dict.fromkeys(range(2), "value: no JSON"))
        letters.put(batch, {1: "value: no JSON"})  # killed and run again
    with DeadLetters(source, dead, job="publish") as letters:
        letters.put(batch, {0: "value: no JSON"})
    more = ["--window", "3600", "--table", str(tmp_path)]
    assert audit(clusters, topic, *more) == 2
    assert capsys.readouterr().out == f"{topic} 1970-01-01T00:00:00Z broker=21 warehouse=19 MISMATCH\n"
    assert audit(clusters, topic, *more, "--dlq", dead) == 0


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ([], "one tier cannot be compared"),
        (["--producers-file", "/nosuch"], "--producers-file /nosuch: No such file"),
        (["--producers-topic", "nosuch"], "topic nosuch does not exist"),
        (["--table", "/nosuch"], "/nosuch is not a Delta table"),
        (["--table", "/nosuch", "--rename", "a=b"], "--rename belongs to --mirror"),
        (["--producers-topic", "{topic}", "--dlq", "dead"], "--dlq belongs to --table"),
        (["--mirror", "{target}"], "topic {topic} does not exist on {target}"),
    ],
)
def test_what_is_wrong_is_one_line(
    clusters: tuple[Cluster, Cluster], topic: str, capsys: pytest.CaptureFixture[str], more: list[str], line: str
) -> None:
    facts = {"topic": topic, "target": clusters[1].bootstrap_servers}
    assert audit(clusters, topic, *(one.format(**facts) for one in more)) == 1
    err = capsys.readouterr().err
    assert line.format(**facts) in err
    assert err.count("\n") == 1


def test_compacted_topics_cannot_be_audited(
    clusters: tuple[Cluster, Cluster], capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(clusters[0], "latest", configs={"cleanup.policy": "compact"})
    assert audit(clusters, "latest", "--table", "/nosuch") == 1
    assert "topic latest is compacted" in capsys.readouterr().err
