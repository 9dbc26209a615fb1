"""Whole batches, idempotent and in transactions: with epochs per transaction, without, and to Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from klamm.client.blocking import NodeClient
from klamm.pipeline.errors import NotWritten, ProducerFenced
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.coordinator import Coordinator, KeyType
from klamm.pipeline.kafka.delivery import rewrite
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from klamm.protocol.records.batch import Record, crc_is_valid, encode_batch, read_header
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = pytest.mark.clients

KINDS = ["klamm", "klamm-tv1", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.campaign])]
"""`make test` has Apache Kafka with the mirrors that are killed (tests/faults)."""
SAFE_DOWNGRADE = 2


@contextmanager
def running(kind: str, directory: Path) -> Iterator[str]:
    if kind == "kafka":
        with apache_kafka(directory) as kafka:
            yield kafka.address
        return
    with BrokerProcess(directory / "data") as broker:
        if kind == "klamm-tv1":
            update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE)
            with NodeClient(broker.host, broker.port) as client:
                assert client.request(UpdateFeaturesRequest(feature_updates=[update]), 1).error_code == 0
        yield broker.address


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(request.param, tmp_path_factory.mktemp("broker")) as address, Cluster(address) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = str(abs(hash(request.node.name)))
    create_topic(cluster, name, partitions=2)
    return name


def batch(*values: bytes) -> bytearray:
    return encode_batch([Record(index, 1000 + index, None, value) for index, value in enumerate(values)])


def values(cluster: Cluster, partition: TopicPartition, isolation: int = 1) -> list[bytes]:
    wait_for(lambda: cluster.latest([partition]) == cluster.latest([partition], READ_UNCOMMITTED), what="markers")
    end = cluster.latest([partition], isolation)[partition]
    wanted = OffsetRange(*partition, start=0, end=end)
    return [
        bytes(part.data[start:end])
        for part in fetch_columns(cluster, wanted, isolation=isolation)
        for start, end in zip(part.values.starts.tolist(), part.values.ends.tolist(), strict=True)
    ]


def committed(cluster: Cluster, group: str, partition: TopicPartition) -> int:
    topics = [OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    response = Coordinator(cluster, group, KeyType.GROUP).request(
        request,
        lambda answer: [row.error_code for group in answer.groups for one in group.topics for row in one.partitions],
        most=9,
    )
    found: int = response.groups[0].topics[0].partitions[0].committed_offset
    return found


def test_many_batches_arrive_once_and_in_order(cluster: Cluster, topic: str) -> None:
    wanted = [b"%d" % index for index in range(200)]
    with Producer(cluster) as producer:
        for value in wanted:
            producer.send(TopicPartition(topic, 0), batch(value, value))
            producer.send(TopicPartition(topic, 1), batch(value))
        producer.flush()
        assert producer.unanswered == 0
    assert values(cluster, TopicPartition(topic, 0)) == [value for value in wanted for _ in range(2)]
    assert values(cluster, TopicPartition(topic, 1)) == wanted


def test_transactions_with_offsets_commit_and_abort(cluster: Cluster, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Producer(cluster, transactional_id=f"{topic}-id") as producer:
        for index in range(5):
            producer.begin()
            producer.send(first, batch(b"%d" % index))
            producer.send(second, batch(b"%d" % index))
            producer.send_offsets(f"{topic}-group", {first: index + 1})
            producer.flush()
            producer.abort() if index % 2 else producer.commit()
        producer.begin()
        producer.send_offsets(f"{topic}-group", {second: 7})
        producer.commit()
        producer.begin()
        producer.commit()  # of nothing
    assert values(cluster, first) == values(cluster, second) == [b"0", b"2", b"4"]
    assert values(cluster, first, READ_UNCOMMITTED) == [b"0", b"1", b"2", b"3", b"4"]
    assert committed(cluster, f"{topic}-group", first) == 5
    assert committed(cluster, f"{topic}-group", second) == 7


def test_an_error_within_the_block_aborts(cluster: Cluster, topic: str) -> None:
    with pytest.raises(RuntimeError), Producer(cluster, transactional_id=f"{topic}-id") as producer:
        producer.begin()
        producer.send(TopicPartition(topic, 0), batch(b"no"))
        raise RuntimeError
    with Producer(cluster, transactional_id=f"{topic}-id") as producer:
        producer.begin()
        producer.send(TopicPartition(topic, 0), batch(b"yes"))
        producer.commit()
    assert values(cluster, TopicPartition(topic, 0)) == [b"yes"]


def test_a_rival_fences_and_what_was_open_is_gone(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    zombie = Producer(cluster, transactional_id=f"{topic}-id")
    zombie.start()
    zombie.begin()
    zombie.send(partition, batch(b"zombie"))
    zombie.flush()
    with Producer(cluster, transactional_id=f"{topic}-id") as rival:
        rival.begin()
        rival.send(partition, batch(b"rival"))
        rival.send_offsets("fenced", {partition: 1})
        rival.commit()
        zombie.send(partition, batch(b"zombie"))
        with pytest.raises(ProducerFenced, match="another job"):
            zombie.commit()
        with pytest.raises(ProducerFenced, match="another job"):
            zombie.send_offsets("fenced", {partition: 2})
    zombie.close()
    assert values(cluster, partition) == [b"rival"]
    assert committed(cluster, "fenced", partition) == 1


def test_an_error_of_the_broker_is_raised_and_aborts(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Producer(cluster, transactional_id=f"{topic}-id") as producer:
        producer.begin()
        producer.send(partition, batch(b"x"))
        producer.send(partition, batch(bytes(1_200_000)))
        with pytest.raises(NotWritten, match=f"{partition}: a batch of 1200.* bytes: MESSAGE_TOO_LARGE"):
            producer.commit()
        producer.abort()
        producer.begin()
        producer.send(partition, batch(b"y"))
        producer.commit()
    assert values(cluster, partition) == [b"y"]


@pytest.mark.parametrize("transactional_id", [None, "restarts"])
def test_a_broker_killed_and_restarted_gets_the_rest_again(tmp_path: Path, transactional_id: str | None) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        create_topic(cluster, "t")
        partition = TopicPartition("t", 0)
        wanted = [b"%d" % index for index in range(60)]
        with Producer(cluster, transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                producer.begin()
            for index, value in enumerate(wanted):
                if index in (20, 40):
                    broker.kill()
                    broker.restart()
                producer.send(partition, batch(value))
            if transactional_id is not None:
                producer.commit()
        assert values(cluster, partition) == wanted


def test_nobody_there_ends_with_one_line(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address, timeout_s=0.5) as cluster:
        create_topic(cluster, "t")
        with pytest.raises(NotWritten, match=r"^t-0: .* \(tried for"), Producer(cluster) as producer:
            producer.send(TopicPartition("t", 0), batch(b"x"))
            producer.flush()
            broker.kill()
            producer.send(TopicPartition("t", 0), batch(b"y"))
            producer.flush()
        broker.restart()


def test_rewrite_changes_the_head_only() -> None:
    data = encode_batch([Record(9, 5, b"k", b"v")], base_offset=9, leader_epoch=3, producer_id=1, base_sequence=4)
    body = bytes(data[61:])
    assert rewrite(data, 77, 2, 11, transactional=True) == 1
    header = read_header(data)
    assert header.is_transactional
    assert crc_is_valid(data, header)
    assert header[:4] == (0, len(data), -1, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 11)
    assert data[61:] == body
    rewrite(data, 77, 2, 11, transactional=False)
    assert not read_header(data).is_transactional
