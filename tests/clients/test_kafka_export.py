"""What Klamm has is exported to Apache Kafka 4.4, which starts on it at once, serves the same, and goes on.

One filled Klamm, killed; its export; one start of Kafka on it; and Klamm on what Kafka made of it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records.batch import Record, batches, encode_batch, stamp
from tests.clients.import_export import (
    BROKER,
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
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka, apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java, pytest.mark.timeout(400)]

LOG_DIRS = ("one", "two")


@dataclass(frozen=True, slots=True)
class Moved:
    """Apache Kafka on the export; what Klamm served before it, and Kafka at first."""

    served: dict[str, Any]
    found: dict[str, Any]
    ours: Path
    kafka: ApacheKafka
    root: Path


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    root = tmp_path_factory.mktemp("moved")
    ours = [root / "klamm" / name for name in LOG_DIRS]
    config = {**BROKER, "log.dirs": ",".join(map(str, ours)), "klamm.cluster.id": CLUSTER_ID}
    with BrokerProcess(root / "klamm", config) as klamm:
        open_transaction = fill(klamm.address)
        wait_until_settled(klamm.address, ours)
        served = look(klamm.address)
        klamm.kill()
        del open_transaction
    command = [sys.executable, "-m", "klamm", "export-kafka", str(root / "export")]
    for key, value in config.items():
        command += ["--override", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    with apache_kafka(root / "apache", BROKER, log_dir=root / "export") as kafka:
        yield Moved(served, look(kafka.address), root / "klamm", kafka, root)


def test_kafka_serves_everything_that_klamm_served(moved: Moved) -> None:
    """Markers of the open transaction are left out: both brokers end it when they like."""
    assert difference(moved.served, moved.found) == []
    assert moved.served["trimmed-0: start"] == 777
    assert moved.served["retained-0: start"] > 0
    assert len(moved.served["paid-0: aborted"]) == 5
    assert moved.served["__consumer_offsets: partitions"] == list(range(7))
    assert not list((moved.root / "export").glob("*-stray"))


def test_a_producer_of_before_goes_on(moved: Moved) -> None:
    with connected(moved.kafka.address) as client:
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

        assert from_sequence(head.last_sequence + 2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert from_sequence(head.last_sequence + 1).error_code == 0


def test_new_producers_get_ids_that_klamm_has_not_given(moved: Moved) -> None:
    producer = Producer({"bootstrap.servers": moved.kafka.address, "enable.idempotence": True})
    producer.produce("empty", b"new", partition=0)
    assert producer.flush(60) == 0
    with connected(moved.kafka.address) as client:
        ((_, head),) = batches(read_all(client, "empty", 0, 0))
    known = {head[8] for name, heads in moved.served.items() if name.endswith(": batches") for head in heads}
    assert head.producer_id >= 1000 > max(known)


def test_a_transaction_that_was_open_is_ended_by_its_producer(moved: Moved) -> None:
    producer = Producer({"bootstrap.servers": moved.kafka.address, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("paid", b"decided", partition=0)
    producer.commit_transaction(60)
    with connected(moved.kafka.address) as client:
        wait_until_decided(client, "paid", 0)
        answer = read(client, "paid", 0, 0, isolation_level=READ_COMMITTED)
        assert [each.first_offset for each in answer.aborted_transactions][-1] == 210


def test_kafkas_tools_find_nothing_wrong_in_ours(moved: Moved, commands: JavaProcess) -> None:
    """The directories that were exported from are closed, and as they were."""
    dump(KafkaTools(commands, ""), moved.ours)


def test_our_directories_go_on_apart_from_kafkas(moved: Moved) -> None:
    """Closed segments are shared; neither house sees what the other does."""
    dirs = ",".join(str(moved.ours / name) for name in LOG_DIRS)
    with BrokerProcess(moved.ours, {**BROKER, "log.dirs": dirs}) as klamm:
        assert difference(moved.served, look(klamm.address)) == []
        producer = Producer({"bootstrap.servers": klamm.address})
        producer.produce("codecs", b"ours alone", partition=2)
        assert producer.flush(30) == 0
    with connected(moved.kafka.address) as client:
        assert offset_of(client, "codecs", 2, LATEST)[0] == moved.served["codecs-2: end"]
