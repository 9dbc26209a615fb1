"""Directories of brokers at work: the files have what the wire tells while batches are appended, compacted and deleted.

Klamm and Apache Kafka alike. A producer writes for as long as it takes to see all of that happen.
"""

from __future__ import annotations

import itertools
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import pytest
from confluent_kafka import Message, Producer

from klamm.pipeline.arrow import record_batches
from klamm.pipeline.errors import DataLoss
from klamm.pipeline.kafka.cluster import READ_COMMITTED, READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.fetcher import fetch_columns
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import OffsetRange, TopicPartition
from klamm.pipeline.segments import LogDirs, read_piece
from tests.pipeline.segments.building import Row
from tests.pipeline.spark.source.filling import fill
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

DELETED: Final = TopicPartition("deleted", 0)
COMPACTED: Final = TopicPartition("compacted", 0)
TOPICS: Final = {
    "deleted": {"cleanup.policy": "delete", "segment.bytes": "1048576", "retention.bytes": "2097152"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"},
}
CONFIG: Final = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "50",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
}
KEYS: Final = 300
TURN: Final = 1000
"""Records that are written while a range is read."""
VALUE: Final = b"v" * 900
PATIENCE_S: Final = 200.0


@dataclass
class Broker:
    address: str
    log_dir: Path


@pytest.fixture(scope="module", params=["klamm", pytest.param("kafka", marks=pytest.mark.java)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        with apache_kafka(directory, CONFIG) as kafka:
            yield Broker(kafka.address, kafka.log_dir)
    else:
        ours = {key: value for key, value in CONFIG.items() if key != "log.initial.task.delay.ms"}
        with BrokerProcess(directory / "data", ours) as process:
            yield Broker(process.address, process.data)


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=60) as cluster:
        yield cluster


@dataclass
class Writer:
    """Writes to both topics until it is stopped, and knows which record is at which offset."""

    address: str
    written: dict[str, dict[int, tuple[bytes | None, bytes | None]]] = field(
        default_factory=lambda: {topic: {} for topic in TOPICS}
    )
    turns: queue.Queue[int] = field(default_factory=queue.Queue)
    failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.turns.put(0)
        self._thread.join()

    def write(self, count: int) -> None:
        """Meanwhile."""
        self.turns.put(count)

    def settle(self) -> None:
        """Wait until all of that is acknowledged."""
        self.turns.join()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 5, "compression.type": "none"})
        numbers = itertools.count()
        while count := self.turns.get():
            try:
                for number in itertools.islice(numbers, count):
                    self._produce(producer, number)
                assert producer.flush(PATIENCE_S) == 0
            except BaseException as error:
                self.failure = error
            finally:
                self.turns.task_done()

    def _produce(self, producer: Producer, number: int) -> None:
        key = b"key-%d" % (number * 2654435761 % KEYS) if number % 50 else b"once-%d" % number
        value = b"%d " % number + VALUE if number % 97 else None
        for topic in TOPICS:
            producer.produce(topic, value, key, 0, self._delivered)

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None
        topic, offset = message.topic(), message.offset()
        assert topic is not None and offset is not None
        self.written[topic][offset] = message.key(), message.value()

    def within(self, wanted: OffsetRange) -> list[Row]:
        """Return the rows that were written there."""
        known = self.written[wanted.topic]
        return [(at, *known[at]) for at in range(wanted.start, wanted.end)]

    def check_latest(self, found: list[Row], end: int) -> None:
        """Check for the latest values below `end`, but for keys written since: their values may be gone, too."""
        expected = latest(self.within(OffsetRange("compacted", 0, 0, end)))
        again = {key for offset, (key, _) in self.written["compacted"].items() if offset >= end}
        seen = latest(found)
        assert seen.keys() <= expected.keys()
        for key, value in expected.items():
            assert seen.get(key) == value or key in again


def until(is_so: Callable[[], bool]) -> None:
    """What a broker does on its own, a moment later."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def range_of(cluster: Cluster, partition: TopicPartition, isolation: int = READ_COMMITTED) -> OffsetRange:
    topic_id = cluster.topics([partition.topic])[partition.topic].topic_id
    start = cluster.earliest([partition])[partition]
    return OffsetRange(*partition, start, cluster.latest([partition], isolation)[partition], topic_id)


def over_the_wire(
    cluster: Cluster, wanted: OffsetRange, isolation: int = READ_COMMITTED, *, headers: bool = False
) -> list[dict[str, Any]]:
    parts = fetch_columns(cluster, wanted, isolation=isolation)
    batches = record_batches(parts, *wanted.topic_partition, headers=headers)
    return [row for batch in batches for row in batch.to_pylist()]


def latest(found: list[Row]) -> Mapping[bytes | None, tuple[int, bytes | None]]:
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets)), "an offset came twice, or late"
    return {key: (offset, value) for offset, key, value in found}


def read_until_gone(logs: LogDirs, wanted: OffsetRange) -> tuple[list[Row], int]:
    """The rows up to where they are gone, and that offset, or the end of the range."""
    found: list[Row] = []
    at = wanted.start
    try:
        for piece in logs.plan(wanted, 300_000):
            for batch in read_piece(piece):
                found += zip(*(batch[name].to_pylist() for name in ("offset", "key", "value")), strict=True)
                at = found[-1][0] + 1
            at = piece.end
    except DataLoss as error:
        assert f"offset {at} is gone" in str(error)
    return found, at


def test_files_have_what_was_written_while_brokers_change_them(broker: Broker, cluster: Cluster) -> None:
    for topic, configs in TOPICS.items():
        create_topic(cluster, topic, partitions=1, configs=configs)
    logs = LogDirs([broker.log_dir])
    rounds = removed = shrunk = lost = 0
    end = time.monotonic() + PATIENCE_S
    with Writer(broker.address) as writer:
        writer.write(2 * TURN)
        while rounds < 12 or not removed or not shrunk:
            assert time.monotonic() < end, f"{rounds=} {removed=} {shrunk=}"
            writer.write(TURN)
            wanted = range_of(cluster, DELETED)
            found, at = read_until_gone(logs, wanted)
            if at < wanted.end:
                lost += 1
                until(lambda at=at: cluster.earliest([DELETED])[DELETED] > at)  # type: ignore[misc]
            read = OffsetRange("deleted", 0, wanted.start, at)
            writer.settle()
            assert found == writer.within(read)
            removed += wanted.start > 0

            writer.write(TURN)
            wanted = range_of(cluster, COMPACTED)
            found, at = read_until_gone(logs, OffsetRange("compacted", 0, 0, wanted.end, wanted.topic_id))
            assert at == wanted.end
            writer.settle()
            writer.check_latest(found, wanted.end)
            shrunk += len(found) < wanted.end
            rounds += wanted.end > 0
    print(f"{rounds=} {removed=} {shrunk=} {lost=}")

    wanted = range_of(cluster, COMPACTED)
    files = [row for piece in logs.plan(wanted, 500_000) for batch in read_piece(piece) for row in batch.to_pylist()]
    wire = over_the_wire(cluster, wanted)
    assert {row["key"]: row for row in files} == {row["key"]: row for row in wire}, "timestamps, too"
    assert any(row["value"] is None for row in files)
    until(lambda: deleted_reads_alike(logs, cluster))


def deleted_reads_alike(logs: LogDirs, cluster: Cluster) -> bool:
    """Compare files and wire; return False if retention took records away meanwhile."""
    wanted = range_of(cluster, DELETED)
    found, at = read_until_gone(logs, wanted)
    try:
        wire = over_the_wire(cluster, wanted)
    except DataLoss:
        return False
    if at < wanted.end:
        return False
    assert [(row["offset"], row["key"], row["value"]) for row in wire] == found
    return True


def test_transactions_codecs_and_headers_are_those_of_the_wire(
    broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    fill(cluster, "filled", partitions=2, records=250)
    partitions = [TopicPartition("filled", 0), TopicPartition("filled", 1)]
    until(lambda: cluster.latest(partitions, READ_COMMITTED) == cluster.latest(partitions, READ_UNCOMMITTED))
    copy = tmp_path / "copy"
    copy.mkdir()
    for number in (0, 1):
        shutil.copytree(broker.log_dir / f"filled-{number}", copy / f"filled-{number}")
        indexes = list((copy / f"filled-{number}").glob("*.txnindex"))
        assert indexes, "transactions were aborted"
        for path in indexes:
            path.unlink()
    for number, isolation in itertools.product((0, 1), (READ_COMMITTED, READ_UNCOMMITTED)):
        wanted = range_of(cluster, TopicPartition("filled", number), isolation)
        expected = over_the_wire(cluster, wanted, isolation, headers=True)
        committed = isolation == READ_COMMITTED
        for logs in (LogDirs([broker.log_dir]), LogDirs([copy])):
            assert logs.start_offset(wanted.topic_partition) == wanted.start
            assert logs.end_offset(wanted.topic_partition, read_committed=committed) == wanted.end
            for piece_bytes in (1, 3000, 1 << 20):
                found = []
                for piece in logs.plan(wanted, piece_bytes):
                    for batch in read_piece(piece, headers=True, read_committed=committed):
                        found += batch.to_pylist()
                assert found == expected
