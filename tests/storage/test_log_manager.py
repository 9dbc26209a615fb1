"""One state per partition over all log directories: found, made, refused, lost, set aside, moved, deleted."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import NewLog
from klamm.storage.log_dir import LogDir
from klamm.storage.log_manager import LogManager
from klamm.storage.paths import TopicPartition
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

A, B = Path("/a"), Path("/b")
OURS, THEIRS = bytes([1]) * 16, bytes([2]) * 16


@dataclass(frozen=True)
class Topic:
    topic_id: bytes
    partitions: range


def opened(
    filesystem: MemoryFilesystem,
    *,
    topics: Mapping[str, Topic] | None = None,
    recorded: Mapping[str, Mapping[int, str]] | None = None,
) -> LogManager:
    clock = ManualClock()
    logs = LogManager([LogDir.open(each, node_id=1, clock=clock, filesystem=filesystem) for each in (A, B)])
    logs.load_logs(topics or {}, lambda _: LogConfig(), recorded=recorded or {}, workers=1)
    return logs


def new(*indexes: int, topic_id: bytes = OURS) -> list[NewLog]:
    return [NewLog("t", index, topic_id, LogConfig()) for index in indexes]


def key(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_new_logs_are_spread_and_found_again() -> None:
    filesystem = MemoryFilesystem()
    logs = opened(filesystem)
    logs.create(new(0, 1, 2, 3), served=())
    assert sorted(logs.directory_of(key(index)).path for index in range(4)) == [A, A, B, B]
    places = [logs.directory_id_of(key(index)) for index in range(4)]
    logs.close()
    again = opened(filesystem, topics={"t": Topic(OURS, range(4))})
    assert [again.directory_id_of(key(index)) for index in range(4)] == places
    assert all(again.state(key(index)).log is not None for index in range(4))


def test_what_is_refused_everywhere_is_pending_until_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = opened(MemoryFilesystem())
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFilesystem, "make_directories", refuse)
        logs.create(new(0), served=())
    state = logs.state(key(0))
    assert state.log is None and state.error is not None and state.directory is None
    assert logs.pending() == new(0) and logs.directory_id_of(key(0)) == ""
    with pytest.raises(KeyError):
        logs.directory_of(key(0))
    ((item, log),) = logs.make(logs.pending())
    assert item.key == key(0) and logs.state(key(0)).log is log and logs.pending() == []


def test_a_retry_that_a_deletion_overtakes_is_not_in_the_way_of_the_next_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = opened(MemoryFilesystem())
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFilesystem, "make_directories", refuse)
        logs.create(new(0, topic_id=THEIRS), served=())
        retried = logs.pending()
        logs.delete(logs.forget(key(0)))  # on the loop, while the disk thread tries again
        logs.make(retried)
    logs.create(new(0), served=())
    log = logs.state(key(0)).log
    assert log is not None and log.topic_id == OURS
    assert logs.pending() == []


def test_a_partition_on_record_that_is_not_there_is_lost() -> None:
    filesystem = MemoryFilesystem()
    topics = {"t": Topic(OURS, range(2))}
    place = opened(filesystem).log_dirs[0].directory_id
    filesystem.crash()
    logs = opened(filesystem, topics=topics, recorded={"t": {0: place, 1: "gone", 7: "gone"}})
    logs.create(new(0, 1), served=())
    states = [logs.state(key(index)) for index in (0, 1)]
    assert [state.log for state in states] == [None, None], "none begins again, empty"
    assert states[0].directory is logs.log_dirs[0] and states[1].directory is None
    assert states[1].error is not None and "directory.id=gone" in states[1].error.message
    assert logs.get(key(7)) is None, "the metadata has no such partition"


def test_files_of_another_topic_are_set_aside_unless_it_is_served() -> None:
    logs = opened(MemoryFilesystem())
    logs.create(new(0, topic_id=THEIRS), served=())
    theirs = logs.state(key(0)).log
    logs.create(new(0), served=("t",))
    assert logs.state(key(0)).log is theirs
    logs.create(new(0), served=())
    ours = logs.state(key(0)).log
    assert ours is not theirs and ours is not None and ours.topic_id == OURS


def test_what_a_move_has_left_goes_with_the_partition() -> None:
    logs = opened(MemoryFilesystem())
    logs.create(new(0), served=())
    log, source = logs.state(key(0)).log, logs.directory_of(key(0))
    (target,) = (each for each in logs.log_dirs if each is not source)
    assert log is not None
    logs.on_log_moved(key(0), log, source, target)
    assert logs.directory_of(key(0)) is target and logs.state(key(0)).previous_directory is source
    assert sorted(each.path for each, _ in logs.forget(key(0))) == [A, B]
    assert logs.get(key(0)) is None
    logs.on_move_ended(key(0))
    assert logs.get(key(0)) is None


def test_a_deleted_partition_leaves_no_directory() -> None:
    filesystem = MemoryFilesystem()
    logs = opened(filesystem)
    logs.create(new(0, 1), served=())
    logs.delete(logs.forget(key(0)))
    assert sorted(name for each in logs.log_dirs for name in map(str, each.partitions_on_disk())) == ["t-1"]
