"""`preallocate`: room on the disk for a whole segment when it is made, and the fate of the zeros after its end."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.storage import paths
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery import loader
from tests.storage.batches import DIRECTORY, all_offsets, fill, open_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=100, preallocate=True)


def sizes(filesystem: MemoryFilesystem) -> list[int]:
    return [entry.size_bytes for entry in filesystem.list_directory(DIRECTORY) if entry.name.endswith(paths.LOG_SUFFIX)]


def test_the_key_of_a_topic() -> None:
    assert LogConfig.from_values({"preallocate": True}).preallocate
    assert not LogConfig.from_values({}).preallocate


def test_only_the_active_segment_has_room_after_its_end() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    assert sizes(filesystem) == [1000]
    fill(log, 30)
    assert len(log.local.segments.all) == 3
    assert sizes(filesystem) == [*(segment.size_bytes for segment in log.local.segments.all[:-1]), 1000]
    assert log.local.size_bytes < sum(sizes(filesystem))
    assert all_offsets(log) == list(range(30))
    log.close()
    assert sizes(filesystem) == [segment.size_bytes for segment in log.local.segments.all]
    again = open_log(filesystem, config=CONFIG, clean=True)
    assert all_offsets(again) == list(range(30))
    fill(again, 1)
    assert (
        sizes(filesystem)[-1] == again.local.segments.all[-1].size_bytes
    )  # as in Kafka, only a new file is preallocated


def test_an_empty_log_is_trimmed_when_it_is_closed() -> None:
    filesystem = MemoryFilesystem()
    open_log(filesystem, config=CONFIG).close()
    assert sizes(filesystem) == [0]
    log = open_log(filesystem, config=CONFIG, clean=True)
    log.close()
    assert sizes(filesystem) == [0]


@pytest.mark.parametrize("count", [0, 5, 30])
@pytest.mark.parametrize("preallocate", [True, False])
def test_after_a_kill_the_zeros_are_cut_off(count: int, preallocate: bool) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    fill(log, count)
    filesystem.kill()
    config = CONFIG if preallocate else LogConfig(segment_bytes=1000, index_interval_bytes=100)
    again = open_log(filesystem, config=config)
    assert all_offsets(again) == list(range(count))
    assert sizes(filesystem) == [segment.size_bytes for segment in again.local.segments.all]
    fill(again, 1)
    assert all_offsets(again) == list(range(count + 1))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_what_was_flushed_is_there(seed: int) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    fill(log, 17)
    log.local.flush()
    fill(log, 9)
    filesystem.crash(random.Random(seed))
    again = open_log(filesystem, config=CONFIG, recovery_point=17, power_loss=True)
    assert 17 <= again.log_end_offset <= 26
    assert all_offsets(again) == list(range(again.log_end_offset))


def test_a_large_tail_of_zeros_is_passed_over(tmp_path: Path) -> None:
    """The tail is sparse here. It is searched for batches, and zeros hold none."""
    config = LogConfig(segment_bytes=1 << 28, preallocate=True)

    def open_real(*, clean: bool) -> Log:
        return loader.open_log(
            loader.LogSource(tmp_path / "t-0", config, clock=ManualClock(), filesystem=OsFilesystem(), clean=clean)
        )

    log = open_real(clean=True)
    path = log.local.segments.all[0].path
    assert path.stat().st_size == 1 << 28
    assert path.stat().st_blocks * 512 >= 1 << 28
    fill(log, 3)
    log.local.abandon("killed")
    again = open_real(clean=False)
    assert all_offsets(again) == [0, 1, 2]
    assert path.stat().st_size == again.local.size_bytes


@pytest.mark.parametrize("power_loss", [False, True])
def test_recovery_does_not_read_the_zeros(power_loss: bool) -> None:
    reads = []
    for segment_bytes in (10_000, 16 << 20):
        filesystem = MemoryFilesystem()
        log = open_log(filesystem, config=LogConfig(segment_bytes=segment_bytes, preallocate=True))
        fill(log, 17)
        filesystem.kill()
        reads.append(-filesystem.reads)
        again = open_log(filesystem, config=CONFIG, power_loss=power_loss)
        assert all_offsets(again) == list(range(17))
        reads[-1] += filesystem.reads
    small, large = reads
    assert large <= small + 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_a_disk_that_has_not_so_much_room_is_used_as_it_is(code: int, caplog: pytest.LogCaptureFixture) -> None:
    filesystem = MemoryFilesystem()
    filesystem.inject("allocate", code, ".log")
    log = open_log(filesystem, config=CONFIG)
    fill(log, 30)
    assert all_offsets(log) == list(range(30))
    assert sizes(filesystem) == [segment.size_bytes for segment in log.local.segments.all]
    assert "1000 bytes not preallocated" in caplog.text


def test_a_segment_that_cannot_be_trimmed_holds_the_recovery_point_back() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    filesystem.inject("truncate", errno.EIO, f"{0:020d}.log")
    fill(log, 15)
    assert len(log.local.segments.all) == 2
    log.local.flush()
    assert log.local.recovery_point == 0
    filesystem.heal()
    log.local.flush()
    assert log.local.recovery_point == 15
    assert sizes(filesystem)[0] == log.local.segments.all[0].size_bytes
    filesystem.inject("truncate", errno.EIO, ".log")
    fill(log, 1)
    with pytest.raises(KafkaStorageError, match="close failed"):
        log.close()


def test_truncation_leaves_no_zeros_after_the_kept_batches() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    fill(log, 30)
    log.truncate_to(27)
    assert sizes(filesystem) == [segment.size_bytes for segment in log.local.segments.all]
    fill(log, 2)
    log.close()
    assert all_offsets(open_log(filesystem, config=CONFIG, clean=True)) == list(range(29))


@pytest.mark.parametrize("clean", [True, False])
def test_indexes_that_kafka_has_preallocated_are_taken_over_and_trimmed(clean: bool) -> None:
    filesystem = MemoryFilesystem()
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)
    log = open_log(filesystem, config=config)
    fill(log, 40)
    log.close()
    indexes = [entry for entry in filesystem.list_directory(DIRECTORY) if entry.name.endswith("index")]
    before = {entry.name: filesystem.read_bytes(DIRECTORY / entry.name) for entry in indexes}
    for entry in indexes:
        filesystem.open_file(DIRECTORY / entry.name).truncate(10 << 20 if entry.name.endswith(".index") else 10485756)
    again = open_log(filesystem, config=config, clean=clean, recovery_point=40)
    assert all_offsets(again) == list(range(40))
    closed = f"{again.local.segments.all[0].base_offset:020d}.index"
    assert filesystem.read_bytes(DIRECTORY / closed) == before[closed]
    again._snapshot_offset = -1
    again.close()
    assert {name: filesystem.read_bytes(DIRECTORY / name) for name in before} == before
