"""kill -9 while a topic is compacted: after each start a consumer finds the last value of every key, no other."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.campaign import scaled, seeded
from tests.support.broker_process import BrokerProcess, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

ROUNDS = scaled(4, 40)
KEYS = 500
RECORDS = 6000
TOPIC = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}


def create(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("t", 1, config=TOPIC)])["t"].result(30)


def produce(broker: BrokerProcess, rng: random.Random, table: dict[bytes, bytes]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1000000,
        }
    )
    for _ in range(RECORDS):
        key, value = b"key-%d" % rng.randrange(KEYS), rng.randbytes(500)
        producer.produce("t", key=key, value=value)
        producer.poll(0)
        table[key] = value
    assert producer.flush(60) == 0


def consume(broker: BrokerProcess) -> list[tuple[bytes, bytes]]:
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "unused", "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "no answer in 30 s"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found
        found.append((message.key(), message.value()))


def workers_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_kill_9_while_a_topic_is_compacted(tmp_path: Path) -> None:
    rng = seeded("compaction")
    table: dict[bytes, bytes] = {}
    broker = BrokerProcess(tmp_path / "data", {"log.cleaner.backoff.ms": 0, "log.retention.check.interval.ms": 100})
    with broker:
        create(broker)
        for _ in range(ROUNDS):
            produce(broker, rng, table)
            time.sleep(rng.random() * 0.6)
            broker.kill()
            broker.restart()
            assert dict(consume(broker)) == table
        wait_for(lambda: len(consume(broker)) < 3 * RECORDS, 60, "compaction")
        assert dict(consume(broker)) == table
    assert "cannot be compacted" not in broker.log()
    assert "offline" not in broker.log()


@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.terminate])
def test_a_worker_does_not_outlive_its_broker(end: Callable[[BrokerProcess], object], tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path / "data", {"log.cleaner.backoff.ms": 0, "log.cleaner.io.max.bytes.per.second": 1000}
    )
    with broker:
        create(broker)
        produce(broker, random.Random(1), {})
        wait_for(lambda: workers_of(broker.pid), 30, "a worker")
        (worker,) = workers_of(broker.pid)
        end(broker)
        wait_for(lambda: not os.path.exists(f"/proc/{worker}"), 30, "the end of the worker")
