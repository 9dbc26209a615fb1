"""The state in which a reader of a page begins: topics, records, damage, a directory of Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.protocol.cluster_metadata.cluster import ProducerIdsRecord
from tests.broker.tools.kafka_directory import make_directory, make_partition, topic_id, topic_records, write_metadata
from tests.docs.terminal import Terminal
from tests.faults.damage import flip


def with_a_broker(terminal: Terminal) -> None:
    """A topic `payments`."""
    terminal.start()
    create(terminal, "payments")


def with_records(terminal: Terminal) -> None:
    """Three records in one batch of `flights`, two of them consumed by the group `board`; the broker is stopped."""
    terminal.start()
    create(terminal, "flights")
    create(terminal, "weather-1")
    produce(terminal, 3, {"compression.type": "zstd", "linger.ms": 500})
    consumer = Consumer({"bootstrap.servers": address(terminal), "group.id": "board"})
    consumer.commit(offsets=[TopicPartition("flights", 0, 2)], asynchronous=False)
    consumer.close()
    terminal.stop()


def with_damage(terminal: Terminal) -> None:
    """Ten batches of `flights`, the fifth of them damaged; the broker is stopped."""
    terminal.start()
    create(terminal, "flights")
    for _ in range(10):
        produce(terminal, 1, {})
    terminal.stop()
    file = terminal.folder / "data/flights-0/00000000000000000000.log"
    flip(file, file.stat().st_size * 9 // 20)


def with_kafkas_directory(terminal: Terminal) -> None:
    """A log directory of Apache Kafka with the topics `flights` and `orders`."""
    data = make_directory(terminal.folder / "data")
    lost = {"retention.ms": "-1", "retention.bytes": "-1"}
    records = topic_records("flights", topic_id(1), 1) + topic_records("orders", topic_id(2), 1, config=lost)
    for number, name in enumerate(("flights-0", "orders-0"), 1):
        make_partition(data, name, topic=topic_id(number))
    write_metadata(data, [*records, ProducerIdsRecord(broker_id=1, next_producer_id=7000)])


def with_listeners_of_its_own(terminal: Terminal) -> None:
    """Nothing; the page names the listeners."""
    terminal.leave_listeners_to_the_page()


SCENES: Final[dict[str, Callable[[Terminal], None]]] = {
    "docs/damage.md": with_damage,
    "docs/durability.md": with_a_broker,
    "docs/moving.md": with_kafkas_directory,
    "docs/security.md": with_listeners_of_its_own,
    "docs/tools.md": with_records,
}


def address(terminal: Terminal) -> str:
    return f"127.0.0.1:{terminal.port}"


def create(terminal: Terminal, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address(terminal)})
    admin.create_topics([NewTopic(topic, 1)])[topic].result()


def produce(terminal: Terminal, count: int, config: dict[str, object]) -> None:
    producer = Producer({"bootstrap.servers": address(terminal), **config})
    for number in range(count):
        producer.produce("flights", key=f"{number}", value=f"flight {number}")
    assert producer.flush(30) == 0
