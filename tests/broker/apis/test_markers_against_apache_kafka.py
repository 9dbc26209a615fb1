"""The same batches and markers, right and wrong ones, to Apache Kafka 4.4 and to Klamm: the same answers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from klamm.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.protocol.records.batch import batches
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import wait_for
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch

pytestmark = pytest.mark.java

STEPS = 250
CONFIG = {"retention.ms": "-1", "segment.ms": "9000000000000"}  # the markers of the two are years apart
PRODUCE_VERSION = 11  # from 12 on a batch itself brings its partition into the transaction
Ask = Callable[[Any, int], Any]


def produce_request(records: bytes, transactional_id: str | None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )


def marker_request(
    producer_id: int, epoch: int, commit: bool, coordinator: int, version: int
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=coordinator,
        transaction_version=version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def produced(answer: Any) -> tuple[int, int]:
    partition = answer.responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def seen(ask: Ask, offset: int) -> tuple[Any, ...]:
    """The batches that a read_committed reader gets from `offset` on, and the described producers."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[
            FetchTopic(
                topic="t", partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
            )
        ],
    )
    partition = ask(request, 11).responses[0].partitions[0]
    heads = [head for _, head in batches(bytes(partition.records or b""))]
    last_offset = heads[-1].last_offset if heads else -1
    request_producers = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    producers = ask(request_producers, 0).topics[0].partitions[0].active_producers
    return (
        partition.high_watermark,
        partition.last_stable_offset,
        # Kafka may tell of more than those in the answer: it takes the end of the segment for the end of the answer.
        sorted(
            (t.producer_id, t.first_offset) for t in partition.aborted_transactions if t.first_offset <= last_offset
        ),
        [(head.base_offset, head.attributes, head.producer_id, head.producer_epoch) for head in heads],
        sorted(
            (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
            for p in producers
        ),
    )


def produce_here(
    broker: EmbeddedBroker, records: bytes, producer_id: int, epoch: int, sequence: int
) -> tuple[int, int]:
    """A transactional batch at Klamm, verified by nobody, as Kafka here has its verification switched off."""
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None and partition.log is not None
    try:
        guard = partition.begin_verification(producer_id, epoch, sequence, begins_at_zero=False, now_ms=NOW_MS)
        result = partition.append_records(
            memoryview(bytearray(records)), produce_version=11, now_ms=NOW_MS, transactional_id="x", guard=guard
        )
    except KafkaError as error:
        partition.log.verifications.end(producer_id)
        return int(error.code), -1
    return 0, result.base_offset


def test_transactions_and_markers(tmp_path: Path) -> None:
    with (
        apache_kafka(tmp_path / "kafka", {"transaction.partition.verification.enable": "false"}) as kafka,
        NodeClient("127.0.0.1", kafka.port) as client,
        EmbeddedBroker(tmp_path / "klamm") as broker,
    ):

        def theirs(request: Any, version: int) -> Any:
            return client.request(request, version)

        configs = [CreatableTopicConfig(name=name, value=value) for name, value in CONFIG.items()]
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
        assert theirs(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics[0].error_code == 0
        broker.create_topic("t", config=CONFIG)
        first = produce_request(batch(b"first"), None)
        wait_for(lambda: produced(theirs(first, PRODUCE_VERSION))[0] == 0, 20, "Kafka's lead of the partition")
        broker.produce("t", batch(b"first"), version=PRODUCE_VERSION)
        rng = random.Random(9)
        epochs, sequences, end = {1: 0, 2: 0, 3: 0}, {1: 0, 2: 0, 3: 0}, 1
        codes: set[int] = set()
        for step in range(STEPS):
            producer_id = rng.choice([1, 2, 3])
            epoch = max(0, epochs[producer_id] + rng.choice([0, 0, 0, 0, 0, 1, -1]))
            if rng.random() < 0.6:
                sequence = 0 if epoch != epochs[producer_id] else sequences[producer_id]
                sequence = max(0, sequence + rng.choice([0, 0, 0, 0, 0, 0, -1, 1]))
                is_transactional = rng.random() < 0.85
                sent = batch(
                    b"a" * rng.randrange(1, 9),
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=is_transactional,
                )
                request = produce_request(sent, "x" if is_transactional else None)
                expected = produced(theirs(request, PRODUCE_VERSION))
                if is_transactional:
                    found = produce_here(broker, sent, producer_id, epoch, sequence)
                else:
                    found = produced(broker.call(request, PRODUCE_VERSION))
                what: tuple[Any, ...] = ("produce", producer_id, epoch, sequence, is_transactional)
                if expected[0] == 0 and expected[1] == end:
                    epochs[producer_id], sequences[producer_id], end = epoch, sequence + 1, end + 1
            else:
                commit, coordinator, version = (
                    rng.random() < 0.5,
                    rng.choice([0, 0, 1, 2]) + step // 150,
                    rng.choice([0, 1, 2]),
                )
                epoch += version == 2 and rng.random() < 0.7
                marker = marker_request(producer_id, epoch, commit, coordinator, version)
                expected, found = (
                    (answer.markers[0].topics[0].partitions[0].error_code, 0)
                    for answer in (theirs(marker, 2), broker.call(marker, 2))
                )
                what = ("marker", producer_id, epoch, commit, coordinator, version)
                if expected[0] == 0:
                    if epoch != epochs[producer_id]:
                        epochs[producer_id], sequences[producer_id] = epoch, 0
                    end += 1
            codes.add(expected[0])
            assert found == expected, (step, what)
            offset = rng.randrange(end)
            ours, kafkas = seen(broker.call, offset), seen(theirs, offset)
            assert ours == kafkas, (step, what, offset)
        assert codes >= {
            0,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        }
