"""Between two Klamms: what arrives, how it goes on, and what stops it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from klamm.pipeline.__main__ import PROGRAM
from klamm.pipeline.commands.mirror import settings_of, sources_of
from klamm.pipeline.jobs.mirror import copying, job
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.groups import Committed, commit, committed
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import add_partitions, create_topic, set_configs, topic_configs
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import LocalTasks
from klamm.protocol.messages.delete_groups import DeleteGroupsRequest
from klamm.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.records.batch import Record, batches, encode_batch
from klamm.protocol.records.compression import Codec
from tests.clients.raw import fetch_all
from tests.pipeline.mirroring import all_rows, command, mirror, put, rows, some
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


@pytest.fixture
def source(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[0]


@pytest.fixture
def target(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[1]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:80]


def batches_of(cluster: Cluster, topic: str, partition: int = 0) -> list[Any]:
    data = fetch_all(cluster.client(*cluster._bootstrap[0]), topic, partition)
    return [
        (header, bytes(data[at + 61 : at + header.size_bytes])) for at, header in batches(data) if not header.is_control
    ]


def test_everything_arrives_as_it_was_and_whole_batches_untouched(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic, partitions=2, configs={"retention.ms": "-1", "klamm.acks.fsync": "true"})
    for number, codec in enumerate(Codec):
        for partition in range(2):
            put(source, TopicPartition(topic, partition), some(50, first=100 * number), codec)
    assert mirror(source, target, "--topics", topic) == 0
    assert all_rows(target, topic) == all_rows(source, topic)
    assert sum(map(len, all_rows(target, topic))) == 500
    assert topic_configs(target, [topic]) == {topic: {"retention.ms": "-1"}}
    for before, after in zip(batches_of(source, topic), batches_of(target, topic), strict=True):
        assert before[1] == after[1]
        assert before[0].codec == after[0].codec
        assert after[0].is_transactional
    assert mirror(source, target, "--topics", topic, "--dry-run") == 0
    assert capsys.readouterr().out == "total partitions=0 offsets=0 tasks=0\n"


def test_it_goes_on_where_it_was(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    for number in range(3):
        put(source, partition, some(10, first=10 * number))
        assert mirror(source, target, "--topics", topic) == 0
        assert len(rows(target, partition)) == 10 * (number + 1)
    assert rows(target, partition) == rows(source, partition)
    assert committed(target, "klamm-mirror.source", [partition])[partition].offset == 30


def test_aborted_transactions_and_markers_are_not_copied(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    with Producer(source, transactional_id=topic) as producer:
        for number in range(6):
            producer.begin()
            producer.send(partition, encode_batch(some(5, first=10 * number)))
            producer.flush()
            producer.abort() if number % 2 else producer.commit()
        producer.begin()
        producer.send(partition, encode_batch(some(5, first=90)))
        producer.flush()
        assert mirror(source, target, "--topics", topic) == 0  # up to the open one
        assert len(rows(target, partition)) == 15
        producer.commit()
    assert mirror(source, target, "--topics", topic) == 0
    assert rows(target, partition) == rows(source, partition)
    assert len(rows(target, partition)) == 20


def test_what_no_producer_could_send_is_encoded_again(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic, configs={"message.timestamp.type": "LogAppendTime"})
    partition = TopicPartition(topic, 0)
    put(source, partition, some(20), Codec.LZ4)
    set_configs(source, topic, {"message.timestamp.type": None})
    put(source, partition, some(20, first=50), Codec.ZSTD)
    assert mirror(source, target, "--topics", topic) == 0
    assert rows(target, partition) == rows(source, partition)
    (first, _), (second, _) = batches_of(target, topic)
    assert (first.codec, first.is_log_append_time) == (Codec.LZ4, False)
    assert (second.codec, second.is_log_append_time) == (Codec.ZSTD, False)


def test_a_range_that_begins_within_a_batch(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(20), Codec.GZIP)
    put(source, partition, some(20, first=20))
    start = source.offsets_for_times({partition: 1_000_007})[partition]
    assert start == 7
    assert mirror(source, target, "--topics", topic, "--from", "1970-01-01T00:16:40.007") == 0
    assert rows(target, partition) == rows(source, partition)[7:]
    (first, _), (second, _) = batches_of(target, topic)
    assert (first.record_count, first.codec, second.record_count) == (13, Codec.GZIP, 20)


def test_from_latest_counts_from_the_first_run_on(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    assert mirror(source, target, "--topics", topic, "--from", "latest") == 0
    put(source, partition, some(10))
    assert mirror(source, target, "--topics", topic, "--from", "latest") == 0
    assert rows(target, partition) == rows(source, partition)


def test_fewer_partitions_are_chosen_by_key_and_order_stays(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic, partitions=4)
    create_topic(target, topic, partitions=3)
    for number in range(4):
        records = [Record(at, at, b"key-%d" % (at % 10), b"%d-%d" % (number, at), (("h", b"x"),)) for at in range(100)]
        put(source, TopicPartition(topic, number), records, Codec.LZ4)
        put(source, TopicPartition(topic, number), [Record(0, 7, None, b"none-%d" % number)])
    assert mirror(source, target, "--topics", topic) == 0
    found = all_rows(target, topic)
    assert sorted(map(repr, chain(*found))) == sorted(map(repr, chain(*all_rows(source, topic))))
    places = {row[0]: number for number, part in enumerate(found) for row in part if row[0] is not None}
    assert len(places) == 10 and set(places.values()) == {0, 1, 2}
    for part in found:
        for number in range(4):
            mine = [int(row[1].split(b"-")[1]) for row in part if row[1].startswith(b"%d-" % number)]
            assert mine == sorted(mine)
            assert not any(places[row[0]] != found.index(part) for row in part if row[0] is not None)
    assert mirror(source, target, "--topics", topic) == 0
    assert all_rows(target, topic) == found
    assert committed(target, "klamm-mirror.source.1", [TopicPartition(topic, 0)])


def test_partitions_are_kept_or_added_as_the_option_says(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic, partitions=2)
    create_topic(target, topic, partitions=3)
    put(source, TopicPartition(topic, 1), some(10))
    assert mirror(source, target, "--topics", topic, "--partitioning", "keep") == 0
    assert all_rows(target, topic) == [*all_rows(source, topic), []]
    add_partitions(source, topic, 5)
    put(source, TopicPartition(topic, 4), some(10))
    assert mirror(source, target, "--topics", topic, "--partitioning", "keep") == 2 - 1
    assert mirror(source, target, "--topics", topic, "--add-partitions") == 0
    assert all_rows(target, topic) == all_rows(source, topic)


def test_configs_are_kept_in_step(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic, configs={"retention.ms": "1000000", "max.message.bytes": "2000000"})
    assert mirror(source, target, "--topics", topic) == 0
    put(source, TopicPartition(topic, 0), [Record(0, 1, None, bytes(1_500_000))])
    set_configs(source, topic, {"retention.ms": None, "segment.bytes": "20000000"})
    set_configs(target, topic, {"message.timestamp.type": "LogAppendTime"})
    assert mirror(source, target, "--topics", topic) == 0
    wanted = {"max.message.bytes": "2000000", "segment.bytes": "20000000", "message.timestamp.type": "LogAppendTime"}
    assert topic_configs(target, [topic])[topic] == wanted
    set_configs(source, topic, {"segment.bytes": None})
    assert mirror(source, target, "--topics", topic, "--no-configs") == 0
    assert topic_configs(target, [topic])[topic] == wanted


def test_batches_that_are_too_large_are_split(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(1000, value=bytes(500)))
    create_topic(target, topic, configs={"max.message.bytes": "100000"})
    assert mirror(source, target, "--topics", topic, "--no-configs") == 0
    assert rows(target, partition) == rows(source, partition)
    assert all(header.size_bytes <= 100_000 for header, _ in batches_of(target, topic))


def test_a_record_that_is_too_large_stops_it(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic)
    put(source, TopicPartition(topic, 0), [Record(0, 1, None, bytes(200_000))])
    create_topic(target, topic, configs={"max.message.bytes": "100000"})
    assert mirror(source, target, "--topics", topic, "--no-configs") == 1
    assert f"{topic}-0: a batch of 200" in capsys.readouterr().err
    assert rows(target, TopicPartition(topic, 0)) == []


def delete_records(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
    topic = DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
    answer = cluster.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))
    assert answer.topics[0].partitions[0].error_code == 0


def test_lost_offsets_stop_it_or_are_reported(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    for number in range(4):
        put(source, partition, some(10, first=10 * number))
        if not number:
            assert mirror(source, target, "--topics", topic) == 0
    wanted = rows(source, partition)
    delete_records(source, partition, 30)
    assert mirror(source, target, "--topics", topic) == 1
    line = f"klamm-pipeline: {topic}-0: offset 10 is the next to mirror and is gone, the log starts at 30 now\n"
    assert capsys.readouterr().err == line
    assert mirror(source, target, "--topics", topic, "--on-data-loss", "gap", "--progress", "log") == 0
    assert f"gap partition={topic}-0 lost_offsets=20" in capsys.readouterr().err
    assert rows(target, partition) == wanted[:10] + wanted[30:]
    delete_records(source, partition, 40)
    put(source, partition, some(1))
    delete_records(source, partition, 41)
    assert mirror(source, target, "--topics", topic, "--on-data-loss", "gap", "--progress", "log") == 0
    assert f"gap partition={topic}-0 lost_offsets=1" in capsys.readouterr().err
    assert mirror(source, target, "--topics", topic) == 0  # logged once


def delete_topic(cluster: Cluster, topic: str) -> None:
    answer = cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000))
    assert answer.responses[0].error_code == 0
    cluster.forget_leaders()


def test_a_recreated_topic_is_no_continuation(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(10))
    assert mirror(source, target, "--topics", topic) == 0
    before = rows(source, partition)
    delete_topic(source, topic)
    create_topic(source, topic)
    put(source, partition, some(30, first=500))
    assert mirror(source, target, "--topics", topic) == 1
    assert "the topic was deleted and created again" in capsys.readouterr().err
    assert mirror(source, target, "--topics", topic, "--on-data-loss", "gap") == 0
    assert rows(target, partition) == before + rows(source, partition)


def test_progress_outlives_its_group(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(10))
    group = ("--group", topic)
    assert mirror(source, target, "--topics", topic, *group) == 0
    answer = target.ask(DeleteGroupsRequest(groups_names=[f"{topic}.source"]))
    assert answer.results[0].error_code == 0
    assert committed(target, f"{topic}.source", [partition]) == {}
    put(source, partition, some(10, first=50))
    assert mirror(source, target, "--topics", topic, *group) == 0
    assert rows(target, partition) == rows(source, partition)
    delete_topic(target, topic)  # and with it what the syncs tell of
    assert mirror(source, target, "--topics", topic, *group) == 0
    assert rows(target, partition) == rows(source, partition)


def test_another_mirror_of_the_same_name_is_an_error(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic)
    create_topic(source, f"{topic}-2")
    put(source, TopicPartition(topic, 0), some(10))
    put(source, TopicPartition(f"{topic}-2", 0), some(10))
    assert mirror(source, target, "--topics", topic) == 0
    assert mirror(source, target, "--topics", f"{topic}-2", "--rename", f"{topic}-2={topic}") == 1
    assert f"holds the offsets of topic {topic} for the same target" in capsys.readouterr().err


def test_groups_move_over(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    first = TopicPartition(topic, 0)
    with Producer(source, transactional_id=topic) as producer:
        for number in range(20):
            producer.begin()
            producer.send(first, encode_batch(some(5, first=10 * number)))
            producer.commit()
    rows(source, first)
    groups = {f"{topic}-{at}": {first: at} for at in (0, 3, 6, 12, 60, 119, 120)}
    for group, offsets in groups.items():
        assert commit(source, group, offsets)
    more = ("--groups", f"{topic}-.*", "--sync-group-offsets", "--commit-mb", "1")
    assert mirror(source, target, "--topics", topic, *more) == 0
    for group, offsets in groups.items():
        wanted = [at for number in range(20) for at in range(6 * number, 6 * number + 5)]
        left = len([at for at in wanted if at >= offsets[first]])
        found = committed(target, group, [first])[first]
        assert found.offset == 100 - left, (group, found)  # this mirror's only transaction has its marker after all


def test_groups_go_forwards_only_and_idle_ones_only(source: Cluster, target: Cluster, topic: str) -> None:
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(10))
    more = ("--topics", topic, "--groups", topic)
    assert commit(source, topic, {partition: 4})
    assert mirror(source, target, *more) == 0
    assert committed(target, topic) == {}
    put(source, partition, some(10))
    assert commit(source, topic, {partition: 14})
    assert mirror(source, target, *more, "--sync-group-offsets") == 0
    assert committed(target, topic) == {partition: Committed(15, "")}  # a marker is at 10
    assert commit(target, topic, {partition: 18})
    assert commit(source, topic, {partition: 16})
    assert mirror(source, target, *more, "--sync-group-offsets") == 0
    assert committed(target, topic) == {partition: Committed(18, "")}


def test_two_sources_into_one_topic(source: Cluster, target: Cluster, topic: str, tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "c") as third, Cluster(third.address) as other:
        for cluster, first in ((source, 0), (other, 100)):
            create_topic(cluster, topic)
            put(cluster, TopicPartition(topic, 0), some(10, first=first))
        both = ("--source", f"other={other.bootstrap_servers}", "--topics", topic)
        assert mirror(source, target, *both) == 0
        put(other, TopicPartition(topic, 0), some(10, first=200))
        assert mirror(source, target, *both) == 0
        partition = TopicPartition(topic, 0)
        assert rows(target, partition) == rows(source, partition) + rows(other, partition)


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["--topics", "nosuch"], 1, "no topic on {source} matches nosuch"),
        (["--pattern", "("], 1, "--pattern ( is not a regular expression"),
        (["--topics", "x", "--rename", "x"], 1, "--rename x: it has the form pattern=replacement"),
        (["--topics", "x", "--from", "soon"], 1, "--from soon: a time has the form"),
        (["--topics", "x", "--sync-group-offsets"], 1, "--sync-group-offsets needs --groups"),
        (["--topics", "x", "--source", "a:b"], 1, "another one is called source"),
        (["--topics", "x", "--source", "a.b=c:1"], 1, "an alias has letters"),
    ],
)
def test_wrong_options_are_one_line(
    source: Cluster, target: Cluster, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, line: str
) -> None:
    assert mirror(source, target, *arguments) == status
    err = capsys.readouterr().err
    assert line.format(source=source.bootstrap_servers) in err
    assert err.count("\n") == 1


def test_a_topic_is_not_mirrored_onto_itself(source: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    create_topic(source, topic)
    put(source, TopicPartition(topic, 0), some(10))
    assert mirror(source, source, "--topics", topic) == 1
    assert "would be mirrored onto itself" in capsys.readouterr().err
    assert mirror(source, source, "--topics", topic, "--rename", "copy.{topic}") == 0
    assert rows(source, TopicPartition(f"copy.{topic}", 0)) == rows(source, TopicPartition(topic, 0))


def test_the_plan_changes_nothing(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(source, topic, partitions=2, configs={"retention.ms": "5"})
    put(source, TopicPartition(topic, 1), some(10))
    before = set(target.topics())
    assert mirror(source, target, "--topics", topic, "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"create topic {topic} partitions=2 retention.ms=5",
        f"source {topic}-1 offsets 0 to 10 -> {topic}-1",
        "total partitions=1 offsets=10 tasks=1",
    ]
    assert set(target.topics()) == before


def test_a_damaged_batch_stops_it(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch comes like this over the wire; the mirror must not seal it again."""
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(10))
    put(source, partition, some(10))
    real = copying.fetches

    def damaged(*args: Any, **more: Any) -> Iterator[Any]:
        for fetched in real(*args, **more):
            at = int(fetched.batch_headers.positions[1]) + 100
            fetched.data[at] ^= 1
            yield fetched

    monkeypatch.setattr(copying, "fetches", damaged)
    assert mirror(source, target, "--topics", topic) == 1
    assert f"{topic}-0 offset 10 from {source.bootstrap_servers}: its CRC does not fit\n" in capsys.readouterr().err
    assert rows(target, partition) == []
    monkeypatch.undo()
    assert mirror(source, target, "--topics", topic) == 0
    assert rows(target, partition) == rows(source, partition)


def test_a_task_that_was_thought_dead_is_fenced(
    source: Cluster, target: Cluster, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one mirror stands still in a transaction another runs; when the first goes on, its records do not count."""
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    for number in range(4):
        put(source, partition, some(10, first=10 * number))
    real = copying.outgoing
    rivals: list[int] = []

    def slow(*args: Any) -> Iterator[Any]:
        for number, one in enumerate(real(*args)):
            if number == 2 and not rivals:
                rivals.append(-1)
                rivals[0] = mirror(source, target, "--topics", topic)
            yield one

    monkeypatch.setattr(copying, "outgoing", slow)
    assert mirror(source, target, "--topics", topic) == 1
    assert rivals == [0]
    assert "has taken over" in capsys.readouterr().err
    assert rows(target, partition) == rows(source, partition)


def test_a_late_task_continues_after_the_other(
    source: Cluster, target: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is planned before another mirror runs, and begins after it: the commits by then count."""
    create_topic(source, topic)
    partition = TopicPartition(topic, 0)
    put(source, partition, some(10))
    real = job.copy_chunk
    rivals: list[int] = []

    def late(chunk: Any) -> Any:
        if not rivals:
            rivals.append(-1)
            rivals[0] = mirror(source, target, "--topics", topic)
        return real(chunk)

    monkeypatch.setattr(job, "copy_chunk", late)
    assert mirror(source, target, "--topics", topic) == 0
    assert rivals == [0]
    assert rows(target, partition) == rows(source, partition)


def test_round_after_round_until_it_is_stopped(source: Cluster, target: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    create_topic(source, topic)
    stop = threading.Event()

    class Rounds(Report):
        def succeeded(self, job: str) -> None:
            found = len(rows(target, partition))
            put(source, partition, some(10, first=found))
            if found == 30:
                stop.set()

    options = PROGRAM.parse(command(source.bootstrap_servers, target.bootstrap_servers, "--topics", topic))
    running = job.Mirror(sources_of(options), options.target, settings_of(options), LocalTasks(), Rounds())
    assert running.every(0.001, stop) == 30
    running.close()
