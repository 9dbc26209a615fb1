"""The moments at which a log begins a new segment, and what rolling does not do yet."""

from __future__ import annotations

import pytest

from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import all_offsets, batch, fill, open_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

SIZE = batch().size_bytes


@pytest.mark.parametrize(("segment_bytes", "expected"), [(3 * SIZE - 1, [0, 2, 4]), (3 * SIZE, [0, 3])])
def test_a_segment_is_filled_to_the_last_byte(segment_bytes: int, expected: list[int]) -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(segment_bytes=segment_bytes))
    fill(log, 5)
    assert [segment.base_offset for segment in log.local.segments.all] == expected


def test_a_batch_larger_than_a_segment_has_one_alone() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(segment_bytes=SIZE))
    log.append_as_leader(batch(value=bytes(500)), leader_epoch=0)
    log.append_as_leader(batch(value=bytes(500)), leader_epoch=0)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 1]


def test_a_time_index_keeps_one_slot_for_the_entry_at_the_end() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(index_interval_bytes=0, segment_index_bytes=60))
    for number in range(20):
        log.append_as_leader(batch(START_MS + number), leader_epoch=0)
    log.close()
    for segment in log.local.segments.all:
        assert len(filesystem.read_bytes(segment.time_index.path)) <= 60
        assert segment.time_index.last()[0] == segment.load_largest_timestamp()
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 5, 10, 15]


def test_time_counts_from_the_largest_timestamp_of_the_first_batch() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(segment_ms=1000))
    log.append_as_leader(batch(START_MS - 5000, START_MS), leader_epoch=0)
    log.append_as_leader(batch(START_MS - 9000, START_MS + 1000), leader_epoch=0)
    assert len(log.local.segments.all) == 1
    log.append_as_leader(batch(START_MS + 1001, START_MS), leader_epoch=0)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 4]


def test_a_clock_that_jumps_a_day_rolls_no_segment_with_record_timestamps() -> None:
    clock = ManualClock()
    log = open_log(MemoryFilesystem(clock.wall_ms), config=LogConfig(segment_ms=3_600_000), clock=clock)
    for jump in (86_400_000, -2 * 86_400_000):
        clock.jump_wall(jump)
        log.append_as_leader(batch(START_MS), leader_epoch=0)
    assert len(log.local.segments.all) == 1


def test_rolling_makes_nothing_durable_and_moves_no_recovery_point() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=2 * SIZE))
    syncs = filesystem.syncs
    fill(log, 5)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 2, 4]
    assert (log.local.recovery_point, log.local.flushed_offset, filesystem.syncs) == (0, 0, syncs)
    ends = [log.local.unflushed_segments_end]
    log.local.flush(ends[0])
    ends.append(log.local.unflushed_segments_end)
    assert (ends, log.local.recovery_point) == ([4, None], 4)
    filesystem.crash()
    again = open_log(filesystem, config=LogConfig(segment_bytes=2 * SIZE), recovery_point=4, power_loss=True)
    assert all_offsets(again) == [0, 1, 2, 3]
