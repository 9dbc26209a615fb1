"""The same in Spark's tasks: they may die, and what they raise is one line."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from klamm.pipeline.errors import NotWritten
from klamm.pipeline.jobs.mirror.copying import Chunk, ChunkCopied, Mirroring, copy_chunk
from klamm.pipeline.jobs.mirror.job import Mirror, Source
from klamm.pipeline.jobs.mirror.plan import MirrorSettings
from klamm.pipeline.jobs.mirror.rules import Rules
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.producer import Producer
from klamm.pipeline.kafka.topics import create_topic
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.report import Report
from klamm.pipeline.spark.tasks import SparkTasks
from klamm.protocol.records.batch import Record
from tests.pipeline.mirroring import all_rows, put, some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.clients]


def mirrored(spark: SparkSession, clusters: tuple[Cluster, Cluster], pattern: str, *, sync_configs: bool = True) -> int:
    source, target = (one.bootstrap_servers for one in clusters)
    job = Mirroring(alias="source", source_servers=source, target_servers=target, group="klamm-mirror.source")
    rules = Rules("source", re.compile(pattern))
    settings = MirrorSettings(sync_configs=sync_configs)
    mirror = Mirror([Source(job, rules, None)], target, settings, SparkTasks(spark), Report())
    try:
        return mirror.once()
    finally:
        mirror.close()


def test_each_partition_in_a_task(spark: SparkSession, clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters
    for topic in ("one", "two"):
        create_topic(source, topic, partitions=3)
        for number in range(3):
            put(source, TopicPartition(topic, number), some(30, first=100 * number))
    assert mirrored(spark, clusters, "one|two") == 180
    assert [all_rows(target, topic) for topic in ("one", "two")] == [
        all_rows(source, topic) for topic in ("one", "two")
    ]
    assert mirrored(spark, clusters, "one|two") == 0


def test_what_a_task_raises_is_one_line(spark: SparkSession, clusters: tuple[Cluster, Cluster]) -> None:
    source, target = clusters
    create_topic(source, "large")
    create_topic(target, "large", configs={"max.message.bytes": "1000"})
    put(source, TopicPartition("large", 0), [Record(0, 1, None, bytes(5000))])
    with pytest.raises(NotWritten, match=r"^large-0: a batch of 50.. bytes: MESSAGE_TOO_LARGE, [^\n]*$"):
        mirrored(spark, clusters, "large", sync_configs=False)


@pytest.mark.faults
def test_a_worker_killed_in_a_transaction(
    spark: SparkSession, clusters: tuple[Cluster, Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = clusters
    create_topic(source, "killed", partitions=2)
    for number in range(2):
        put(source, TopicPartition("killed", number), some(30))
    marker = str(tmp_path / "killed")

    def dying(chunk: Chunk) -> ChunkCopied:
        real: Any = Producer.commit

        def commit(producer: Producer) -> None:
            producer.flush()
            if not os.path.exists(marker):
                with open(marker, "w"):
                    os.kill(os.getpid(), signal.SIGKILL)
            real(producer)

        Producer.commit = commit  # type: ignore[method-assign]
        try:
            return copy_chunk(chunk)
        finally:
            Producer.commit = real  # type: ignore[method-assign]

    monkeypatch.setattr("klamm.pipeline.jobs.mirror.job.copy_chunk", dying)
    with pytest.raises(Exception, match=r"(?i)worker"):
        mirrored(spark, clusters, "killed")
    assert os.path.exists(marker)
    monkeypatch.undo()
    mirrored(spark, clusters, "killed")
    assert all_rows(target, "killed") == all_rows(source, "killed")
