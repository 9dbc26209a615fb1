"""Transactions that Apache Kafka's broker wrote, opened by Klamm, and Klamm's under Kafka's tools."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.storage import paths
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.producer_state_entry import parse_snapshot
from klamm.storage.log.transaction_index import check, entries
from klamm.storage.recovery import loader
from tests.storage.batches import batch, end_transaction, transact
from tests.storage.read_committed import read_committed
from tests.support.apache_kafka import apache_kafka
from tests.support.jars import JAVA, run_java

pytestmark = pytest.mark.java

SEGMENT_BYTES = 1 << 20
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=4096)
SOURCE = JAVA / "transactions" / "Transactions.java"


def open_log(directory: Path, *, clean: bool, recovery_point: int = 0) -> Log:
    log = loader.open_log(
        loader.LogSource(
            directory,
            CONFIG,
            clock=SystemClock(),
            filesystem=OsFilesystem(),
            clean=clean,
            recovery_point=recovery_point,
        )
    )
    log.set_high_watermark(log.log_end_offset)
    return log


def script(seed: int) -> str:
    """Five producers with overlapping transactions, some over a segment; two stay open."""
    rng = random.Random(seed)
    steps = []
    is_open: set[int] = set()
    for _ in range(120):
        producer = rng.randrange(5)
        if producer not in is_open:
            steps.append(f"b{producer}")
            is_open.add(producer)
        steps.append(f"s{producer}:{rng.choice([1, 3, 40, 400])}")
        if rng.random() < 0.2:
            steps.append(f"n:{rng.choice([1, 50])}")
        if rng.random() < 0.4:
            steps.append(rng.choice("ca") + str(producer))
            is_open.discard(producer)
    return " ".join(steps + [f"a{producer}" for producer in sorted(is_open)] + ["b1 s1:2", "n:3", "b2 s2:1"])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[int], int]]:
    """A partition directory, the offsets that a read_committed consumer of Kafka got, and how far it got."""
    base = tmp_path_factory.mktemp("transactions")
    with apache_kafka(base / "kafka", {"transaction.state.log.replication.factor": "1"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        settings = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "4096"}
        admin.create_topics([NewTopic("t", 1, config=settings)])["t"].result(30)
        run_java("clients", SOURCE, kafka.address, "t", "tx-", input_text=script(4))
        consumer = Consumer(
            {"bootstrap.servers": kafka.address, "group.id": "g", "isolation.level": "read_committed",
             "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        stable = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)[1]
        consumer.assign([TopicPartition("t", 0, 0)])
        seen: list[int] = []
        while not seen or seen[-1] < stable - 10:
            for message in consumer.consume(1000, 2.0):
                assert message.error() is None
                seen.append(int(message.offset() or 0))
            if consumer.position([TopicPartition("t", 0)])[0].offset >= stable:
                break
        consumer.close()
        kafka.stop()
        yield kafka.log_dir / "t-0", seen, stable


@pytest.fixture
def directory(filled: tuple[Path, list[int], int], tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled[0], tmp_path / "t-0"))


def indexes_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*" + paths.TXN_INDEX_SUFFIX))}


def test_what_apache_kafka_wrote_is_read_as_its_consumer_reads_it(
    filled: tuple[Path, list[int], int], directory: Path
) -> None:
    _, seen, stable = filled
    log = open_log(directory, clean=True)
    assert len(log.local.segments.all) > 1
    assert log.last_stable_offset == stable
    assert [record.offset for record in read_committed(log, max_bytes=50_000)] == seen
    kafkas = parse_snapshot((directory / f"{log.log_end_offset:020d}.snapshot").read_bytes())
    assert sorted(p.producer_id for p in log.producers if p.first_transaction_offset >= 0) == sorted(
        p.producer_id for p in kafkas if p.first_transaction_offset >= 0
    )
    assert sum(p.first_transaction_offset >= 0 for p in kafkas) == 2
    log.local.abandon("done")


@pytest.mark.parametrize("how", ["everything", "last segment"])
def test_transaction_indexes_and_producers_are_rebuilt_as_apache_kafka_wrote_them(
    filled: tuple[Path, list[int], int], directory: Path, how: str
) -> None:
    written = indexes_in(directory)
    assert sum(len(content) for content in written.values()) >= 20 * 34
    snapshots = sorted(directory.glob("*.snapshot"))
    at_the_end = snapshots[-1].read_bytes()
    for path in [*directory.glob("*index"), *snapshots]:
        if how == "everything" or path.name[:20] >= f"{int(snapshots[-2].name[:20]):020d}":
            path.unlink()
    recovery_point = 0 if how == "everything" else int(snapshots[-2].name[:20])
    log = open_log(directory, clean=False, recovery_point=recovery_point)
    log.close()
    found = {name: content for name, content in indexes_in(directory).items() if content}
    assert found == {name: content for name, content in written.items() if content}
    ours = (directory / f"{log.log_end_offset:020d}.snapshot").read_bytes()
    assert sorted(producers(ours)) == sorted(producers(at_the_end))


def producers(content: bytes) -> list[tuple[object, ...]]:
    return [
        (p.producer_id, p.epoch, p.last_sequence, tuple(p.batches), p.last_timestamp, p.coordinator_epoch,
         p.first_transaction_offset)
        for p in parse_snapshot(content)
    ]  # fmt: skip


def test_a_missing_index_is_missed_after_a_clean_close_of_ours(directory: Path) -> None:
    log = open_log(directory, clean=True)
    log.append_as_leader(batch(), leader_epoch=log.leader_epochs.latest)
    log.close()
    written = indexes_in(directory)
    for path in directory.glob("*" + paths.TXN_INDEX_SUFFIX):
        path.unlink()
    open_log(directory, clean=True).close()
    assert {name: content for name, content in indexes_in(directory).items() if content} == {
        name: content for name, content in written.items() if content
    }


def test_apache_kafka_finds_nothing_wrong_in_ours(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", clean=True)
    for number in range(12):
        transact(log, 7 + number % 3, number // 3, 0)
        transact(log, 20, 0, number)
        end_transaction(log, 7 + number % 3, number // 3 + 1, is_commit=number % 2 == 0, transaction_version=2)
    end_transaction(log, 20, 0, is_commit=False, coordinator_epoch=3)
    log.close()
    files = sorted((tmp_path / "t-0").glob("0*"))
    names = ",".join(map(str, files))
    dump = run_java(
        "tools", "org.apache.kafka.tools.DumpLogSegments", "--files", names, "--deep-iteration"
    ).splitlines()
    assert not [line for line in dump if "ismatch" in line or "isvalid: false" in line or "orrupt" in line]
    assert sum("endTxnMarker: COMMIT coordinatorEpoch: 0" in line for line in dump) == 6
    assert sum("endTxnMarker: ABORT coordinatorEpoch: 0" in line for line in dump) == 6
    assert sum("endTxnMarker: ABORT coordinatorEpoch: 3" in line for line in dump) == 1
    (index,) = indexes_in(tmp_path / "t-0").values()
    check(index, 0, log.log_end_offset)
    lines = [line for line in dump if line.startswith("version: 0 producerId: ")]
    assert lines == [
        f"version: 0 producerId: {t.producer_id} firstOffset: {t.first_offset} lastOffset: {t.last_offset} "
        f"lastStableOffset: {t.last_stable_offset}"
        for t in entries(index)
    ]
