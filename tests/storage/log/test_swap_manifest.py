"""The recovery of an interrupted swap, by Klamm (there is a manifest) or by Apache Kafka (names only)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import paths
from klamm.storage.compaction.cleanable import cleanable
from klamm.storage.compaction.cleaner import Cleaner
from klamm.storage.filesystem import replace_file
from klamm.storage.log.cleaned_segment import Cleaned
from klamm.storage.log.log import Log
from klamm.storage.log.swap_manifest import SwapManifest, SwapManifestError
from klamm.storage.recovery.loader import LogDamaged
from tests.storage.batches import DIRECTORY, open_log
from tests.storage.compaction.test_cleaner import CONFIG, append, contents, job_of
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import Crash, MemoryFilesystem

MARKS = (".cleaned", ".swap", ".deleted", ".compaction", ".tmp")


def cleaned_log() -> tuple[Log, MemoryFilesystem, Cleaned]:
    """A log of 30 records of one key, the first two of its segments written as one, not swapped in yet."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    for _ in range(30):
        append(log, (b"a", b"x"))
    log.roll()
    log.local.configure(CONFIG.__class__(segment_bytes=1200, index_interval_bytes=100, compacted=True))
    log.local.flush()
    found = cleanable(log, 0, START_MS)
    assert found is not None
    first, *_ = Cleaner(job_of(log, found, START_MS), filesystem).run().groups
    assert len(first.sources) == 2
    return log, filesystem, first


def names_of(filesystem: MemoryFilesystem) -> set[str]:
    return {entry.name for entry in filesystem.list_directory(DIRECTORY)}


def reopen(filesystem: MemoryFilesystem) -> Log:
    log = open_log(filesystem, config=CONFIG, recovery_point=30)
    assert not [name for name in names_of(filesystem) if name.endswith(MARKS)]
    log.high_watermark = log.log_end_offset
    return log


def mark(filesystem: MemoryFilesystem, offset: int, old: str, new: str) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        filesystem.rename(
            paths.offset_file(DIRECTORY, offset, suffix + old), paths.offset_file(DIRECTORY, offset, suffix + new)
        )


def test_row_14_cleaned_files_without_a_manifest_are_dropped() -> None:
    _, filesystem, _ = cleaned_log()
    assert [record.offset for record in contents(reopen(filesystem))] == list(range(30))


def test_row_15_kafkas_swap_files_replace_the_segments_that_they_cover() -> None:
    _, filesystem, group = cleaned_log()
    for name in names_of(filesystem):
        parsed = paths.parse_offset_file(name.removesuffix(".cleaned"))
        if name.endswith(".cleaned") and parsed is not None and parsed[0] != group.base_offset:
            filesystem.unlink(DIRECTORY / name)
    for suffix in (".log", ".index", ".timeindex"):  # make it cover more than one segment
        filesystem.unlink(paths.offset_file(DIRECTORY, group.base_offset, suffix + ".cleaned"))
    first, second = group.sources
    content = filesystem.read_bytes(paths.offset_file(DIRECTORY, first, ".log"))
    content += filesystem.read_bytes(paths.offset_file(DIRECTORY, second, ".log"))
    filesystem.open_file(paths.offset_file(DIRECTORY, first, ".log.swap"), create=True).write_at(content, 0)
    log = reopen(filesystem)
    assert log.local.segments.all[0].size_bytes == len(content)
    assert second not in [segment.base_offset for segment in log.local.segments.all]
    assert [record.offset for record in contents(log)] == list(range(30))


def test_row_15_kafkas_swap_file_of_an_index_alone_takes_its_name() -> None:
    log, filesystem, _ = cleaned_log()
    log.close()
    before = filesystem.read_bytes(paths.offset_file(DIRECTORY, 0, ".index"))
    filesystem.rename(paths.offset_file(DIRECTORY, 0, ".index"), paths.offset_file(DIRECTORY, 0, ".index.swap"))
    reopen(filesystem)
    assert filesystem.read_bytes(paths.offset_file(DIRECTORY, 0, ".index")) == before


def test_row_16_kafkas_swap_file_at_or_above_a_cleaned_one_is_an_unfinished_split() -> None:
    _, filesystem, group = cleaned_log()
    log_file = paths.offset_file(DIRECTORY, group.base_offset, ".log")
    filesystem.rename(log_file.with_name(log_file.name + ".cleaned"), log_file.with_name(log_file.name + ".swap"))
    assert [record.offset for record in contents(reopen(filesystem))] == list(range(30))


def test_a_swap_file_that_is_cut_is_not_swapped_in() -> None:
    _, filesystem, group = cleaned_log()
    path = paths.offset_file(DIRECTORY, group.base_offset, ".log.swap")
    filesystem.open_file(path, create=True).write_at(b"half a batch", 0)
    for name in names_of(filesystem):
        if name.endswith(".cleaned"):
            filesystem.unlink(DIRECTORY / name)
    with pytest.raises(LogDamaged, match="batches end at 0 of 12 bytes"):
        open_log(filesystem, config=CONFIG, recovery_point=30)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 2, "base_offset": 0, "sources": [0]}', b"\xff"])
def test_a_manifest_that_is_none_stops_the_start_of_that_log(content: bytes) -> None:
    _, filesystem, _ = cleaned_log()
    filesystem.open_file(DIRECTORY / paths.COMPACTION_MANIFEST, create=True).write_at(content, 0)
    with pytest.raises(LogDamaged, match="is not a manifest"):
        open_log(filesystem, config=CONFIG, recovery_point=30)
    with pytest.raises(SwapManifestError):
        SwapManifest.parse(content)


def test_manifest_round_trip() -> None:
    swap = SwapManifest(7, (7, 100, 2**40))
    assert swap.format() == b'{"version": 1, "base_offset": 7, "sources": [7, 100, 1099511627776]}'
    assert SwapManifest.parse(swap.format()) == swap


def test_a_full_disk_before_the_manifest_changes_nothing() -> None:
    log, filesystem, group = cleaned_log()
    filesystem.inject("write", errno.ENOSPC, "klamm.compaction.tmp", times=1)
    assert log.local.begin_swap(group)
    with pytest.raises(KafkaStorageError):
        log.local.swap_files(group)
    assert log.local.offline_reason is None
    assert [record.offset for record in contents(log)] == list(range(30))
    append(log, (b"b", b"y"))
    log.local.flush()
    assert log.local.begin_swap(group)
    log.local.swap_files(group)
    log.local.finish_swap()
    assert contents(log)[-1].key == b"b"


@pytest.mark.parametrize("skip", range(4))
def test_an_error_after_the_manifest_takes_the_log_offline_and_the_start_finishes(skip: int) -> None:
    log, filesystem, group = cleaned_log()
    filesystem.inject("sync_directory", errno.EIO, skip=2 + skip, times=1)
    assert log.local.begin_swap(group)
    with pytest.raises(KafkaStorageError):
        log.local.swap_files(group)
    assert log.local.offline_reason is not None
    assert [record.offset for record in contents(log)] == list(range(30))
    filesystem.heal()
    filesystem.kill()
    again = reopen(filesystem)
    assert again.local.segments.all[0].size_bytes == group.size_bytes
    assert [segment.base_offset for segment in again.local.segments.all if segment.base_offset in group.sources] == [0]


def kafka_was_swapping(filesystem: MemoryFilesystem, group: Cleaned) -> None:
    """Apache Kafka leaves this between two of its renames: the log has its `.swap` name, the other files follow."""
    for name in names_of(filesystem):
        parsed = paths.parse_offset_file(name.removesuffix(".cleaned"))
        if name.endswith(".cleaned") and parsed is not None and parsed[0] != group.base_offset:
            filesystem.unlink(DIRECTORY / name)
    mark(filesystem, group.base_offset, ".cleaned", ".swap")


def we_were_swapping(filesystem: MemoryFilesystem, group: Cleaned) -> None:
    replace_file(
        filesystem, DIRECTORY / paths.COMPACTION_MANIFEST, SwapManifest(group.base_offset, group.sources).format()
    )


def kafka_was_splitting(filesystem: MemoryFilesystem, group: Cleaned) -> None:
    path = paths.offset_file(DIRECTORY, group.base_offset, ".log")
    filesystem.rename(path.with_name(path.name + ".cleaned"), path.with_name(path.name + ".swap"))


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("left", [kafka_was_swapping, we_were_swapping, kafka_was_splitting])
def test_rows_15_16_starts_that_crash_again_and_again_end_where_one_start_does(
    left: Callable[[MemoryFilesystem, Cleaned], None], power: bool
) -> None:
    log, filesystem, group = cleaned_log()
    log.local.flush()
    left(filesystem, group)
    for entry in filesystem.list_directory(DIRECTORY):
        filesystem.open_file(DIRECTORY / entry.name).sync()
    filesystem.sync_directory(DIRECTORY)
    untouched = filesystem.clone()
    expected = [record.offset for record in contents(reopen(untouched))]
    for seed in range(4):
        rng = random.Random(f"{left.__name__} {seed}")
        disk, crashes = filesystem.clone(), 0
        for changes in [*range(8), *(rng.randrange(40) for _ in range(6))]:
            disk.crash_after(changes)
            try:
                open_log(disk, config=CONFIG, recovery_point=30, power_loss=power)
            except Crash:
                crashes += 1
            disk.crash(rng) if power else disk.kill()
        assert crashes >= 3
        assert [record.offset for record in contents(reopen(disk))] == expected, f"seed={seed}"
