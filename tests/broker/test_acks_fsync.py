"""`klamm.acks.fsync`: records acknowledged, seen or committed are on the disk; and the errors when they cannot be."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.storage.filesystem import OsFile
from tests.support.embedded import EmbeddedBroker, batch

FSYNC = {"klamm.acks.fsync": "true"}


class Disk:
    """Every sync of a file waits for `gate`, and fails with `error`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.error: int | None = None
        self.syncs: list[str] = []

    def sync(self, file: OsFile) -> None:
        assert self.gate.wait(20)
        if file.path.suffix == ".log":
            self.syncs.append(file.path.parent.name)
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error))
        os.fdatasync(file.fileno())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()

    def sync(file: OsFile) -> None:
        disk.sync(file)

    monkeypatch.setattr(OsFile, "sync", sync)
    return disk


@contextmanager
def fsync_topic(path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(path) as broker:
        broker.create_topic("t", config=FSYNC)
        yield broker


def produce(broker: EmbeddedBroker, *, acks: int = -1, topic: str = "t", **options: Any) -> asyncio.Future[Any]:
    data = [PartitionProduceData(index=0, records=batch(b"v", **options))]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return broker.start(request, 9)


def code_of(response: Any) -> int:
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def seen(broker: EmbeddedBroker) -> int:
    """Bytes that a consumer gets from the beginning."""
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=[wanted])]
    )
    return len(broker.call(fetch, 11).responses[0].partitions[0].records or b"")


def turns(broker: EmbeddedBroker) -> None:
    async def some() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    broker.run(some())


@pytest.mark.parametrize("acks", [1, -1])
def test_an_ack_and_a_consumer_wait_for_the_disk(tmp_path: Path, disk: Disk, acks: int) -> None:
    with fsync_topic(tmp_path) as broker:
        disk.gate.clear()
        answers = [produce(broker, acks=acks) for _ in range(5)]
        turns(broker)
        assert not any(answer.done() for answer in answers)
        assert seen(broker) == 0
        disk.gate.set()
        assert [code_of(broker.run(answer)) for answer in answers] == [0] * 5
        assert len(disk.syncs) <= 2  # the one that was under way, and one for all the others
        assert seen(broker) > 0
        partition = broker.broker.partitions.get_partition("t", 0)
        assert partition is not None and partition.log is not None
        assert partition.high_watermark == partition.log.local.flushed_offset == 5


def test_nobody_waits_without_acks_but_a_consumer_does(tmp_path: Path, disk: Disk) -> None:
    with fsync_topic(tmp_path) as broker:
        disk.gate.clear()
        assert broker.run(produce(broker, acks=0)) is None
        assert seen(broker) == 0
        disk.gate.set()
        broker.run(broker.broker.flusher.drain())
        assert seen(broker) > 0


def test_a_repeated_batch_waits_for_the_sync_of_the_first(tmp_path: Path, disk: Disk) -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    with fsync_topic(tmp_path) as broker:
        disk.gate.clear()
        first, again = (produce(broker, **options) for _ in range(2))
        turns(broker)
        assert not first.done() and not again.done()
        disk.gate.set()
        assert code_of(broker.run(first)) == code_of(broker.run(again)) == 0


def test_a_batch_repeated_after_the_mode_came_is_not_acked_before_it_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        assert code_of(broker.run(produce(broker, **options))) == 0
        assert disk.syncs == []
        configs = [AlterableConfig(name="klamm.acks.fsync", config_operation=0, value="true")]
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)
        altered = broker.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert altered.responses[0].error_code == 0
        assert code_of(broker.run(produce(broker, **options))) == 0
        assert disk.syncs == ["t-0"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_row_26_after_a_failed_sync_nothing_is_acked_and_nothing_synced_again(
    tmp_path: Path, disk: Disk, code: int
) -> None:
    with EmbeddedBroker(tmp_path, FSYNC) as broker:
        broker.create_topic("t")
        assert code_of(broker.run(produce(broker))) == 0
        disk.error, before = code, len(disk.syncs)
        assert code_of(broker.run(produce(broker))) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.error = None  # the next would succeed, and lie
        assert code_of(broker.run(produce(broker))) == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.syncs[before:] == ["t-0"]
        partition = broker.broker.partitions.get_partition("t", 0)
        assert partition is not None and partition.is_offline


def test_a_committed_offset_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    with EmbeddedBroker(tmp_path, {**FSYNC, "offsets.topic.num.partitions": 1}) as broker:
        broker.create_topic("t")
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=[part])], retention_time_ms=-1
        )
        broker.call(FindCoordinatorRequest(key="g"), 1)  # makes the topic
        assert broker.call(commit, 2).topics[0].partitions[0].error_code == 0
        disk.gate.clear()
        waiting = broker.start(commit, 2)
        turns(broker)
        assert not waiting.done()
        disk.gate.set()
        assert broker.run(waiting).topics[0].partitions[0].error_code == 0
        assert disk.syncs[-1] == "__consumer_offsets-0"


def test_what_a_crash_left_in_the_page_cache_is_synced_before_it_is_served(tmp_path: Path, disk: Disk) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t")
    assert code_of(broker.run(produce(broker))) == 0
    broker.crash()
    assert disk.syncs == []
    with EmbeddedBroker(tmp_path, FSYNC) as broker:
        assert disk.syncs == ["t-0"]
        partition = broker.broker.partitions.get_partition("t", 0)
        assert partition is not None and partition.log is not None
        assert partition.log.local.flushed_offset == partition.high_watermark == 1


def test_what_a_crash_left_and_cannot_be_synced_is_not_served(tmp_path: Path, disk: Disk) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t")
    assert code_of(broker.run(produce(broker))) == 0
    broker.crash()
    disk.error = errno.EIO
    with EmbeddedBroker(tmp_path, FSYNC) as broker:
        assert code_of(broker.run(produce(broker))) == ErrorCode.KAFKA_STORAGE_ERROR
        disk.error = None
    with EmbeddedBroker(tmp_path, FSYNC) as broker:  # recovered from the disk
        assert code_of(broker.run(produce(broker))) == 0
