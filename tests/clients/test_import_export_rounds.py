"""Moves between Klamm and Kafka with `kill -9` in the middle of writing: no acknowledged record is ever missing.

Kafka is killed and Klamm takes its directory over; Klamm is killed and its export is Kafka's; at last Kafka starts
again on the directory that Klamm had taken over.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klamm.protocol.records.batch import batches, records
from tests.clients.import_export import LATEST, connected, dump, offset_of, read_all
from tests.clients.kafka_tools import KafkaTools
from tests.clients.raw import create
from tests.support.apache_kafka import CLUSTER_ID, ApacheKafka, apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java, pytest.mark.timeout(900)]

ROUNDS = 2
WRITING_S = 1.5
SETTINGS = {"segment.bytes": "1048576", "retention.ms": "-1"}
INTERNAL = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}

Written = dict[int, bytes]  # acknowledged values by offset


class Writing:
    """An idempotent producer that writes until it is stopped; ``written`` gets the acknowledged records."""

    def __init__(self, address: str, written: Written, rng: random.Random) -> None:
        self._written = written
        self._rng = rng
        self._stop = threading.Event()
        settings = {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 2, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 5000, **settings})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(50):
                value = self._rng.randbytes(self._rng.randrange(1500))
                self._producer.produce("t", value, partition=0, on_delivery=self._on_delivery(value))
            self._producer.poll(0.005)

    def _on_delivery(self, value: bytes):  # type: ignore[no-untyped-def]
        def note(error: object, message: object) -> None:
            if error is None:
                self._written[message.offset()] = value  # type: ignore[attr-defined]

        return note

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(10)


def write_for_a_while(address: str, written: Written, rng: random.Random) -> Writing:
    before = len(written)
    writing = Writing(address, written, rng)
    threading.Event().wait(WRITING_S)
    while len(written) == before:  # a broker that is slow to begin
        threading.Event().wait(0.1)
    return writing


def check(address: str, written: Written) -> None:
    """All that was acknowledged is where it was."""
    with connected(address) as client:
        end, _ = offset_of(client, "t", 0, LATEST)
        data = read_all(client, "t", 0, 0)
    stored = {
        record.offset: record.value
        for position, head in batches(data)
        for record in records(data, head, 1 << 24, position)
    }
    assert sorted(stored) == list(range(end))
    lost = [offset for offset, value in written.items() if stored.get(offset) != value]
    assert not lost, f"{len(lost)} of {len(written)} records are not those acknowledged, the first at {min(lost)}"


def write_and_kill_kafka(kafka: ApacheKafka, written: Written, rng: random.Random) -> None:
    writing = write_for_a_while(kafka.address, written, rng)
    kafka.process.kill()
    kafka.process.wait()
    writing.stop()


def export(source: Path, target: Path) -> None:
    command = [sys.executable, "-m", "klamm", "export-kafka", str(target), "--override", f"log.dirs={source}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_acknowledged_is_lost_on_the_way(tmp_path: Path, commands: JavaProcess) -> None:
    seed = 77
    print(f"seed={seed}")
    rng = random.Random(seed)
    written: Written = {}
    directory = tmp_path / "home-0"
    with BrokerProcess(directory, {**INTERNAL, "klamm.cluster.id": CLUSTER_ID}) as klamm:
        with connected(klamm.address) as client:
            create(client, "t", 1, SETTINGS)
        writing = write_for_a_while(klamm.address, written, rng)
        klamm.kill()
        writing.stop()
    for number in range(1, ROUNDS + 1):
        home = tmp_path / f"home-{number}"
        export(directory, home)
        with apache_kafka(tmp_path / f"kafka-{number}", INTERNAL, log_dir=home) as kafka:
            check(kafka.address, written)
            write_and_kill_kafka(kafka, written, rng)
        with BrokerProcess(home, INTERNAL) as klamm:
            assert "imported from" in klamm.log()
            check(klamm.address, written)
            writing = write_for_a_while(klamm.address, written, rng)
            klamm.kill()
            writing.stop()
        directory = home
    with BrokerProcess(directory, INTERNAL) as klamm:
        check(klamm.address, written)
        writing = write_for_a_while(klamm.address, written, rng)
        writing.stop()
        assert klamm.terminate() == 0
        assert "Traceback" not in klamm.log()
    dump(KafkaTools(commands, ""), directory, at_least=2)
    with apache_kafka(tmp_path / "same", INTERNAL, log_dir=directory) as kafka:
        check(kafka.address, written)
    assert not list(directory.glob("*-stray"))
    print(f"acknowledged={len(written)}")
