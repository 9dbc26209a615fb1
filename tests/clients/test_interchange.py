"""Partitions change house: what Klamm wrote is served by Apache Kafka, and what that wrote by Klamm, record for record.

Each keeps its own `partition.metadata` (the topic id is the cluster's); all other files of the partition change house.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.records.batch import batches, records
from tests.clients.driver import Driver
from tests.clients.kafka_tools import KafkaTools
from tests.clients.raw import create, fetch_all, list_offsets
from tests.clients.samples import CODECS, Sent
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.java_process import JavaProcess

pytestmark = [pytest.mark.campaign, pytest.mark.java]

TOPIC: Final = "moving"
PARTITION: Final = f"{TOPIC}-0"
CONFIG: Final = {"segment.bytes": "1048576", "index.interval.bytes": "4096", "retention.ms": "-1"}
OWN_FILES: Final = ("partition.metadata",)
FIRST_TIMESTAMP: Final = 1_700_000_000_000


def records_to_send(seed: int, first: int, count: int) -> list[Sent]:
    rng = random.Random(seed)
    return [
        Sent(0, b"%d" % number, rng.randbytes(rng.randrange(400)), (("n", b"1"),), FIRST_TIMESTAMP + number)
        for number in range(first, first + count)
    ]


def fill(address: str, sent: list[Sent]) -> None:
    """Every codec, each from an idempotent producer of its own."""
    share = len(sent) // len(CODECS)
    with Driver("confluent-kafka") as client:
        for number, codec in enumerate(CODECS):
            config = {"compression.type": codec, "enable.idempotence": "true", "batch.num.messages": "50"}
            client.produce(address, TOPIC, sent[number * share : (number + 1) * share], config)


def stored(address: str) -> list[tuple[int, bytes | None, bytes | None, int]]:
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        data = fetch_all(client, TOPIC, 0)
    return [
        (record.offset, record.key, record.value, record.timestamp)
        for position, header in batches(data)
        for record in records(data, header, 1 << 24, position)
    ]


def as_stored(sent: Iterable[Sent]) -> list[tuple[int, bytes | None, bytes | None, int | None]]:
    return [(offset, one.key, one.value, one.timestamp) for offset, one in enumerate(sent)]


def move_in(source: Path, target: Path) -> None:
    """Replace the files in `target` by those of `source`, but for the broker's own."""
    for file in target.iterdir():
        if file.name not in OWN_FILES:
            file.unlink()
    for file in source.iterdir():
        if file.name not in OWN_FILES:
            shutil.copy2(file, target / file.name)


def create_topic(address: str) -> None:
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        create(client, TOPIC, config=CONFIG)


def skip_producer_ids(address: str, count: int = 100) -> None:
    """Let the ids of this cluster's producers begin above those of the other: a snapshot keeps producers for a day."""
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        for _ in range(count):
            client.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1)


def timestamp_lookups(address: str, timestamps: list[int]) -> list[tuple[int, int]]:
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        answers = [list_offsets(client, TOPIC, timestamp, 7) for timestamp in timestamps]
    return [(answer.offset, answer.timestamp) for answer in answers]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "recovered"])
@pytest.mark.timeout(240)
def test_a_partition_moves_to_apache_kafka_and_back(clean: bool, tmp_path: Path, commands: JavaProcess) -> None:
    """Each finds no sign of a clean shutdown unless `clean`: then it checks the files and rebuilds the indexes."""
    ours = records_to_send(1, 0, 10_000)
    theirs = records_to_send(2, 10_000, 10_000)
    last = records_to_send(3, 20_000, 1_000)
    lookups = [FIRST_TIMESTAMP + number for number in (-5, 0, 777, 5_000, 9_999, 10_000)]
    data = tmp_path / "klamm"
    tools = KafkaTools(commands, "")

    def dump() -> None:
        files = sorted((data / PARTITION).glob("0*"))
        tools.dump_log([file for file in files if file.suffix == ".log"], "--deep-iteration")
        tools.dump_log([file for file in files if file.suffix in (".index", ".timeindex")], "--index-sanity-check")
        tools.dump_log([file for file in files if file.suffix in (".index", ".timeindex")], "--verify-index-only")
        tools.dump_log([file for file in files if file.suffix == ".snapshot"])

    with BrokerProcess(data) as broker:
        create_topic(broker.address)
        skip_producer_ids(broker.address)
        fill(broker.address, ours)
        found = timestamp_lookups(broker.address, lookups)
        assert broker.terminate() == 0
    dump()

    with apache_kafka(tmp_path / "apache") as kafka:
        create_topic(kafka.address)
    assert len(list((data / PARTITION).glob("*.log"))) > 2
    move_in(data / PARTITION, kafka.log_dir / PARTITION)
    if not clean:
        _forget_shutdown(kafka.log_dir)
        for index in (kafka.log_dir / PARTITION).glob("*index"):
            index.unlink()
    with apache_kafka(tmp_path / "apache", log_dir=kafka.log_dir) as kafka:
        assert stored(kafka.address) == as_stored(ours)
        assert timestamp_lookups(kafka.address, lookups) == found
        fill(kafka.address, theirs)
    assert not list(kafka.log_dir.glob("*-stray")), kafka.output.read_text()[-2000:]

    move_in(kafka.log_dir / PARTITION, data / PARTITION)
    if not clean:
        _forget_shutdown(data)
        for index in (data / PARTITION).glob("*index"):
            index.unlink()
    with BrokerProcess(data) as broker:
        assert stored(broker.address) == as_stored(ours + theirs)
        assert timestamp_lookups(broker.address, lookups)[:-1] == found[:-1]
        fill(broker.address, last)
        assert stored(broker.address) == as_stored(ours + theirs + last)
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log()
    dump()


def _forget_shutdown(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
