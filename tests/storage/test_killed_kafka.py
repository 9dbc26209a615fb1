"""The files of a killed Apache Kafka: preallocated segments and indexes with zeros after their content."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery import loader
from tests.storage.batches import all_offsets
from tests.support.apache_kafka import apache_kafka
from tests.support.manual_clock import START_MS

pytestmark = pytest.mark.java

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1000)
COUNT = 3000
TOPICS = {
    "plain": {},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "preallocated": {"preallocate": "true"},
}


def open_log(directory: Path, *, clean: bool) -> Log:
    return loader.open_log(
        loader.LogSource(directory, CONFIG, clock=SystemClock(), filesystem=OsFilesystem(), clean=clean)
    )


def fill(address: str, topic: str, rng: random.Random) -> None:
    settings = {"batch.num.messages": 7, "linger.ms": 3, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": address, **settings})
    for number in range(COUNT):
        timestamp = START_MS + rng.randrange(5000) + number
        producer.produce(topic, value=rng.randbytes(rng.randrange(900)), timestamp=timestamp, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def ask(admin: AdminClient, topic: str, timestamp: int | None) -> tuple[int, int]:
    spec = OffsetSpec.max_timestamp() if timestamp is None else OffsetSpec.for_timestamp(timestamp)
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: spec})[partition].result(30)
    return found.timestamp, found.offset


def test_its_logs_are_opened_trimmed_and_searched_as_it_did(tmp_path: Path) -> None:
    rng = random.Random(5)
    answers: dict[tuple[str, int | None], tuple[int, int]] = {}
    with apache_kafka(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.address})
        common = {"segment.bytes": "1048576", "index.interval.bytes": "1000", "retention.ms": "-1"}
        for topic, settings in TOPICS.items():
            admin.create_topics([NewTopic(topic, 1, config={**common, **settings})])[topic].result(30)
            fill(kafka.address, topic, rng)
        now_ms = int(time.time() * 1000)
        times = [START_MS + ahead for ahead in (-1, 0, 1, 2500, 5000, 7000, 7998)]
        for topic in TOPICS:
            for timestamp in (None, 0, *times, *range(now_ms - 3000, now_ms, 700)):
                answers[topic, timestamp] = ask(admin, topic, timestamp)
        kafka.process.kill()
        kafka.process.wait()
    for topic in TOPICS:
        left = kafka.log_dir / f"{topic}-0"
        theirs = {path.name: path.read_bytes() for path in left.glob("0*")}
        assert max(len(content) for name, content in theirs.items() if name.endswith("index")) > 10_000_000
        for clean in (False, True):  # a wrong mark of a clean stop is detected, too
            directory = Path(shutil.copytree(left, tmp_path / str(clean) / left.name))
            log = open_log(directory, clean=clean)
            assert log.log_end_offset == COUNT
            assert len(log.local.segments.all) > 1
            for (asked, timestamp), expected in answers.items():
                if asked == topic:
                    found = log.timestamp_search(timestamp).run()
                    assert ((found.timestamp, found.offset) if found is not None else (-1, -1)) == expected
            log.close()
            for name, content in theirs.items():
                ours = (directory / name).read_bytes()
                if name.endswith(".timeindex"):  # ours is closed: it has one entry more at the most
                    assert content.startswith(ours[:-12]), name
                elif name.endswith((".log", ".index")):
                    assert content.startswith(ours), name
                    assert not content[len(ours) :].strip(b"\0"), name
            assert sum(path.stat().st_size for path in directory.glob("*index")) < 100_000
            assert all_offsets(open_log(directory, clean=True))[-1] < COUNT
