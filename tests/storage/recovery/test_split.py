from __future__ import annotations

import errno
import json
import random

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.storage import paths
from klamm.storage.log.index import MAX_RELATIVE_OFFSET
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.swap_manifest import SwapManifest
from klamm.storage.recovery.split import overflows
from tests.storage.batches import DIRECTORY, all_records, batch, open_log
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import Crash, MemoryFilesystem

CONFIG = LogConfig(index_interval_bytes=100, compacted=True)
FAR = 3 * 10**9
OFFSETS = [0, 5, 6, 2**31 - 1, 2**31, FAR, FAR + 1, 2 * FAR, 2 * FAR + 9]


def entry(offset: int, magic: int) -> bytes:
    row = Record(offset, START_MS + offset % 1000 if magic else -1, b"key", b"v" * 40)
    if magic == 2:
        return bytes(encode_batch([row], base_offset=offset, leader_epoch=0))
    return encode_set([row], magic, codec=Codec.GZIP if magic else Codec.NONE)


def written(*, magic: int = 2, base_offset: int = 0, next_segment: bool = True) -> MemoryFilesystem:
    """A log with a first segment that spans three times the offsets that its indexes can express, all of it durable."""
    filesystem = MemoryFilesystem()
    filesystem.make_directories(DIRECTORY)
    segments = {base_offset: b"".join(entry(offset, magic) for offset in OFFSETS if offset >= base_offset)}
    if next_segment:
        segments[2 * FAR + 10] = entry(2 * FAR + 10, 2) + entry(2 * FAR + 12, 2)
    for base, content in segments.items():
        file = filesystem.open_file(paths.offset_file(DIRECTORY, base, paths.LOG_SUFFIX), create=True)
        file.write_at(content, 0)
        file.sync()
    for directory in (DIRECTORY, DIRECTORY.parent, DIRECTORY.parent.parent):
        filesystem.sync_directory(directory)
    return filesystem


def stored(log: Log) -> bytes:
    return b"".join(segment.file.read_at(segment.size_bytes, 0) for segment in log.local.segments.all)


def first_offset(content: bytes) -> int:
    return int.from_bytes(content[:8], "big")


def offsets_of(log: Log) -> list[int]:
    content = stored(log)
    return [record.offset for at, head in batches(content) for record in records(content, head, 1 << 20, at)]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("next_segment", [True, False])
def test_every_batch_is_there_in_segments_that_their_indexes_can_tell(
    magic: int, clean: bool, next_segment: bool
) -> None:
    filesystem = written(magic=magic, next_segment=next_segment)
    names = [item.name for item in filesystem.list_directory(DIRECTORY) if item.name.endswith(".log")]
    before = [filesystem.read_bytes(DIRECTORY / name) for name in names]
    before.sort(key=first_offset)
    content = b"".join(before)
    for _ in range(3):
        log = open_log(filesystem, config=CONFIG, clean=clean)
        assert stored(log) == content
        expected = OFFSETS + ([2 * FAR + 10, 2 * FAR + 12] if next_segment else [])
        assert offsets_of(log) == expected
        assert [offset for offset, _ in all_records(log)] == expected
        for segment, following in zip(log.local.segments.all, [*log.local.segments.all[1:], None], strict=True):
            end = following.base_offset if following is not None else log.log_end_offset
            assert max(o for o in expected if o < end) - segment.base_offset <= MAX_RELATIVE_OFFSET
        assert log.local.segments.all[0].base_offset == 0
        if magic:
            assert log.timestamp_search(START_MS).run() is not None
        names = [item.name for item in filesystem.list_directory(DIRECTORY)]
        assert not [name for name in names if name.endswith((".cleaned", ".swap")) or "compaction" in name]
        log.close()
    log = open_log(filesystem, config=CONFIG, clean=True)
    assert log.append_as_leader(batch(), leader_epoch=1).base_offset == expected[-1] + 1


def test_a_segment_that_begins_with_the_gap_gets_another_name() -> None:
    filesystem = written()
    old, new = (paths.offset_file(DIRECTORY, base, paths.LOG_SUFFIX) for base in (0, 2))
    content = b"".join(entry(offset, 2) for offset in (FAR, FAR + 1))
    filesystem.unlink(old)
    filesystem.open_file(new, create=True).write_at(content, 0)
    log = open_log(filesystem, config=CONFIG, clean=True)
    assert [segment.base_offset for segment in log.local.segments.all] == [FAR, 2 * FAR + 10]
    assert stored(log).startswith(content)


def test_a_tail_that_is_torn_is_left_to_recovery() -> None:
    filesystem = written(next_segment=False)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    file = filesystem.open_file(path)
    file.write_at(entry(2 * FAR + 20, 2)[:-7], file.size())
    log = open_log(filesystem, config=CONFIG)
    assert offsets_of(log) == OFFSETS


def test_damage_stops_the_split_and_is_found_by_recovery() -> None:
    from klamm.storage.recovery.loader import LogDamaged

    filesystem = written(next_segment=False)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    size = len(entry(0, 2))
    filesystem.open_file(path).write_at(b"\x55", 6 * size + 70)  # in the batch of FAR + 1, which good ones follow
    before = filesystem.read_bytes(path)
    with pytest.raises(LogDamaged, match="a good batch follows"):
        open_log(filesystem, config=CONFIG)
    parts = [item.name for item in filesystem.list_directory(DIRECTORY) if item.name.endswith(".log")]
    assert b"".join(filesystem.read_bytes(DIRECTORY / name) for name in sorted(parts)) == before


def test_an_offset_that_leaps_alone_is_no_reason_to_split() -> None:
    """The newest segment of a topic without gaps is not split, nor is one with an offset beyond the next segment."""
    filesystem = written(next_segment=False)
    log_file = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    with pytest.raises(Exception, match="last offset delta"):
        open_log(filesystem, config=LogConfig(index_interval_bytes=100))
    assert [item.name for item in filesystem.list_directory(DIRECTORY) if ".log" in item.name] == [log_file.name]


def test_what_cannot_overflow_is_not_read() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=400, compacted=True))
    for _ in range(20):
        log.append_as_leader(batch(), leader_epoch=0)
    reads = filesystem.reads
    for segment, following in zip(log.local.segments.all, log.local.segments.all[1:], strict=False):
        assert not overflows(filesystem, segment, following.base_offset, last_may=True, names=())
    assert not overflows(filesystem, log.local.segments.all[-1], None, last_may=False, names=())
    assert filesystem.reads == reads


def changes_of_a_start() -> int:
    filesystem = written()
    before = filesystem.changes
    open_log(filesystem, config=CONFIG)
    return filesystem.changes - before


@pytest.mark.parametrize("power", ["none", "lost", "in part"])
def test_a_crash_at_every_step_leaves_the_old_segment_or_the_new_ones(power: str) -> None:
    expected = [*OFFSETS, 2 * FAR + 10, 2 * FAR + 12]
    for changes in range(changes_of_a_start()):
        filesystem = written()
        filesystem.crash_after(changes)
        with pytest.raises(Crash):
            open_log(filesystem, config=CONFIG)
        if power == "none":
            filesystem.kill()
        else:
            filesystem.crash(random.Random(changes) if power == "in part" else None)
        log = open_log(filesystem, config=CONFIG, power_loss=power != "none", recovery_point=expected[-1] + 1)
        assert offsets_of(log) == expected, f"changes={changes}"


@pytest.mark.parametrize("operation", ["write", "create", "sync", "rename"])
def test_a_disk_that_refuses_leaves_the_partition_offline_and_whole(operation: str) -> None:
    for skip in range(6):
        filesystem = written()
        filesystem.inject(operation, errno.ENOSPC, skip=skip, times=1)
        try:
            log = open_log(filesystem, config=CONFIG)
        except KafkaStorageError:
            filesystem.heal()
            log = open_log(filesystem, config=CONFIG)
        assert offsets_of(log) == [*OFFSETS, 2 * FAR + 10, 2 * FAR + 12]


def test_the_manifest_of_a_split() -> None:
    swap = SwapManifest(0, (0,), (FAR,))
    assert json.loads(swap.format()) == {"version": 2, "targets": [0, FAR], "sources": [0]}
    assert SwapManifest.parse(swap.format()) == swap
    moved = SwapManifest(FAR, (2,))
    assert SwapManifest.parse(moved.format()) == moved
