"""Log directories answer as the broker does that has written them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from klamm.pipeline.errors import BadOption, UnknownTopic
from klamm.pipeline.kafka.cluster import READ_UNCOMMITTED, Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.spark.source.directory_logs import DirectoryLogs
from klamm.protocol.records.batch import Record, encode_batch
from tests.pipeline.spark.source.filling import KEPT, START_MS, fill
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.clients


def test_topics_and_offsets_are_those_of_the_broker(tmp_path: Path) -> None:
    rng = random.Random(5)
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        fill(cluster, "filled", records=60)
        partition = TopicPartition("timed", 0)
        create_topic(cluster, "timed", configs={**KEPT, "segment.bytes": str(1 << 20)})
        with Producer(cluster) as producer:
            for index in range(40):
                times = [START_MS + index * 10 + rng.randrange(30) for _ in range(4)]
                records = [Record(at, time, None, b"v" * 20_000, ()) for at, time in enumerate(times)]
                producer.send(partition, encode_batch(records))
        logs = DirectoryLogs([str(broker.data)])
        assert len(logs.logs.segments(partition)) > 2
        assert logs.topics() == {name: topic for name, topic in cluster.topics().items() if not topic.is_internal}
        assert logs.topics(["timed"]) == cluster.topics(["timed"])
        partitions = [partition, TopicPartition("filled", 0), TopicPartition("filled", 1)]
        assert logs.earliest(partitions) == cluster.earliest(partitions)
        for isolation in (0, 1):
            assert logs.latest(partitions, isolation) == cluster.latest(partitions, isolation)
        for time_ms in (0, START_MS + 10**6, *(START_MS + rng.randrange(450) for _ in range(20))):
            times_ms = {partition: time_ms}
            assert logs.offsets_for_times(times_ms) == cluster.offsets_for_times(times_ms)


def test_an_open_transaction_ends_what_is_committed(tmp_path: Path) -> None:
    partition = TopicPartition("open", 0)
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.address) as cluster:
        create_topic(cluster, "open", configs=KEPT)
        with Producer(cluster, transactional_id="open") as producer:
            producer.begin()
            producer.send(partition, encode_batch([Record(0, START_MS, None, b"v", ())]))
            producer.leave_open()
        shutil.copytree(broker.data, tmp_path / "copy")
    logs = DirectoryLogs([str(tmp_path / "copy")])
    assert logs.latest([partition]) == {partition: 0}
    assert logs.latest([partition], READ_UNCOMMITTED) == {partition: 1}


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic, match=rf"^topic nosuch does not exist in {tmp_path}$"):
        DirectoryLogs([str(tmp_path)]).topics(["nosuch"])
    assert DirectoryLogs([str(tmp_path)]).topics(["nosuch"], missing_ok=True) == {}
    with pytest.raises(BadOption, match=rf"^logDirs: {tmp_path}/none is not a directory$"):
        DirectoryLogs([str(tmp_path / "none")])
