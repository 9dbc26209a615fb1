from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from klamm.broker.partition import Partition
from klamm.broker.retention import Retention
from klamm.storage.log_config import LogConfig
from tests.storage.batches import fill as append_to_log
from tests.storage.batches import open_log
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DAY_MS = 86_400_000
DELAY_MS = 60_000


def check(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.retention.check())


def sweep(broker: EmbeddedBroker) -> None:
    broker.run(broker.broker.retention.sweep())


def partition_of(broker: EmbeddedBroker, topic: str = "t") -> Partition:
    partition = broker.broker.partitions.get(topic, 0)
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


def test_a_start_removes_files_whose_delay_had_not_passed(tmp_path: Path) -> None:
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


def test_a_log_start_is_durable_where_the_log_is_now() -> None:
    """The partition moves to another log directory while the checkpoint of the first is written."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=300))
    append_to_log(log, 9)
    log.advance_log_start(7)
    written: list[str] = []

    class Place:
        def __init__(self, name: str) -> None:
            self.name = name

        def checkpoint(self) -> None:
            assert log.segments[0].base_offset == 0, "nothing goes before"
            written.append(self.name)

    old, new = Place("old"), Place("new")

    class Partitions:
        def directory_of(self, partition: object) -> Place:
            return new if written else old

    class Served:
        def __init__(self) -> None:
            self.log = log

    retention = Retention(cast(Any, Partitions()), ManualClock(), None)
    asyncio.run(retention.drop([cast(Any, Served())]))
    assert written == ["old", "new"]
    assert log.segments[0].base_offset > 0
