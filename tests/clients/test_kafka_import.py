"""Log directories that Apache Kafka has filled are taken over: all that it served is served, and goes on.

One broker of Kafka with two log dirs; its files are copied while it is idle, as `kill -9` would leave them, and once
more after a clean stop.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import Record, batches, encode_batch, stamp
from tests.clients.import_export import (
    BROKER,
    GROUPS,
    LATEST,
    READ_COMMITTED,
    connected,
    difference,
    dump,
    fill,
    look,
    offset_of,
    read,
    read_all,
    wait_until_decided,
    wait_until_settled,
)
from tests.clients.kafka_tools import KafkaTools
from tests.clients.raw import produce
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

LOG_DIRS = ("one", "two")


@dataclass(frozen=True, slots=True)
class Kafka:
    """What it served, and where its directories are, by how it ended."""

    served: dict[str, Any]
    left: dict[str, Path]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Kafka:
    root = tmp_path_factory.mktemp("kafka")
    left = {"killed": root / "killed", "clean": root / "clean"}
    log_dirs = [left["clean"] / name for name in LOG_DIRS]
    config = {**BROKER, "log.dirs": ",".join(map(str, log_dirs))}
    with apache_kafka(root, config, log_dir=log_dirs[0]) as process:
        open_transaction = fill(process.address)
        wait_until_settled(process.address, log_dirs)
        served = look(process.address)
        shutil.copytree(left["clean"], left["killed"], ignore=shutil.ignore_patterns("*.tmp"))  # they come and go
        process.stop()
        del open_transaction
    assert not (left["killed"] / "one" / ".kafka_cleanshutdown").exists()
    assert (left["clean"] / "one" / ".kafka_cleanshutdown").exists()
    return Kafka(served, left)


@dataclass(frozen=True, slots=True)
class Taken:
    """Klamm on a copy, and what it served at first: the tests go on from there in any order."""

    process: BrokerProcess
    served: dict[str, Any]


@pytest.fixture(scope="module", params=["clean", "killed"])
def taken(kafka: Kafka, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    root = tmp_path_factory.mktemp("klamm") / "dirs"
    shutil.copytree(kafka.left[request.param], root)
    with BrokerProcess(root, {**BROKER, "log.dirs": ",".join(str(root / name) for name in LOG_DIRS)}) as process:
        yield Taken(process, look(process.address))


@pytest.fixture
def klamm(taken: Taken) -> BrokerProcess:
    return taken.process


def test_everything_that_kafka_served_is_served(kafka: Kafka, taken: Taken) -> None:
    assert difference(kafka.served, taken.served) == []
    assert kafka.served["trimmed-0: start"] == 777
    assert kafka.served["retained-0: start"] > 0
    assert len(kafka.served["paid-0: aborted"]) == 5
    assert kafka.served["paid-0: last stable offset"] == 210 < kafka.served["paid-0: end"]
    assert kafka.served["__consumer_offsets: partitions"] == list(range(7))
    assert len(kafka.served["table-0: batches"]) < 125


def test_a_producer_of_before_goes_on(klamm: BrokerProcess) -> None:
    """The last batch once more is a duplicate, the next sequence is taken, a gap is not."""
    with connected(klamm.address) as client:
        data = read_all(client, "paid", 0, 0)
        position, head = next(found for found in batches(data) if not found[1].is_transactional)
        last = bytearray(data[position : position + head.size_bytes])
        stamp(last, 0, -1)
        again = produce(client, "paid", last, 9)
        assert (again.error_code, again.base_offset) == (0, head.base_offset)

        def from_sequence(sequence: int) -> Any:
            record = Record(0, head.max_timestamp, b"k", b"v")
            producer = {"producer_id": head.producer_id, "producer_epoch": head.producer_epoch}
            return produce(client, "paid", encode_batch([record], base_sequence=sequence, **producer), 9)

        end, _ = offset_of(client, "paid", 0, LATEST)
        assert from_sequence(head.last_sequence + 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        next_one = from_sequence(head.last_sequence + 1)
        assert (next_one.error_code, next_one.base_offset) == (0, end)


def test_new_producers_get_ids_that_kafka_has_not_given(kafka: Kafka, klamm: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": klamm.address, "enable.idempotence": True})
    producer.produce("empty", b"new", partition=0)
    assert producer.flush(30) == 0
    with connected(klamm.address) as client:
        ((_, head),) = batches(read_all(client, "empty", 0, 0))
    known = {head[8] for name, heads in kafka.served.items() if name.endswith(": batches") for head in heads}
    assert head.producer_id >= 1000 > max(known)


def test_a_group_goes_on_where_it_was(klamm: BrokerProcess) -> None:
    consumer = Consumer({"bootstrap.servers": klamm.address, "group.id": "readers", "auto.offset.reset": "error"})
    consumer.subscribe(["codecs"])
    first: dict[int, int] = {}
    while len(first) < 3:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        first.setdefault(message.partition(), message.offset())
    consumer.close()
    assert first == {index: GROUPS["readers"] + index for index in range(3)}


def test_a_transaction_that_was_open_is_ended_by_its_producer(klamm: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": klamm.address, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("paid", b"decided", partition=0)
    producer.commit_transaction(60)
    with connected(klamm.address) as client:
        wait_until_decided(client, "paid", 0)
        answer = read(client, "paid", 0, 0, isolation_level=READ_COMMITTED)
        assert [each.first_offset for each in answer.aborted_transactions][-1] == 210


def test_kafkas_tools_find_nothing_wrong_after_a_stop(klamm: BrokerProcess, commands: JavaProcess) -> None:
    served = look(klamm.address)
    assert klamm.terminate() == 0
    log = klamm.log()
    assert "Traceback" not in log and "offline" not in log, log[-3000:]
    dump(KafkaTools(commands, ""), klamm.data)
    klamm.restart()
    assert difference(served, look(klamm.address)) == []
