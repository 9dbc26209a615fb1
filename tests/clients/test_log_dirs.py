"""Partitions move between log directories at the word of Apache Kafka's tools, while clients write and read."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.kafka_tools import PACKAGE, KafkaTools
from tests.support.broker_process import BrokerProcess, wait_for
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.clients, pytest.mark.timeout(300)]

TOPIC, PARTITIONS = "moving", 2
VALUE = bytes(2000)
ROUNDS = 3


class Load(threading.Thread):
    """A producer of numbered records to all partitions, idempotent and with acks=all, until it is stopped."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "queue.buffering.max.ms": 2}
        )
        self.sent = [0] * PARTITIONS
        self.acked = [0] * PARTITIONS
        self.failures: list[str] = []
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            for partition in range(PARTITIONS):
                number = self.sent[partition]
                self.sent[partition] += 1
                self._producer.produce(TOPIC, b"%d " % number + VALUE, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0.001)
        self._producer.flush(60)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        assert message.offset() == int(message.value().split(b" ")[0])
        self.acked[message.partition()] += 1


class Reader(threading.Thread):
    """A reader of all partitions from the beginning. It checks that no record is missing, twice or out of order."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        self.read = [0] * PARTITIONS
        self.failures: list[str] = []
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.is_set():
            for message in self._consumer.consume(500, 0.1):
                partition = message.partition()
                if message.error() is not None:
                    self.failures.append(str(message.error()))
                elif (message.offset(), int(message.value().split(b" ")[0])) != (self.read[partition],) * 2:
                    self.failures.append(f"{partition}: {message.offset()} after {self.read[partition] - 1}")
                else:
                    self.read[partition] += 1
        self._consumer.close()


def created(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    config = {"segment.bytes": str(1 << 20)}
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=config)])[TOPIC].result(30)
    except KafkaException as error:
        raise AssertionError(str(error)) from error


def plan(path: Path, target: Path) -> str:
    """A file for kafka-reassign-partitions: all partitions to one log directory."""
    file = path / "plan.json"
    partitions = [
        {"topic": TOPIC, "partition": partition, "replicas": [1], "log_dirs": [str(target)]}
        for partition in range(PARTITIONS)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def places(tools: KafkaTools) -> dict[str, set[tuple[int, bool]]]:
    """(partition, future) in each log directory, as kafka-log-dirs tells it."""
    output = tools.log_dirs("--describe", "--topic-list", TOPIC)
    (line,) = (line for line in output.splitlines() if line.startswith("{"))
    (broker,) = json.loads(line)["brokers"]
    return {
        entry["logDir"]: {(int(each["partition"].rpartition("-")[2]), each["isFuture"]) for each in entry["partitions"]}
        for entry in broker["logDirs"]
    }


def test_partitions_move_back_and_forth_while_clients_write_and_read(tmp_path: Path, commands: JavaProcess) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": f"{dirs[0]},{dirs[1]}"}
    with BrokerProcess(tmp_path / "data", config) as broker:
        tools = KafkaTools(commands, broker.address)
        created(broker.address)
        load, reader = Load(broker.address), Reader(broker.address)
        load.start()
        reader.start()
        wait_for(lambda: min(load.acked) > 2000, 60, "a few segments")
        futures = 0
        for number in range(ROUNDS):
            target = dirs[number % 2]
            command = PACKAGE + "reassign.ReassignPartitionsCommand"
            common = ["--bootstrap-server", broker.address, "--reassignment-json-file", plan(tmp_path, target)]
            throttle = ["--replica-alter-log-dirs-throttle", "3000000"] if number == 1 else []
            tools.run(command, [*common, "--execute", *throttle])

            def moved(target: Path = target) -> bool:
                nonlocal futures
                found = places(tools)
                futures += sum(future for each in found.values() for _, future in each)
                return found[str(target)] == {(partition, False) for partition in range(PARTITIONS)}

            wait_for(moved, 90, f"the partitions in {target}")
            verified = tools.run(command, [*common, "--verify"])
            assert verified.count("is complete") + verified.count("completed successfully") >= PARTITIONS, verified
        assert futures > 0, "no copy was ever seen under way"
        load.ends.set()
        load.join(90)
        wait_for(lambda: reader.read == load.sent, 60, "all records read")
        reader.ends.set()
        reader.join(60)
        assert load.failures == [] and reader.failures == []
        assert load.acked == load.sent
    names = [sorted(each.name for each in path.iterdir() if each.name.startswith(TOPIC)) for path in dirs]
    assert names == [["moving-0", "moving-1"], []]
    assert "Traceback" not in broker.log()
