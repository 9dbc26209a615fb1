"""Partitions come and go with the metadata; files of somebody else are never served and never deleted."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from klamm.broker import turns
from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.controller.topics import NewPartitions, NewTopic, TopicKey
from klamm.broker.metadata.sqlite_store import FILE_NAME
from klamm.broker.partitions.directory_assignments import DirectoryAssignments
from klamm.broker.partitions.partition import Partition
from klamm.broker.partitions.partition_manager import TOPICS
from klamm.broker.turns import MOST
from klamm.protocol.errors import ErrorCode, KafkaStorageError
from klamm.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.storage import log_deletion
from klamm.storage.filesystem import OsFilesystem
from tests.support.embedded import EmbeddedBroker, batch


def directories(broker: EmbeddedBroker) -> list[str]:
    return sorted(path.name for path in broker.config.log_dirs[0].iterdir() if path.is_dir())


def test_partitions_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.produce("t", batch(b"x"), partition=1)
    with EmbeddedBroker(tmp_path) as broker:
        assert [partition.high_watermark for partition in broker.broker.partitions.topics["t"].partitions] == [0, 1]
        assert broker.produce("t", batch(b"y"), partition=1).base_offset == 1


def test_a_crash_loses_nothing_that_the_page_cache_has(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t")
    for _ in range(3):
        assert broker.produce("t", batch(b"x")).error_code == 0
    broker.crash()
    with EmbeddedBroker(tmp_path) as again:
        partition = again.broker.partitions.topics["t"].partitions[0]
        assert partition.high_watermark == 3
        assert partition.leader_epoch == 1, "an unclean stop begins a new leader epoch"


def test_a_deleted_topic_leaves_nothing_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.produce("t", batch(b"x"))
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        assert directories(broker) == [] and "t" not in broker.broker.partitions.topics
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).base_offset == 0


def test_a_topic_stays_marked_for_deletion_while_its_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Path:
        raise KafkaStorageError("read-only")

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        with monkeypatch.context() as patch:
            patch.setattr(log_deletion, "_rename", refuse)
            with pytest.raises(KafkaStorageError):
                broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        assert directories(broker) == ["t-0"]
    with EmbeddedBroker(tmp_path) as broker:
        assert directories(broker) == [] and "t" not in broker.broker.image.topics


def test_files_of_a_lost_topic_of_the_same_name_are_kept_aside(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        broker.produce("t", batch(b"precious"))
    for path in (tmp_path / "data").glob(FILE_NAME + "*"):
        path.unlink()
    with EmbeddedBroker(tmp_path) as broker:
        assert "t" not in broker.broker.image.topics and directories(broker) == ["t-0"]
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).base_offset == 0
        kept = [name for name in directories(broker) if name.endswith("-stray")]
        assert len(kept) == 1 and directories(broker)[0] == "t-0"
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.produce("t", batch(b"y")).base_offset == 1


def test_a_changed_topic_config_takes_effect_at_once(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x" * 2000)).error_code == 0
        image = broker.broker.image
        changed = image.with_topic_configs({"t": {"max.message.bytes": "1000"}})
        broker.broker.partitions.on_image(image, changed)
        broker.run(broker.broker.partitions.settle())
        assert broker.produce("t", batch(b"x" * 2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_without_its_directory_can_be_deleted(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        (tmp_path / "data" / "t-0").rename(tmp_path / "elsewhere")
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        assert "t" not in broker.broker.image.topics


def test_a_partition_without_its_directory_is_not_created_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.produce("t", batch(b"x"))
    (tmp_path / "data" / "t-0").rename(tmp_path / "elsewhere")
    for _ in range(2):
        with EmbeddedBroker(tmp_path) as broker:
            assert broker.produce("t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert broker.produce("t", batch(b"x"), partition=1).error_code == 0
    (tmp_path / "elsewhere").rename(tmp_path / "data" / "t-0")
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.produce("t", batch(b"x")).base_offset == 1


def test_a_creation_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    """The directory is there, its topic id was not yet under its name when the process died."""
    broker = EmbeddedBroker(tmp_path).__enter__()
    broker.create_topic("t")
    metadata = broker.config.log_dirs[0] / "t-0" / "partition.metadata"
    content = metadata.read_bytes()
    broker.crash()
    metadata.rename(metadata.with_name("partition.metadata.tmp"))
    with EmbeddedBroker(tmp_path) as again:
        assert metadata.read_bytes() == content
        assert again.produce("t", batch(b"x")).error_code == 0


# -- several log dirs


def two(path: Path) -> EmbeddedBroker:
    return EmbeddedBroker(path, {"log.dirs": f"{path / 'a'},{path / 'b'}"})


def in_directory(path: Path, topic: str) -> list[int]:
    return sorted(int(each.name.rpartition("-")[2]) for each in path.glob(f"{topic}-*"))


def fill(broker: EmbeddedBroker, topic: str, partitions: int) -> None:
    broker.create_topic(topic, partitions=partitions)
    for index in range(partitions):
        assert broker.produce(topic, batch(b"x"), partition=index).error_code == 0


def test_partitions_of_a_lost_log_dir_are_offline_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with two(tmp_path) as broker:
        fill(broker, "t", 4)
    kept, lost = in_directory(tmp_path / "a", "t"), in_directory(tmp_path / "b", "t")
    assert len(kept) == len(lost) == 2
    (tmp_path / "b").rename(tmp_path / "away")
    for _ in range(2):
        caplog.clear()
        with two(tmp_path) as broker:
            assert {broker.produce("t", batch(b"x"), partition=index).error_code for index in kept} == {0}
            assert {broker.produce("t", batch(b"x"), partition=index).error_code for index in lost} == {
                ErrorCode.KAFKA_STORAGE_ERROR
            }
            broker.create_topic("new", partitions=2)
            assert broker.produce("new", batch(b"x"), partition=1).error_code == 0
            broker.run(broker.broker.controller.delete_topics([TopicKey(name="new")]))
        assert [r.getMessage() for r in caplog.records if "directory.id=" in r.getMessage()], "one line says why"
        assert in_directory(tmp_path / "b", "t") == []
    for each in (tmp_path / "b").iterdir():
        each.unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "away").rename(tmp_path / "b")
    with two(tmp_path) as broker:
        assert {broker.produce("t", batch(b"x"), partition=index).base_offset for index in lost} == {1}


def test_an_empty_partition_without_its_directory_is_not_created_again(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
    (tmp_path / "data" / "t-0").rename(tmp_path / "elsewhere")
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.produce("t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).base_offset == 0


def test_a_topic_that_was_stored_but_not_made_is_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        """The process dies between the metadata and the directory."""

    broker = EmbeddedBroker(tmp_path).__enter__()
    with monkeypatch.context() as patch:
        patch.setattr(broker.broker.controller, "_publish", die)
        broker.create_topic("t")
    broker.crash()
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.produce("t", batch(b"x")).base_offset == 0


def test_a_partition_moved_to_another_log_dir_is_served_there(tmp_path: Path) -> None:
    with two(tmp_path) as broker:
        fill(broker, "t", 2)
    (index,) = in_directory(tmp_path / "a", "t")
    (tmp_path / "a" / f"t-{index}").rename(tmp_path / "b" / f"t-{index}")
    with two(tmp_path) as broker:
        assert broker.produce("t", batch(b"x"), partition=index).base_offset == 1
    (tmp_path / "b" / f"t-{index}").rename(tmp_path / "elsewhere")
    with two(tmp_path) as broker:
        assert broker.produce("t", batch(b"x"), partition=index).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_in_two_log_dirs_is_offline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with two(tmp_path) as broker:
        fill(broker, "t", 2)
    (index,) = in_directory(tmp_path / "a", "t")
    copy = tmp_path / "b" / f"t-{index}"
    copy.mkdir()
    for each in (tmp_path / "a" / f"t-{index}").iterdir():
        (copy / each.name).write_bytes(each.read_bytes())
    with two(tmp_path) as broker:
        assert broker.produce("t", batch(b"x"), partition=index).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.produce("t", batch(b"x"), partition=1 - index).base_offset == 1
        (line, *_) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert f"t-{index}" in line and str(tmp_path / "a") in line and str(tmp_path / "b") in line
    for each in copy.iterdir():
        each.unlink()
    copy.rmdir()
    with two(tmp_path) as broker:
        assert broker.produce("t", batch(b"x"), partition=index).base_offset == 1


class FullDirectories:
    """New files in these directories find no space."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *full: Path) -> None:
        self.full = list(full)
        make = OsFilesystem.make_directories

        def refuse(filesystem: OsFilesystem, path: Path) -> None:
            make(filesystem, path)
            if path.parent in self.full and path.name != "t-0":
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(OsFilesystem, "make_directories", refuse)


def test_what_a_full_log_dir_refuses_is_made_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FullDirectories(monkeypatch, tmp_path / "b")
    with two(tmp_path) as broker:
        fill(broker, "t", 8)
        assert in_directory(tmp_path / "b", "t") in ([], [0])
        assert in_directory(tmp_path / "a", "t") == [i for i in range(8) if i not in in_directory(tmp_path / "b", "t")]
    with two(tmp_path) as broker:
        assert [broker.produce("t", batch(b"x"), partition=index).base_offset for index in range(8)] == [1] * 8


def test_what_no_log_dir_takes_is_made_when_there_is_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDirectories(monkeypatch, tmp_path / "a", tmp_path / "b")
    with two(tmp_path) as broker:
        broker.create_topic("t", partitions=3)
        codes = [broker.produce("t", batch(b"x"), partition=index).error_code for index in range(3)]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
        broker.run(broker.broker.partitions.retry())
        assert broker.broker.partitions.offline_partitions("t") == {1, 2}
    with two(tmp_path) as broker:
        assert broker.broker.partitions.offline_partitions("t") == {1, 2}
        disk.full = []
        broker.run(broker.broker.partitions.retry())
        assert broker.broker.partitions.offline_count() == 0
        assert [broker.produce("t", batch(b"x"), partition=index).base_offset for index in range(3)] == [1, 0, 0]
    lost = in_directory(tmp_path / "b", "t")
    (tmp_path / "b").rename(tmp_path / "away")
    with two(tmp_path) as broker:
        assert broker.broker.partitions.offline_partitions("t") == set(lost), (
            "where they were made at last is on record"
        )


def test_a_topic_that_could_not_be_made_can_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDirectories(monkeypatch, tmp_path / "a", tmp_path / "b")
    with two(tmp_path) as broker:
        broker.create_topic("full", partitions=3)
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="full")]))
        disk.full = []
        broker.run(broker.broker.partitions.retry())
        assert in_directory(tmp_path / "a", "full") == in_directory(tmp_path / "b", "full") == []


def test_where_partitions_are_is_written_down_when_that_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaStorageError("no space")

    broker = EmbeddedBroker(tmp_path)
    with broker:
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryAssignments, "_write", refuse)
            broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).error_code == 0
    record = DirectoryAssignments._write
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryAssignments, "_write", refuse)
        with EmbeddedBroker(tmp_path) as broker:
            patch.setattr(DirectoryAssignments, "_write", record)
            broker.run(broker.broker.partitions.retry())
    (tmp_path / "data" / "t-0").rename(tmp_path / "elsewhere")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "data" / name).unlink()
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.produce("t", batch(b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_log_dir_shows(tmp_path: Path) -> None:
    with two(tmp_path) as broker:
        fill(broker, "t", 2)
        (index,) = in_directory(tmp_path / "b", "t")
        assert broker._server._problem() is None
        broker.broker.partitions.logs.log_dirs[1].fail("fsync failed: EIO")
        described = broker.call(DescribeLogDirsRequest(topics=None), 4)
        assert [(each.error_code, len(each.topics)) for each in described.results] == [
            (0, 1),
            (ErrorCode.KAFKA_STORAGE_ERROR, 0),
        ]
        (topic,) = broker.call(MetadataRequest(topics=None), 12).topics
        assert [each.offline_replicas for each in topic.partitions if each.partition_index == index] == [[1]]
        assert [each.offline_replicas for each in topic.partitions if each.partition_index != index] == [[]]
        assert str(tmp_path / "b") in (broker._server._problem() or "")
        families = {family.name: list(family.samples) for family in broker.broker.metrics.families()}
        assert families["klamm_offline_partitions"] == [("", 1)]


def test_the_expiration_of_producers_reaches_the_logs(tmp_path: Path) -> None:
    def expirations(broker: EmbeddedBroker) -> set[int]:
        return {each.log.producers.expiration_ms for each in broker.broker.partitions if each.log is not None}

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        alter_broker(broker, "producer.id.expiration.ms", "1234")
        broker.create_topic("u")
        assert expirations(broker) == {1234}
    with EmbeddedBroker(tmp_path) as broker:
        assert expirations(broker) == {1234}


def alter_broker(broker: EmbeddedBroker, key: str, value: str) -> None:
    update = ConfigUpdate(ResourceType.BROKER, "", [KeyUpdate(key, Op.SET, value)])
    assert broker.run(broker.broker.controller.update_configs([update])) == [None]


def turns_of(broker: EmbeddedBroker, change: Coroutine[Any, Any, object]) -> list[int]:
    """How many partitions were made, configured or taken offline in each turn of the loop."""
    sizes = []

    async def main() -> None:
        nonlocal worked
        task = asyncio.ensure_future(change)
        while not task.done():
            worked = 0
            await asyncio.sleep(0)
            sizes.append(worked)
        await task

    worked = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal worked
            worked += 1
            return method(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns, "TURN_S", float("inf"))
        for name in ("configure", "go_offline"):
            patch.setattr(Partition, name, counted(getattr(Partition, name)))
        broker.run(main())
    return [size for size in sizes if size]


def test_changes_of_many_partitions_take_turns(tmp_path: Path) -> None:
    count = 2 * MOST + 1
    with EmbeddedBroker(tmp_path) as broker:
        controller = broker.broker.controller
        # A partition that is made takes its config.
        assert turns_of(broker, controller.create_topics([NewTopic("t", count, 1)])) == [MOST, MOST, 1]
        assert turns_of(broker, controller.create_partitions([NewPartitions("t", 2 * count)])) == [MOST, MOST, 1]
        assert len(broker.broker.partitions.topics["t"].partitions) == 2 * count
        update = ConfigUpdate(ResourceType.TOPIC, "t", [KeyUpdate("retention.ms", Op.SET, "5000")])
        assert max(turns_of(broker, controller.update_configs([update]))) == MOST
        assert {
            partition.log and partition.log.local.config.retention_ms for partition in broker.broker.partitions
        } == {5000}
        whole = ConfigUpdate(ResourceType.BROKER, "", [KeyUpdate("message.max.bytes", Op.SET, "5000")])
        assert max(turns_of(broker, controller.update_configs([whole]))) == MOST
        assert {partition.rules.max_message_bytes for partition in broker.broker.partitions} == {5000}
        assert max(turns_of(broker, controller.delete_topics([TopicKey("t")]))) == MOST
        assert directories(broker) == []


def test_changes_of_many_topics_take_turns(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(2 * TOPICS + 1)]
    with EmbeddedBroker(tmp_path) as broker:
        controller = broker.broker.controller
        made = turns_of(broker, controller.create_topics([NewTopic(name, 1, 1) for name in names]))
        assert made == [TOPICS, TOPICS, 1]
        key = [KeyUpdate("retention.ms", Op.SET, "5000")]
        updates = [ConfigUpdate(ResourceType.TOPIC, name, key) for name in names]
        assert turns_of(broker, controller.update_configs(updates)) == [TOPICS, TOPICS, 1]


def test_the_logs_of_deleted_topics_go_with_one_sync_of_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=5)
        broker.create_topic("u", partitions=5)
        synced: list[Path] = []
        real = OsFilesystem.sync_directory
        monkeypatch.setattr(
            OsFilesystem, "sync_directory", lambda filesystem, path: synced.append(path) or real(filesystem, path)
        )
        broker.run(broker.broker.controller.delete_topics([TopicKey("t"), TopicKey("u")]))
        assert synced.count(tmp_path / "data") <= 2  # the checkpoints are replaced there, too
        assert directories(broker) == []
