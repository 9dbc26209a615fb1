"""The reserve of a log directory, and the operations that a full disk still allows with and without it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import paths
from klamm.storage.filesystem import NoSpace, OsFilesystem
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from klamm.storage.reserve import Reserve
from tests.storage.batches import batch, delete_unreachable, fill
from tests.storage.test_log_dir import DATA, SMALL, TOPIC_ID
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

BYTES = 10_000
T, U = TopicPartition("t", 0), TopicPartition("u", 0)


def open_dir(filesystem: MemoryFilesystem, reserve_bytes: int = BYTES) -> LogDir:
    log_dir = LogDir.open(
        DATA, node_id=1, clock=ManualClock(), filesystem=filesystem, quarantine=None, reserve_bytes=reserve_bytes
    )
    log_dir.open_reserve()
    load_logs(log_dir, lambda topic: SMALL)
    return log_dir


def full(reserve_bytes: int = BYTES) -> tuple[MemoryFilesystem, LogDir]:
    """A directory with two logs of many segments, and nothing free."""
    filesystem = MemoryFilesystem()
    filesystem.space_bytes = 100_000
    log_dir = open_dir(filesystem, reserve_bytes)
    for topic in "tu":
        log = create_log(log_dir, topic, 0, TOPIC_ID, SMALL)
        fill(log, 20)
        log.local.flush()
    log_dir.checkpoint()
    filesystem.space_bytes = 0
    return filesystem, log_dir


def reserved(filesystem: MemoryFilesystem) -> int:
    return filesystem.open_read(DATA / paths.RESERVE).size()


def test_a_real_reserve_has_blocks(tmp_path: Path) -> None:
    reserve = Reserve(OsFilesystem(), tmp_path, 1 << 20)
    reserve.open()
    path = tmp_path / paths.RESERVE
    assert reserve.is_held and os.stat(path).st_size == 1 << 20 <= os.stat(path).st_blocks * 512
    assert reserve.let_go() and not reserve.let_go()
    assert os.stat(path).st_blocks == 0 and reserve.is_lent
    assert reserve.make() and reserve.is_held and not reserve.is_lent


def test_it_is_made_only_where_twice_as_much_is_free() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DATA)
    reserve = Reserve(filesystem, DATA, BYTES)
    filesystem.space_bytes = 2 * BYTES - 1
    reserve.open()
    assert (reserve.is_held, reserve.is_lent, reserve.is_missing) == (False, False, True)
    assert not filesystem.exists(DATA / paths.RESERVE)
    filesystem.space_bytes = 2 * BYTES
    assert reserve.make() and filesystem.space_bytes == BYTES


def test_one_that_cannot_be_allocated_leaves_the_space_to_others() -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DATA)
    reserve = Reserve(filesystem, DATA, BYTES)
    filesystem.inject("allocate", errno.EDQUOT)
    reserve.open()
    assert not reserve.is_held and not filesystem.exists(DATA / paths.RESERVE)


@pytest.mark.parametrize(("before", "after"), [(BYTES, 0), (BYTES, BYTES // 2), (BYTES, 2 * BYTES), (0, BYTES)])
def test_its_size_follows_the_key(before: int, after: int) -> None:
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DATA)
    for size_bytes in (before, after):
        reserve = Reserve(filesystem, DATA, size_bytes)
        reserve.open()
    assert reserve.is_held == (after > 0)
    assert filesystem.exists(DATA / paths.RESERVE) == (after > 0)
    assert not after or reserved(filesystem) == after


def test_on_a_full_disk_log_starts_are_durable_by_the_reserve() -> None:
    filesystem, log_dir = full()
    log = log_dir.logs[T]
    log_dir.raise_log_starts({T: 17})
    assert log.log_start_offset == 0, "the caller moves it"
    log.advance_log_start(17)
    assert delete_unreachable(log) > 0
    filesystem.crash()
    again = open_dir(filesystem)
    assert (again.logs[T].log_start_offset, again.logs[T].log_end_offset) == (17, 20)


def test_without_a_reserve_nothing_moves() -> None:
    filesystem, log_dir = full(reserve_bytes=0)
    with pytest.raises(NoSpace):
        log_dir.raise_log_starts({T: 17})
    filesystem.space_bytes = 1000
    log_dir.checkpoint()
    filesystem.kill()
    assert open_dir(filesystem, 0).logs[T].log_start_offset == 0


def test_a_checkpoint_between_the_disk_and_the_memory_takes_no_log_start_back() -> None:
    filesystem, log_dir = full()
    log_dir.raise_log_starts({T: 17})
    log_dir.checkpoint()
    filesystem.crash()
    assert open_dir(filesystem).logs[T].log_start_offset == 17


def test_nothing_is_appended_or_made_until_the_reserve_is_made_again() -> None:
    filesystem, log_dir = full()
    log_dir.raise_log_starts({T: 17})
    assert filesystem.space_bytes > BYTES // 2
    for log in log_dir.logs.values():
        with pytest.raises(KafkaStorageError, match="its reserve is released"):
            log.append_as_leader(batch(), leader_epoch=0)
    with pytest.raises(NoSpace, match="its reserve is released"):
        create_log(log_dir, "v", 0, TOPIC_ID, SMALL)
    log_dir.reserve.renew()
    assert log_dir.reserve.is_lent
    filesystem.space_bytes = 3 * BYTES
    log_dir.reserve.renew()
    assert reserved(filesystem) == BYTES
    for log in log_dir.logs.values():
        assert log.append_as_leader(batch(), leader_epoch=0).base_offset == 20


@pytest.mark.parametrize("how", ["close", "kill"])
def test_that_it_was_let_go_is_known_after_a_restart(how: str) -> None:
    filesystem, log_dir = full()
    log_dir.raise_log_starts({T: 17})
    if how == "close":
        assert log_dir.close()
    filesystem.kill()
    again = open_dir(filesystem)
    with pytest.raises(KafkaStorageError, match="its reserve is released"):
        again.logs[T].append_as_leader(batch(), leader_epoch=0)
    filesystem.space_bytes = 3 * BYTES
    again.reserve.renew()
    again.logs[T].append_as_leader(batch(), leader_epoch=0)


@pytest.mark.parametrize("reserve_bytes", [0, BYTES])
def test_a_log_is_deleted_on_a_full_disk(reserve_bytes: int) -> None:
    filesystem, log_dir = full(reserve_bytes)
    delete_log(log_dir, TopicPartition("t", 0))
    assert filesystem.space_bytes is not None and filesystem.space_bytes > 0
    filesystem.crash()
    again = open_dir(filesystem, reserve_bytes)
    assert set(again.logs) == {U} and again.logs[U].log_end_offset == 20


def test_a_full_disk_is_left_and_entered_cleanly() -> None:
    filesystem, log_dir = full()
    assert log_dir.close(), "the reserve is for this, too"
    filesystem.space_bytes = 0
    again = open_dir(filesystem)
    assert again.was_clean and again.offline == {} and len(again.logs) == 2


def test_a_restart_of_the_machine_with_a_full_disk_uses_the_reserve() -> None:
    filesystem, _ = full()
    filesystem.crash()
    filesystem.space_bytes = 0
    again = open_dir(filesystem)  # the boot id is written
    assert again.offline == {} and again.reserve.is_lent


def test_a_log_start_that_was_to_rise_is_forgotten_with_its_log() -> None:
    """A topic of the same name begins at 0."""
    filesystem = MemoryFilesystem()
    log_dir = open_dir(filesystem)
    fill(create_log(log_dir, "t", 0, TOPIC_ID, SMALL), 20)
    log_dir.raise_log_starts({T: 17})  # and the log goes before it moves
    delete_log(log_dir, TopicPartition("t", 0))
    log = create_log(log_dir, "t", 0, TOPIC_ID, SMALL)
    fill(log, 20)
    log.local.flush()
    log_dir.checkpoint()
    filesystem.crash()
    assert open_dir(filesystem).logs[T].log_start_offset == 0
