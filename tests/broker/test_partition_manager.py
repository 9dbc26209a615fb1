"""Partitions come and go with the metadata; files of somebody else are never served and never deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.controller.topics import TopicKey
from klamm.broker.metadata.sqlite_store import FILE_NAME
from klamm.protocol.errors import ErrorCode, KafkaStorageError
from klamm.storage.log_dir import LogDir
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


def test_a_deleted_topic_leaves_nothing_and_its_name_begins_anew(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        broker.produce("t", batch(b"x"))
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        assert directories(broker) == [] and "t" not in broker.broker.partitions.topics
        broker.create_topic("t")
        assert broker.produce("t", batch(b"x")).base_offset == 0


def test_a_topic_whose_files_stay_stays_marked_for_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorageError("read-only")

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        with monkeypatch.context() as patch:
            patch.setattr(LogDir, "delete_log", refuse)
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
        assert broker.produce("t", batch(b"x" * 2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_topic_whose_directory_vanished_can_be_deleted(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        (tmp_path / "data" / "t-0").rename(tmp_path / "elsewhere")
        broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
        assert "t" not in broker.broker.image.topics


def test_a_partition_whose_directory_vanished_does_not_begin_anew(tmp_path: Path) -> None:
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
