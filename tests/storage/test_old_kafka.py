"""Directories that Apache Kafka 0.8.2.2 and 0.10.2.2 left behind after a clean stop (`old_kafka/*.zip`).

Topics `m0` (messages of format 0), `m1` (format 1), `m1a` (format 1, LogAppendTime), `c0` and `c1` (the same, compacted
there), each with all codecs of the time in small segments; beside each a JSON list of the records produced: offset,
timestamp as acknowledged, key, value, timestamp as sent.
"""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from klamm.protocol.errors import UnsupportedForMessageFormat
from klamm.protocol.records.batch import Record, batches, records
from klamm.storage import paths
from klamm.storage.clock import SystemClock
from klamm.storage.compaction.cleanable import cleanable, make_job
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery import loader
from tests.storage.batches import batch, read_bytes
from tests.storage.test_apache_kafka import batches_of, kafka_dump
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import wait_for
from tests.support.manual_clock import START_MS

FIXTURES = Path(__file__).parent / "old_kafka"
TOPICS = [("0.8.2.2", "m0"), ("0.8.2.2", "c0"), *(("0.10.2.2", name) for name in ("m0", "m1", "m1a", "c0", "c1"))]
CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=500, compacted=True, retention_ms=-1)


def unpack(version: str, topic: str, log_dir: Path) -> Path:
    with zipfile.ZipFile(FIXTURES / f"kafka-{version}.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{topic}-0/")]
        archive.extractall(log_dir, names)
    return log_dir / f"{topic}-0"


def expected(version: str, topic: str) -> list[Record]:
    """The records to be read: all that were produced, from a compacted topic, too."""
    with zipfile.ZipFile(FIXTURES / f"kafka-{version}.zip") as archive:
        rows = json.loads(archive.read(f"{topic}.json"))
    append_time = topic.endswith("a")
    return [
        Record(
            offset,
            -1 if "0" in topic else (acknowledged if append_time else sent),
            key.encode(),
            value.encode() if value is not None else None,
        )
        for offset, acknowledged, key, value, sent in rows
    ]


def open_log(directory: Path, *, clean: bool = True, config: LogConfig = CONFIG) -> Log:
    return loader.open_log(
        loader.LogSource(directory, config, clock=SystemClock(), filesystem=OsFilesystem(), clean=clean)
    )


def read_all(log: Log) -> list[Record]:
    found = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset, max_bytes=3000):
        for position, head in batches(data):
            found += [record for record in records(data, head, 1 << 20, position) if record.offset >= offset]
            offset = max(offset, head.next_offset)
    return found


@pytest.mark.parametrize(("version", "topic"), TOPICS)
@pytest.mark.parametrize("clean", [True, False])
def test_every_record_is_read_and_new_batches_follow(version: str, topic: str, clean: bool, tmp_path: Path) -> None:
    directory = unpack(version, topic, tmp_path)
    logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    log = open_log(directory, clean=clean)
    produced = expected(version, topic)
    assert log.log_end_offset == len(produced)
    found = read_all(log)
    if topic.startswith("m"):
        assert found == produced
    else:
        last = {record.key: record for record in produced}
        assert {record.key: record for record in found} == last
        assert [produced[record.offset] for record in found] == found
        assert len(found) < len(produced)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == logs
    log.append_as_leader(batch(START_MS), leader_epoch=3)
    log.close()
    log = open_log(directory, clean=True)
    assert read_all(log)[:-1] == found
    assert list(log.leader_epochs) == [(3, len(produced))]


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_searches_by_time(version: str, topic: str, tmp_path: Path) -> None:
    log = open_log(unpack(version, topic, tmp_path))
    found = read_all(log)
    if "0" in topic:
        for timestamp in (0, START_MS, None):
            with pytest.raises(UnsupportedForMessageFormat):
                log.timestamp_search(timestamp).run()
        return
    times = sorted({record.timestamp for record in found})
    for timestamp in (0, times[1], times[len(times) // 2], times[-2] + 1, times[-1]):
        first = next(record for record in found if record.timestamp >= timestamp)
        assert log.timestamp_search(timestamp).run() == (first.timestamp, first.offset, -1)
    assert log.timestamp_search(times[-1] + 1).run() is None
    first = next(record for record in found if record.timestamp == times[-1])
    assert log.timestamp_search(None).run() == (first.timestamp, first.offset, -1)


@pytest.mark.parametrize(("version", "topic"), TOPICS)
def test_truncated_anywhere_the_indexes_still_lead_to_what_is_left(version: str, topic: str, tmp_path: Path) -> None:
    """Kafka's index entries have the first offset of an append, those of Klamm the last offset of a batch."""
    produced = expected(version, topic)
    for offset in (1, 100, 229, 300, len(produced) - 1):
        directory = unpack(version, topic, tmp_path / str(offset))
        log = open_log(directory)
        before = read_all(log)
        log.truncate_to(offset)
        kept = [record for record in before if record.offset < log.log_end_offset]
        assert log.log_end_offset <= offset
        assert read_all(log) == kept
        log.append_as_leader(batch(START_MS), leader_epoch=3)
        assert read_bytes(log, log.log_end_offset - 1)
        log.close()
        assert read_all(open_log(directory))[:-1] == kept


@pytest.mark.java
def test_apache_kafka_finds_nothing_wrong_in_what_we_append_and_index(tmp_path: Path) -> None:
    for version, topic in TOPICS:
        directory = unpack(version, topic, tmp_path / version)
        log = open_log(directory, clean=False)
        for step in range(30):
            log.append_as_leader(batch(int(time.time() * 1000) + step), leader_epoch=1)
        log.close()
    logs = sorted(tmp_path.glob("*/*-0/*.log"))
    deep = kafka_dump(logs, "--deep-iteration")
    assert not [line for line in deep if "ismatch" in line or "isvalid: false" in line or "corrupt" in line.lower()]
    indexes = sorted(tmp_path.glob("*/*-0/*index"))
    sane = kafka_dump(indexes, "--index-sanity-check")
    assert sum("passed sanity check" in line or line.endswith(" is empty.") for line in sane) == len(indexes)
    verified = kafka_dump(indexes, "--verify-index-only")
    assert not [line for line in verified if "ismatch" in line]


@pytest.mark.java
def test_compaction_makes_of_them_what_apache_kafka_makes(tmp_path: Path) -> None:
    topic = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    names = ("c0", "c1")
    with apache_kafka(tmp_path / "kafka", {"log.cleaner.enable": "false"}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        for future in admin.create_topics([NewTopic(name, 1, config=topic) for name in names]).values():
            future.result(30)
        kafka.stop()
    for name in names:
        for path in (kafka.log_dir / f"{name}-0").iterdir():
            if path.name != paths.PARTITION_METADATA:
                path.unlink()
        unpack("0.10.2.2", name, kafka.log_dir)
    for name in (paths.RECOVERY_POINT_CHECKPOINT, paths.HIGH_WATERMARK_CHECKPOINT):
        (kafka.log_dir / name).unlink()
    checkpoint = kafka.log_dir / paths.CLEANER_CHECKPOINT
    for name in names:
        log = open_log(kafka.log_dir / f"{name}-0")
        for _ in range(2):  # the second rolls: the segments before it can be cleaned
            log.append_as_leader(batch(int(time.time() * 1000), value=bytes(600_000)), leader_epoch=0)
        log.close()
        shutil.copytree(kafka.log_dir / f"{name}-0", tmp_path / "ours" / f"{name}-0")
    with apache_kafka(tmp_path / "kafka", {"log.cleaner.backoff.ms": "100"}, log_dir=kafka.log_dir) as kafka:
        wait_for(
            lambda: checkpoint.exists() and all(f"{name} 0 481" in checkpoint.read_text() for name in names),
            60,
            "Kafka's cleaner",
        )
        kafka.stop()
    for name in names:
        ours = open_log(tmp_path / "ours" / f"{name}-0")
        ours.high_watermark = ours.log_end_offset
        now_ms = int(time.time() * 1000)
        found = cleanable(ours, 0, now_ms)
        assert found is not None
        job = make_job(ours, found, now_ms, map_bytes=1 << 20, map_load_factor=1.0, bytes_per_second=1e12)
        for group in Cleaner(job, OsFilesystem()).run().groups:
            assert ours.local.begin_swap(group)
            ours.local.unlink_files(ours.local.swap_files(group))
            ours.local.finish_swap()
        assert batches_of(ours) == batches_of(open_log(kafka.log_dir / f"{name}-0"))
