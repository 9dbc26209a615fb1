"""Stock clients in groups of the consumer protocol, where the matrix does not look: expressions, migration."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from klamm.client.blocking import NodeClient
from tests.clients.raw import create
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.jars import run_java

PROGRAM: Final = Path(__file__).parent / "drivers" / "java" / "PatternConsumer.java"
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with members that heartbeat five times a second."""
    with BrokerProcess(tmp_path_factory.mktemp("groups"), SETTINGS) as process:
        yield process
        assert "Traceback" not in process.log(), process.log()[-4000:]


@pytest.mark.java
def test_a_java_consumer_subscribes_by_expression(quick: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": quick.address})
    with NodeClient(quick.host, quick.port) as client:
        for name in ("orders-1", "orders-2", "reorders-1"):
            create(client, name, 2)
            producer.produce(name, b"x")
    assert producer.flush(20) == 0
    assert run_java("clients", PROGRAM, quick.address, "pattern", "orders-.", "2").strip() == "[orders-1, orders-2] 2"
    refused = run_java("clients", PROGRAM, quick.address, "bad", "orders-(?=1)", "1").strip()
    assert refused == "InvalidRegularExpression"


class Reader:
    """One consumer of librdkafka."""

    def __init__(self, address: str, group: str, topic: str, config: dict[str, Any]) -> None:
        self.lost: list[TopicPartition] = []
        fixed = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**fixed, **config})
        self._consumer.subscribe([topic], on_lost=lambda consumer, partitions: self.lost.extend(partitions))

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None and not message.error():
            try:
                self._consumer.commit(message, asynchronous=False)
            except (
                KafkaException
            ) as error:  # the group has gone on meanwhile: the new owner of the partition reads it again
                if error.args[0].code() not in (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS):
                    raise

    @property
    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def settle(readers: Sequence[Reader], sizes: Sequence[int]) -> None:
    """Wait until each member has so many partitions, and no partition has two owners."""

    def reached() -> bool:
        for reader in readers:
            reader.poll()
        found = [reader.partitions for reader in readers]
        return [len(part) for part in found] == [*sizes] and len(set().union(*found)) == sum(sizes)

    wait_for(reached, timeout_s=60, what=f"partitions are shared {sizes}")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_live_group_changes_its_protocol_and_back(quick: BrokerProcess, assignor: str) -> None:
    topic, group = f"moves-{assignor}", f"moves-{assignor}-{time.monotonic_ns()}"
    with NodeClient(quick.host, quick.port) as client:
        create(client, topic, 6)
    classic = {"partition.assignment.strategy": assignor, "heartbeat.interval.ms": 200, "session.timeout.ms": 10_000}
    producer = Producer({"bootstrap.servers": quick.address})
    for index in range(60):
        producer.produce(topic, b"x", partition=index % 6)
    assert producer.flush(20) == 0
    old = Reader(quick.address, group, topic, classic)
    settle([old], [6])
    new = Reader(quick.address, group, topic, {"group.protocol": "consumer"})
    settle([old, new], [3, 3])
    new.close()
    settle([old], [6])
    new = Reader(quick.address, group, topic, {"group.protocol": "consumer"})
    settle([old, new], [3, 3])
    old.close()
    settle([new], [6])
    assert not old.lost and not new.lost
    new.close()
