from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from klamm.broker.background.retention import Retention
from klamm.broker.partitions.partition import Partition
from klamm.storage.filesystem import NoSpace
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import fill as append_to_log
from tests.storage.batches import open_log
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DAY_MS = 86_400_000
DELAY_MS = 60_000


def check(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.retention.delete_old_segments())


def sweep(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.retention.delete_due_files())


def partition_of(broker: EmbeddedBroker, topic: str = "t") -> Partition:
    partition = broker.broker.partitions.get_partition(topic, 0)
    assert partition is not None and partition.log is not None
    return partition


def deleted_files(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "data" / "t-0").glob("*.deleted"))


def fill(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", config={"segment.bytes": 1 << 20, "retention.ms": DAY_MS})
    for day in range(3):
        timestamp = NOW_MS + day * DAY_MS
        assert broker.produce("t", batch(bytes(600_000), timestamp=timestamp)).error_code == 0
        broker.clock.advance(DAY_MS)


def test_old_segments_go_and_their_files_after_the_delay(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        fill(broker)
        check(broker)
        partition = partition_of(broker)
        assert (partition.log_start_offset, partition.log_end_offset) == (2, 3)
        assert f"{0:020d}.log.deleted" in deleted_files(tmp_path)
        sweep(broker)
        assert deleted_files(tmp_path)
        broker.clock.advance(DELAY_MS)
        sweep(broker)
        assert deleted_files(tmp_path) == []
    with EmbeddedBroker(tmp_path) as broker:
        assert partition_of(broker).log_start_offset == 2


def test_a_start_removes_files_before_their_delay_has_passed(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path)
    with broker:
        fill(broker)
        check(broker)
    assert deleted_files(tmp_path)
    with EmbeddedBroker(tmp_path) as broker:
        assert deleted_files(tmp_path) == []
        assert broker.produce("t", batch(b"x")).base_offset == 3


def test_a_topic_deleted_before_the_delay_leaves_nothing(tmp_path: Path) -> None:
    from klamm.broker.controller.topics import TopicKey

    with EmbeddedBroker(tmp_path) as broker:
        fill(broker)
        check(broker)
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        broker.run(broker.broker.partitions.removed())
        broker.clock.advance(DELAY_MS)
        sweep(broker)
        assert not list((tmp_path / "data").glob("t-0*"))


def test_one_line_is_logged_for_a_log_that_lost_segments(tmp_path: Path, caplog) -> None:  # type: ignore[no-untyped-def]
    caplog.set_level("INFO")
    with EmbeddedBroker(tmp_path) as broker:
        fill(broker)
        check(broker)
        check(broker)
    lines = [record.getMessage() for record in caplog.records if "retention" in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("t-0: retention deletes 2 segments: by_time=2 by_size=0 by_log_start=0 size_bytes=1200")


@pytest.mark.parametrize("reserve_bytes", [0, 5000])
def test_a_full_disk_is_emptied_with_a_reserve_and_without(reserve_bytes: int) -> None:
    filesystem = MemoryFilesystem()
    filesystem.space_bytes = 100_000
    with full_log_dir(filesystem, reserve_bytes) as (_, log, retention, served):
        asyncio.run(retention.drop({served: 7}))
        assert log.log_start_offset == 7
        assert filesystem.space_bytes > 200, "without a delay"
        assert not [
            entry for entry in filesystem.list_directory(log.local.directory) if entry.name.endswith(".deleted")
        ]
    filesystem.crash()
    again = LogDir.open(Path("/data"), node_id=1, filesystem=filesystem, reserve_bytes=reserve_bytes)
    load_logs(again, lambda topic: LogConfig())
    assert again.logs[TopicPartition("t", 0)].log_start_offset == 7


def test_what_a_full_disk_cannot_make_durable_does_not_move() -> None:
    """No segment can go: the disk stays full."""
    filesystem = MemoryFilesystem()
    with full_log_dir(filesystem, 0) as (_, log, retention, served):
        end = log.local.segments.all[1].base_offset
        with pytest.raises(NoSpace):
            asyncio.run(retention.drop({served: end - 1}))
        assert log.log_start_offset == 0


@contextmanager
def full_log_dir(
    filesystem: MemoryFilesystem, reserve_bytes: int
) -> Iterator[tuple[LogDir, Log, Retention, Partition]]:
    log_dir = LogDir.open(Path("/data"), node_id=1, filesystem=filesystem, reserve_bytes=reserve_bytes)
    log_dir.open_reserve()
    load_logs(log_dir, lambda topic: LogConfig())
    log = create_log(log_dir, "t", 0, bytes(16), LogConfig(segment_bytes=300))
    append_to_log(log, 9)
    log.set_high_watermark(9)
    log.local.flush()
    log_dir.checkpoint()
    filesystem.space_bytes = 0

    class Logs:
        def directory_of(self, key: TopicPartition) -> LogDir:
            return log_dir

    class Partitions:
        logs = Logs()

    class Served:
        key = TopicPartition("t", 0)

        def __init__(self) -> None:
            self.log = log

    yield log_dir, log, Retention(cast(Any, Partitions()), ManualClock(), None), cast(Any, Served())


def test_a_log_start_is_durable_where_the_log_is_now() -> None:
    """The partition moves to another log directory while the checkpoint of the first is written."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=300))
    append_to_log(log, 9)
    written: list[str] = []

    class Place:
        def __init__(self, name: str) -> None:
            self.name = name

        def raise_log_starts(self, offsets: object) -> None:
            assert offsets == {TopicPartition("t", 0): 7} and log.log_start_offset == 0
            assert log.local.segments.all[0].base_offset == 0, "nothing goes before"
            written.append(self.name)

    old, new = Place("old"), Place("new")

    class Logs:
        def directory_of(self, key: TopicPartition) -> Place:
            return new if written else old

    class Partitions:
        logs = Logs()

    class Served:
        key = TopicPartition("t", 0)

        def __init__(self) -> None:
            self.log = log

    retention = Retention(cast(Any, Partitions()), ManualClock(), None)
    asyncio.run(retention.drop({cast(Any, Served()): 7}))
    assert written == ["old", "new"]
    assert log.local.segments.all[0].base_offset > 0
