"""Reading partitions over the wire: the same records as a stock consumer, however ranges are cut; and lost offsets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConsumerPartition

from klamm.pipeline.arrow import record_batches
from klamm.pipeline.errors import ClusterError, DataLoss, PoisonedBatch
from klamm.pipeline.kafka.cluster import READ_COMMITTED, READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns, fetches
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from klamm.protocol.records.batch import Record, encode_batch
from tests.pipeline.spark.source.filling import KEPT, START_MS, fill
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("klamm") / "data") as process:
        yield process


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=5) as cluster:
        yield cluster


def planned(cluster: Cluster, topic: str, isolation: int = READ_COMMITTED) -> list[OffsetRange]:
    found = cluster.topics([topic])[topic]
    ends = cluster.latest(found.topic_partitions, isolation)
    return [OffsetRange(*one, 0, ends[one], found.topic_id) for one in found.topic_partitions]


def ours(cluster: Cluster, wanted: OffsetRange, **options: Any) -> list[Row]:
    parts = fetch_columns(cluster, wanted, **options)
    rows = []
    for batch in record_batches(parts, wanted.topic, wanted.partition, headers=True):
        for row in batch.to_pylist():
            headers = [(item["key"], item["value"]) for item in row["headers"] or ()]
            rows.append((row["offset"], round(row["timestamp"].timestamp() * 1000), row["key"], row["value"], headers))
    return rows


def stock(address: str, wanted: OffsetRange, isolation: int) -> list[Row]:
    """The rows of librdkafka, which tells the end of a partition in an event."""
    config = {
        "bootstrap.servers": address,
        "group.id": "stock",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if isolation == READ_COMMITTED else "read_uncommitted",
    }
    rows: list[Row] = []
    with closing(Consumer(config)) as consumer:
        consumer.assign([ConsumerPartition(wanted.topic, wanted.partition, wanted.start)])
        while True:
            message = consumer.poll(10)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.name() == "_PARTITION_EOF", error
                return rows
            headers: Any = message.headers() or []
            rows.append((message.offset() or 0, message.timestamp()[1], message.key(), message.value(), headers))


def check_all(address: str, topic: str) -> None:
    rng = random.Random(11)
    with Cluster(address) as cluster:
        fill(cluster, topic)
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            for wanted in planned(cluster, topic, isolation):
                expected = stock(address, wanted, isolation)
                assert len(expected) > 100
                assert ours(cluster, wanted, isolation=isolation) == expected
                assert ours(cluster, wanted, isolation=isolation, fetch_bytes=1000) == expected
                middle = rng.randrange(wanted.start, wanted.end)
                first, second = (
                    OffsetRange(wanted.topic, wanted.partition, start, end)  # without a topic id: by name
                    for start, end in ((wanted.start, middle), (middle, wanted.end))
                )
                assert (
                    ours(cluster, first, isolation=isolation) + ours(cluster, second, isolation=isolation) == expected
                )


def test_rows_are_those_of_a_stock_consumer(broker: BrokerProcess) -> None:
    check_all(broker.address, "filled")


@pytest.mark.java
def test_rows_are_those_of_a_stock_consumer_at_apache_kafka(tmp_path: Path) -> None:
    with apache_kafka(tmp_path) as kafka:
        check_all(kafka.address, "filled")


def test_batches_come_as_they_are_in_the_log(cluster: Cluster) -> None:
    sent = written(cluster, "raw", *(bytes([index]) * 2000 for index in range(20)))
    (wanted,) = planned(cluster, "raw")
    stored = [
        bytes(item.data[at + 21 : at + size])
        for item in fetches(cluster, wanted, fetch_bytes=5000)
        for at, size in zip(item.batch_headers.positions.tolist(), item.batch_headers.sizes.tolist(), strict=True)
    ]
    assert stored == [bytes(batch[21:]) for batch in sent]


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        written(cluster, "t", *(b"v" * 1000 for _ in range(50)))
        (wanted,) = planned(cluster, "t")
        parts = fetch_columns(cluster, wanted, fetch_bytes=5000)
        count = len(next(parts))
        broker.kill()
        broker.restart()
        assert count + sum(map(len, parts)) == 50


def test_offsets_that_were_deleted_are_data_loss_or_passed_over(cluster: Cluster) -> None:
    written(cluster, "cut", *(b"%d" % index for index in range(10)))
    (wanted,) = planned(cluster, "cut")
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    topics = [DeleteRecordsTopic(name="cut", partitions=[partition])]
    cluster.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000))
    with pytest.raises(DataLoss, match=r"^cut-0: offset 0 is gone, the log starts at 4 now$"):
        ours(cluster, wanted)
    assert [row[0] for row in ours(cluster, wanted, fail_on_data_loss=False)] == [4, 5, 6, 7, 8, 9]


def test_a_recreated_topic_is_data_loss(cluster: Cluster) -> None:
    written(cluster, "recreated", b"old", b"old")
    (wanted,) = planned(cluster, "recreated")
    delete(cluster, "recreated")
    with pytest.raises(DataLoss, match=r"^recreated-0: offset 0 is gone, the topic was deleted$"):
        ours(cluster, wanted)
    written(cluster, "recreated", b"new", b"new")
    with pytest.raises(DataLoss, match=r"^recreated-0: offset 0 is gone, the topic was deleted and created again$"):
        ours(cluster, wanted)
    assert ours(cluster, wanted, fail_on_data_loss=False) == []


def test_a_log_that_is_shorter_is_data_loss(cluster: Cluster) -> None:
    written(cluster, "short", b"v")
    wanted = OffsetRange("short", 0, 5, 7)
    with pytest.raises(DataLoss, match=r"^short-0: offset 5 is gone, the log ends at 1$"):
        ours(cluster, wanted)


def test_what_an_open_transaction_hides_is_waited_for_and_named(broker: BrokerProcess) -> None:
    with Cluster(broker.address, timeout_s=1) as cluster, Cluster(broker.address) as other:
        written(cluster, "open", b"v")
        with Producer(other, transactional_id="open") as producer:
            producer.begin()
            producer.send(TopicPartition("open", 0), encode_batch([Record(0, START_MS, None, b"w", ())]))
            producer.flush()
            line = r"open-0 offsets 0 to 2: nothing to read at offset 1 \(last stable offset 1, high watermark 2\)"
            with pytest.raises(ClusterError, match=line):
                ours(cluster, OffsetRange("open", 0, 0, 2))
            producer.commit()
        assert len(ours(cluster, OffsetRange("open", 0, 0, 3))) == 2


def test_a_damaged_batch_is_named_with_its_place(broker: BrokerProcess, cluster: Cluster) -> None:
    written(cluster, "bad", b"first", b"second")
    (wanted,) = planned(cluster, "bad")
    (segment,) = (broker.data / "bad-0").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[damaged.index(b"second")] ^= 1
    segment.write_bytes(damaged)
    with pytest.raises(PoisonedBatch, match=rf"^bad-0 offset 1 from {broker.address}: its CRC is"):
        ours(cluster, wanted)


def written(cluster: Cluster, topic: str, *values: bytes) -> list[bytearray]:
    """A batch for each value, in a new topic."""
    create_topic(cluster, topic, configs=KEPT)
    batches = [encode_batch([Record(0, START_MS, None, value, ())]) for value in values]
    with Producer(cluster) as producer:
        for batch in batches:
            producer.send(TopicPartition(topic, 0), batch)
    return batches


def delete(cluster: Cluster, topic: str) -> None:
    states = [DeleteTopicState(name=topic)]
    response = cluster.ask(DeleteTopicsRequest(topics=states, topic_names=[topic], timeout_ms=5000))
    assert response.responses[0].error_code == 0
