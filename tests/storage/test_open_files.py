"""The descriptors of logs: limited in number, closed oldest first, and kept while a reader uses them."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import random
from pathlib import Path

import pytest

from klamm.protocol.regions import FileRegion
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.open_files import OpenFiles, limit_for_logs
from klamm.storage.recovery.loader import LogSource, open_log
from tests.storage.batches import all_offsets, batch, read_bytes
from tests.support.manual_clock import START_MS


class Holder:
    def __init__(self) -> None:
        self.is_open = True
        self.was_used = False

    def let_go(self) -> bool:
        if self.was_used:
            self.was_used = False
            return True
        self.is_open = False
        return False


def test_the_first_goes_first_unless_it_was_used() -> None:
    files = OpenFiles(3)
    holders = [Holder() for _ in range(5)]
    for holder in holders[:3]:
        files.opened(holder)
    holders[0].was_used = True
    files.opened(holders[3])
    assert [holder.is_open for holder in holders] == [True, False, True, True, True]
    files.opened(holders[4])
    assert [holder.is_open for holder in holders] == [True, False, False, True, True]
    assert len(files) == 3


def test_all_used_one_goes_nevertheless() -> None:
    files = OpenFiles(2)
    holders = [Holder() for _ in range(3)]
    for holder in holders:
        holder.was_used = True
        files.opened(holder)
    assert sum(holder.is_open for holder in holders) == 2


def test_those_that_are_gone_leave_room() -> None:
    files = OpenFiles(2)
    files.opened(Holder())
    gc.collect()
    kept = [Holder(), Holder()]
    for holder in kept:
        files.opened(holder)
    assert all(holder.is_open for holder in kept)


def test_make_room_closes_some_and_says_when_there_are_none() -> None:
    files = OpenFiles(100)
    holders = [Holder() for _ in range(40)]
    for holder in holders:
        files.opened(holder)
    assert files.make_room()
    assert sum(holder.is_open for holder in holders) == 8
    assert files.make_room()
    assert not files.make_room()


def test_half_of_the_descriptors_and_not_more_than_half_of_the_maps_is_for_logs() -> None:
    assert limit_for_logs(1_000_000, 2_000_000) == 500_000
    assert limit_for_logs(20, 65_530) == 32
    assert limit_for_logs(1_000_000, 65_530) == 32_765
    assert limit_for_logs(1024, 65_530, wanted=40) == 40
    assert limit_for_logs(1_000_000, 65_530, wanted=100_000) == 32_765


BOUND = 10


@pytest.fixture
def filesystem() -> OsFilesystem:
    found = OsFilesystem()
    found.open_files.limit = BOUND
    return found


def many_segments(directory: Path, filesystem: OsFilesystem, count: int = 60) -> Log:
    log = open_log(
        LogSource(
            directory / "t-0",
            LogConfig(segment_bytes=3000, index_interval_bytes=100),
            clock=SystemClock(),
            filesystem=filesystem,
            clean=True,
        )
    )
    while len(log.local.segments.all) < count:
        log.append_as_leader(batch(START_MS + log.log_end_offset, value=b"v" * 100), leader_epoch=0)
    return log


def open_descriptors(directory: Path) -> int:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return sum(link.startswith(str(directory)) for link in links)


def test_a_log_of_many_segments_keeps_to_the_bound(tmp_path: Path, filesystem: OsFilesystem) -> None:
    log = many_segments(tmp_path, filesystem)
    offsets = list(range(log.log_end_offset))
    assert open_descriptors(tmp_path) <= BOUND
    assert all_offsets(log) == offsets
    seed = 20261121
    print(f"seed {seed}")
    for offset in random.Random(seed).choices(offsets, k=300):
        assert read_bytes(log, offset, max_bytes=1)
        found = log.timestamp_search(START_MS + offset).run()
        assert found is not None and found.offset == offset
        assert open_descriptors(tmp_path) <= BOUND
    log.close()
    reopened = many_segments(tmp_path, filesystem)
    assert all_offsets(reopened) == offsets
    reopened.close()


def test_a_region_keeps_its_file_though_the_log_lets_go(tmp_path: Path, filesystem: OsFilesystem) -> None:
    log = many_segments(tmp_path, filesystem)
    regions: list[FileRegion] = []
    for segment in log.local.segments.all:
        region = log.read_records(segment.base_offset, max_bytes=500, max_offset=1 << 60).region
        assert region is not None
        regions.append(region)
    assert open_descriptors(tmp_path) >= len(log.local.segments.all), "the readers hold them"
    content = [region.read() for region in regions]
    assert content == [read_bytes(log, segment.base_offset, max_bytes=500) for segment in log.local.segments.all]
    del regions, region
    assert open_descriptors(tmp_path) <= BOUND
    log.close()


def test_out_of_maps_logs_give_some_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = OsFilesystem()
    many_segments(tmp_path, filesystem).close()
    log = many_segments(tmp_path, filesystem)
    assert all_offsets(log)
    before = len(filesystem.open_files)
    real_map, refused = mmap.mmap, iter([True])

    def map_sometimes(fd: int, length: int, *, access: int) -> mmap.mmap:
        if next(refused, False):
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return real_map(fd, length, access=access)

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", map_sometimes)
        log.local.segments.all[0].time_index.let_go()
        assert log.local.segments.all[0].time_index.lookup(START_MS + 10)
    assert len(filesystem.open_files) < before
    log.close()


def test_out_of_descriptors_logs_give_some_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem = OsFilesystem()
    log = many_segments(tmp_path, filesystem)
    assert all_offsets(log)
    before = open_descriptors(tmp_path)
    real_open, refused = os.open, iter([True, False, True])

    def open_sometimes(path: Path, flags: int, mode: int = 0o777) -> int:
        if next(refused, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return real_open(path, flags, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", open_sometimes)
        log.roll()
    assert open_descriptors(tmp_path) < before
    assert len(log.local.segments.all) == 61
    log.close()
