"""The same files under Apache Kafka: its tool reads Klamm's, and Klamm continues where its broker stopped."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.protocol.records.compression import Codec
from klamm.storage.clock import SystemClock
from klamm.storage.compaction.cleanable import cleanable, make_job
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery import loader
from tests.storage.batches import all_records, batch, read_bytes, valid
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import wait_for
from tests.support.jars import run_java

pytestmark = pytest.mark.java

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=1000)
INDEX_SUFFIXES = (".index", ".timeindex")


def open_log(directory: Path, *, clean: bool, config: LogConfig = CONFIG) -> Log:
    return loader.open_log(
        loader.LogSource(directory, config, clock=SystemClock(), filesystem=OsFilesystem(), clean=clean)
    )


def kafka_dump(files: list[Path], *options: str) -> list[str]:
    names = ",".join(map(str, files))
    return run_java("tools", "org.apache.kafka.tools.DumpLogSegments", "--files", names, *options).splitlines()


def test_kafka_finds_nothing_wrong_in_our_files(tmp_path: Path) -> None:
    rng = random.Random(1)
    now_ms = int(time.time() * 1000)
    log = open_log(tmp_path / "t-0", clean=True)
    sequence = 0
    for number in range(300):
        times = [now_ms - rng.randrange(100_000) for _ in range(rng.randrange(1, 6))]
        log.append_as_leader(
            batch(
                *times,
                value=bytes([65 + number % 26]) * rng.randrange(200),
                codec=rng.choice(list(Codec)),
                producer_id=7,
                epoch=0,
                sequence=sequence,
            ),
            leader_epoch=number // 100,
        )
        sequence += len(times)
    assert len(log.local.segments.all) >= 3
    log.close()
    files = sorted((tmp_path / "t-0").glob("0*"))
    deep = kafka_dump(files, "--deep-iteration")
    assert not [line for line in deep if "ismatch" in line or "isvalid: false" in line or "corrupt" in line.lower()]
    assert sum(line.startswith("| offset: ") for line in deep) == sequence
    assert sum(line.startswith("producerId: 7 ") for line in deep) == len(log.local.segments.all)
    sane = kafka_dump([path for path in files if path.suffix in INDEX_SUFFIXES], "--index-sanity-check")
    assert sum("passed sanity check" in line for line in sane) == 2 * len(log.local.segments.all)
    verified = kafka_dump([path for path in files if path.suffix in INDEX_SUFFIXES], "--verify-index-only")
    assert not [line for line in verified if "ismatch" in line]


def test_we_open_what_kafka_wrote_and_make_the_same_indexes(tmp_path: Path) -> None:
    with apache_kafka(tmp_path / "kafka") as kafka:
        settings = {"segment.bytes": "1048576", "index.interval.bytes": "2000"}
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("t", 1, config=settings)])["t"].result(30)
        producer = Producer(
            {
                "bootstrap.servers": kafka.address,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "batch.num.messages": 50,
                "linger.ms": 5,
            }
        )
        rng = random.Random(2)
        values = [rng.randbytes(rng.randrange(400)) for _ in range(12_000)]
        for value in values:
            producer.produce("t", value=value, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        kafka.stop()
        directory = tmp_path / "copy" / "t-0"
        shutil.copytree(kafka.log_dir / "t-0", directory)
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=2000)
    theirs = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    log = open_log(directory, clean=True, config=config)
    assert log.log_end_offset == len(values)
    assert len(log.local.segments.all) > 1
    assert len(log.producers) == 1
    found = []
    offset = 0
    while data := read_bytes(log, offset):
        for position, header in batches(data):
            found += [record.value for record in records(data, header, 1 << 20, position)]
            offset = header.last_offset + 1
    assert found == values
    timestamps = all_records(log)
    largest = max(timestamp for _, timestamp in timestamps)
    result = log.timestamp_search(None).run()
    assert result is not None
    assert (result.timestamp, result.offset) == (largest, next(o for o, t in timestamps if t == largest))
    log.close()
    for path in directory.glob("*index"):
        path.unlink()
    (directory / "leader-epoch-checkpoint").unlink()
    again = open_log(directory, clean=False, config=config)
    again.append_as_leader(batch(largest + 1), leader_epoch=again.leader_epochs.latest)
    again.truncate_to(len(values))
    again.close()
    ours = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    for name, content in theirs.items():
        if name.endswith((".log", ".index", "leader-epoch-checkpoint")):
            assert ours[name] == content, name
        if name.endswith(".timeindex"):
            assert ours[name].hex(" ", 12) == content.hex(" ", 12), name
    newest = f"{len(values):020d}.snapshot"
    assert ours[newest] == theirs[newest]


def test_kafka_reads_segments_that_we_compacted(tmp_path: Path) -> None:
    """All codecs, tombstones with a horizon, gaps, an empty batch: its dump tool and its checks find nothing wrong."""
    rng = random.Random(3)
    filesystem = OsFilesystem()
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=1000, compacted=True)
    log = open_log(tmp_path / "t-0", clean=True, config=config)
    now_ms = int(time.time() * 1000)
    written: dict[int, tuple[bytes, bytes | None]] = {}
    for number in range(400):
        pairs = [
            (b"key-%d" % rng.randrange(150), rng.choice([None, rng.randbytes(rng.randrange(300))]))
            for _ in range(rng.randrange(1, 9))
        ]
        new = [Record(index, now_ms + number, key, value) for index, (key, value) in enumerate(pairs)]
        producer = {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": 0} if number < 3 else {}
        encoded = encode_batch(new, codec=rng.choice(list(Codec)), **producer)  # type: ignore[arg-type]
        base_offset = log.append_as_leader(valid(encoded), leader_epoch=number // 100).base_offset
        written |= {base_offset + index: pair for index, pair in enumerate(pairs)}
    log.high_watermark = log.log_end_offset
    log.roll()
    log.local.flush()
    found = cleanable(log, 0, now_ms)
    assert found is not None
    job = make_job(log, found, now_ms, map_bytes=1 << 20, map_load_factor=1.0, bytes_per_second=1e12)
    for group in Cleaner(job, filesystem).run().groups:
        assert log.local.begin_swap(group)
        log.local.unlink_files(log.local.swap_files(group))
        log.local.finish_swap()
    log.close()
    last = {key: offset for offset, (key, _) in written.items()}
    files = sorted((tmp_path / "t-0").glob("0*"))
    deep = kafka_dump(files, "--deep-iteration", "--print-data-log")
    assert not [line for line in deep if "ismatch" in line or "isvalid: false" in line or "corrupt" in line.lower()]
    offsets = [int(line.split()[2]) for line in deep if line.startswith("| offset: ")]
    assert offsets == sorted(last.values())
    batch_headers = [line for line in deep if line.startswith("baseOffset: ")]
    assert sum("deleteHorizonMs: OptionalLong[" in line for line in batch_headers) > 20
    assert sum(" count: 0 " in line for line in batch_headers) == 3
    indexes = [path for path in files if path.suffix in INDEX_SUFFIXES]
    sane = kafka_dump(indexes, "--index-sanity-check")
    assert sum("passed sanity check" in line or line.endswith(" is empty.") for line in sane) == len(indexes)
    verified = kafka_dump(indexes, "--verify-index-only")
    assert not [line for line in verified if "ismatch" in line]


def test_we_leave_the_batches_that_kafkas_own_cleaner_leaves(tmp_path: Path) -> None:
    """The same log, compacted by both: every batch has the same offsets, producer, sequence and records."""
    topic = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    rng = random.Random(4)
    with apache_kafka(tmp_path / "kafka", {"log.cleaner.enable": "false"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_topics([NewTopic("t", 1, config=topic)])["t"].result(30)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            settings = {"enable.idempotence": True, "compression.type": codec, "batch.num.messages": 20, "linger.ms": 5}
            producer = Producer({"bootstrap.servers": kafka.address, **settings})
            for _ in range(2500):
                value = rng.randbytes(rng.randrange(900)) if rng.random() < 0.8 else None
                producer.produce("t", key=b"key-%d" % rng.randrange(2000), value=value, partition=0)
                producer.poll(0)
            assert producer.flush(60) == 0
        kafka.stop()
        shutil.copytree(kafka.log_dir / "t-0", tmp_path / "ours" / "t-0")
    checkpoint = kafka.log_dir / "cleaner-offset-checkpoint"
    with apache_kafka(tmp_path / "kafka", {"log.cleaner.backoff.ms": "100"}, log_dir=kafka.log_dir) as kafka:
        wait_for(lambda: checkpoint.exists() and "t 0 " in checkpoint.read_text(), 60, "Kafka's cleaner")
        kafka.stop()
    config = LogConfig(segment_bytes=1 << 20, compacted=True)
    ours = open_log(tmp_path / "ours" / "t-0", clean=True, config=config)
    ours.high_watermark = ours.log_end_offset
    now_ms = int(time.time() * 1000)
    found = cleanable(ours, 0, now_ms)
    assert found is not None
    job = make_job(ours, found, now_ms, map_bytes=1 << 20, map_load_factor=1.0, bytes_per_second=1e12)
    result = Cleaner(job, OsFilesystem()).run()
    for group in result.groups:
        assert ours.local.begin_swap(group)
        ours.local.unlink_files(ours.local.swap_files(group))
        ours.local.finish_swap()
    assert f"t 0 {result.end_offset}\n" in checkpoint.read_text()
    theirs = open_log(kafka.log_dir / "t-0", clean=True, config=config)
    left, expected = batches_of(ours), batches_of(theirs)
    assert [head for head, _ in left] == [head for head, _ in expected]
    assert left == expected
    assert [segment.base_offset for segment in ours.local.segments.all] == [
        segment.base_offset for segment in theirs.local.segments.all
    ]


def batches_of(log: Log) -> list[tuple[tuple[object, ...], list[Record]]]:
    """The fields of each batch that are compared: all but sizes, CRCs and the moment of a delete horizon."""
    found = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, head in batches(data):
            facts = (
                *(head.base_offset, head.last_offset, head.leader_epoch, head.attributes, head.max_timestamp),
                *(head.producer_id, head.producer_epoch, head.base_sequence, head.record_count),
            )
            found.append((facts, list(records(data, head, 1 << 24, position))))
            offset = head.next_offset
    return found
