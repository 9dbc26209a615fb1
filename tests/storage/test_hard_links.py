"""Files shared by hard links are not changed in place, whatever happens to the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.storage import paths
from klamm.storage.copying import copy_partition
from klamm.storage.filesystem import make_durable_directory
from klamm.storage.hard_links import unshare_files
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.paths import TopicPartition
from klamm.storage.tools.repair import Mode, Repair
from tests.storage.batches import DIRECTORY, all_offsets, batch, fill, open_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import Crash, MemoryFilesystem

COPY = Path("/copy/t-0")


@pytest.fixture
def filesystem() -> MemoryFilesystem:
    """A closed log of three segments of 3, 3 and 2 batches, and a copy that shares the first two."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    log.roll()
    fill(log, 3)
    log.roll()
    fill(log, 2)
    log.close()
    make_durable_directory(filesystem, COPY.parent)
    copy_partition(filesystem, DIRECTORY, COPY)
    filesystem.sync_directory(COPY.parent)
    return filesystem


def contents(filesystem: MemoryFilesystem) -> dict[str, bytes]:
    return {entry.name: filesystem.read_bytes(COPY / entry.name) for entry in filesystem.list_directory(COPY)}


def shared(filesystem: MemoryFilesystem) -> list[int]:
    """The base offsets of the segments that the log still shares."""
    found = [
        paths.parse_offset_file(entry.name) for entry in filesystem.list_directory(DIRECTORY) if entry.link_count > 1
    ]
    return sorted(parsed[0] for parsed in found if parsed is not None and parsed[1] == paths.LOG_SUFFIX)


def reopen(filesystem: MemoryFilesystem, *, clean: bool = True, directory: Path = DIRECTORY) -> Log:
    return open_log(filesystem, clean=clean, directory=directory)


def test_closed_segments_are_shared_and_opening_the_log_leaves_them_so(filesystem: MemoryFilesystem) -> None:
    before = contents(filesystem)
    log = reopen(filesystem)
    fill(log, 2)
    log.close()
    assert shared(filesystem) == [0, 3]
    assert contents(filesystem) == before


@pytest.mark.parametrize("offset", [5, 4, 3, 1, 0])
def test_truncation_and_what_is_appended_then(filesystem: MemoryFilesystem, offset: int) -> None:
    before = contents(filesystem)
    log = reopen(filesystem)
    log.truncate_to(offset)
    log.append_as_leader(batch(value=b"another value"), leader_epoch=1)
    log.close()
    assert contents(filesystem) == before
    assert all_offsets(reopen(filesystem, directory=COPY)) == list(range(8))
    assert all_offsets(reopen(filesystem)) == list(range(offset + 1))


@pytest.mark.parametrize("clean", [True, False])
def test_a_shared_segment_that_has_become_the_last_one(filesystem: MemoryFilesystem, clean: bool) -> None:
    before = contents(filesystem)
    for suffix in (paths.LOG_SUFFIX, paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX):
        filesystem.unlink(paths.offset_file(DIRECTORY, 6, suffix))
    log = reopen(filesystem, clean=clean)
    log.append_as_leader(batch(value=b"another value"), leader_epoch=1)
    log.close()
    assert shared(filesystem) == [0]
    assert contents(filesystem) == before


def test_recovery_rebuilds_indexes_that_are_not_shared(filesystem: MemoryFilesystem) -> None:
    before = contents(filesystem)
    config = LogConfig(index_interval_bytes=0)  # with other entries than before
    open_log(filesystem, config=config).close()
    assert shared(filesystem) == [0, 3]
    assert contents(filesystem) == before
    assert filesystem.read_bytes(DIRECTORY / f"{0:020d}.index") != before[f"{0:020d}.index"]


def test_recovery_after_a_power_cut(filesystem: MemoryFilesystem) -> None:
    """The second segment is torn in the log alone: it has a file of its own by then."""
    before = contents(filesystem)
    unshare_files(filesystem, DIRECTORY, 3)
    file = filesystem.open_file(paths.offset_file(DIRECTORY, 3, paths.LOG_SUFFIX))
    file.write_at(b"\xff" * 10, 30)
    log = open_log(filesystem, power_loss=True)
    assert log.log_end_offset == 3
    log.close()
    assert contents(filesystem) == before


def test_cutting_the_segment_that_is_shared_and_damaged(filesystem: MemoryFilesystem) -> None:
    """Damage is shared, its repair by recovery is not."""
    file = filesystem.open_file(paths.offset_file(DIRECTORY, 3, paths.LOG_SUFFIX))
    file.write_at(b"\xff" * 10, 30)
    before = contents(filesystem)
    open_log(filesystem, power_loss=True).close()
    assert contents(filesystem) == before


def test_repair(filesystem: MemoryFilesystem) -> None:
    file = filesystem.open_file(paths.offset_file(DIRECTORY, 3, paths.LOG_SUFFIX))
    file.write_at(b"\xff" * 10, 90)
    before = contents(filesystem)
    partition = TopicPartition("t", 0)
    repair = Repair(
        DIRECTORY.parent, partition, Mode.TRUNCATE, filesystem=filesystem, clock=ManualClock(), say=lambda _: None
    )
    assert repair.run()
    assert contents(filesystem) == before
    assert shared(filesystem) == [0]


def test_a_crash_leaves_the_shared_file_or_our_own(filesystem: MemoryFilesystem) -> None:
    path = paths.offset_file(DIRECTORY, 3, paths.LOG_SUFFIX)
    before, content = contents(filesystem), filesystem.read_bytes(path)
    steps = 0
    while True:
        steps += 1
        world = filesystem.clone()
        world.crash_after(steps)
        try:
            unshare_files(world, DIRECTORY, 3)
        except Crash:
            world.crash()
            assert world.read_bytes(path) == content
            assert contents(world) == before
            reopen(world, clean=False).close()
            assert not [
                entry for entry in world.list_directory(DIRECTORY) if entry.name.endswith(paths.TEMPORARY_SUFFIX)
            ]
            continue
        break
    assert steps > 3
