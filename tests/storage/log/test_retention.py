from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.retention import TRUST_AFTER_SECONDS, TrustedTime, breach
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import DIRECTORY, advance, all_offsets, batch, delete_unreachable, open_log, read_bytes
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import Crash, MemoryFilesystem

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CONFIG = LogConfig(segment_bytes=1, retention_ms=1000)  # a segment for each batch
KEY = TopicPartition("t", 0)


def make_log(*timestamps: int, config: LogConfig = CONFIG) -> Log:
    log = open_log(MemoryFilesystem(lambda: START_MS), config=config)
    for timestamp in timestamps:
        log.append_as_leader(batch(timestamp), leader_epoch=0)
    log.high_watermark = log.log_end_offset
    return log


def apply(log: Log, now_ms: int) -> list[int]:
    """Base offsets of the segments that stay."""
    advance(log, now_ms)
    delete_unreachable(log)
    assert log.local.size_bytes == sum(segment.size_bytes for segment in log.local.segments.all)
    return [segment.base_offset for segment in log.local.segments.all]


def test_time_takes_the_oldest_and_stops_at_the_first_that_must_stay() -> None:
    log = make_log(START_MS, START_MS + 1, START_MS + 5000, START_MS + 2, START_MS + 6000)
    assert apply(log, START_MS + 1001) == [1, 2, 3, 4]
    assert apply(log, START_MS + 1002) == [2, 3, 4]
    assert apply(log, START_MS + 1002) == [2, 3, 4]
    assert log.log_start_offset == 2
    assert all_offsets(log) == [2, 3, 4]


def test_a_log_wholly_past_retention_leaves_an_empty_segment_at_its_end() -> None:
    log = make_log(START_MS, START_MS, START_MS)
    assert apply(log, START_MS + DAY_MS) == [3]
    assert (log.log_start_offset, log.log_end_offset, log.local.size_bytes) == (3, 3, 0)
    assert apply(log, START_MS + 9 * DAY_MS) == [3]
    assert log.append_as_leader(batch(), leader_epoch=0).base_offset == 3


@pytest.mark.parametrize("config", [{"retention_ms": -1}, {"deleted": False}, {"deleted": False, "compacted": True}])
def test_time_is_off(config: dict[str, int | bool]) -> None:
    log = make_log(START_MS, START_MS, config=replace(CONFIG, **config))  # type: ignore[arg-type]
    assert apply(log, START_MS + 1000 * DAY_MS) == [0, 1]


def test_delete_and_compact_together_delete() -> None:
    log = make_log(START_MS, START_MS, config=replace(CONFIG, compacted=True))
    assert apply(log, START_MS + DAY_MS) == [2]


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    log = make_log(START_MS, START_MS, START_MS)
    log.high_watermark = 1
    assert apply(log, START_MS + DAY_MS) == [1, 2]
    assert breach(log, START_MS + DAY_MS) is None


def test_a_segment_without_timestamps_goes_by_the_time_of_its_file() -> None:
    log = make_log(-1, START_MS + HOUR_MS)
    assert apply(log, START_MS + 1000) == [0, 1]
    assert apply(log, START_MS + 1001) == [1]


def test_a_timestamp_in_the_future_stays_until_its_time_has_come() -> None:
    log = make_log(START_MS + DAY_MS, START_MS)
    assert apply(log, START_MS + HOUR_MS) == [0, 1]
    assert apply(log, START_MS + DAY_MS + 1001) == [2]


def test_size_leaves_at_least_the_bytes_asked_for() -> None:
    log = make_log(*[START_MS] * 5, config=replace(CONFIG, retention_ms=-1))
    one = log.local.segments.all[0].size_bytes
    log.local.configure(replace(log.local.config, retention_bytes=3 * one - 1))
    assert apply(log, START_MS) == [2, 3, 4]
    log.local.configure(replace(log.local.config, retention_bytes=0))
    assert apply(log, START_MS) == [5]


@pytest.mark.parametrize("deleted", [True, False])
def test_what_is_below_the_log_start_goes_under_any_policy(deleted: bool) -> None:
    log = make_log(*[START_MS] * 4, config=replace(CONFIG, retention_ms=-1, deleted=deleted, compacted=not deleted))
    log.advance_log_start(2)
    assert apply(log, START_MS) == [2, 3]


@given(
    times=st.lists(st.integers(-1, 40), max_size=12),
    retention_ms=st.integers(-1, 40),
    retention_batches=st.integers(-1, 12),
    watermark=st.integers(0, 12),
)
def test_against_a_model(times: list[int], retention_ms: int, retention_batches: int, watermark: int) -> None:
    now_ms = START_MS + 40
    log = make_log(*[START_MS + time if time >= 0 else -1 for time in times])
    one = log.local.segments.all[0].size_bytes
    log.high_watermark = watermark = min(watermark, len(times))
    retention_bytes = retention_batches * one if retention_batches >= 0 else -1
    log.local.configure(replace(CONFIG, retention_ms=retention_ms, retention_bytes=retention_bytes))
    gone = 0
    while gone < watermark and retention_ms >= 0 and 40 - max(0, times[gone]) > retention_ms:
        gone += 1
    if retention_batches >= 0:
        gone = max(gone, min(watermark, len(times) - retention_batches))
    kept = apply(log, now_ms)
    assert kept == (list(range(gone, len(times))) or [len(times)])
    assert all_offsets(log) == list(range(gone, len(times)))


def test_files_are_renamed_first_and_readers_go_on() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    for _ in range(3):
        log.append_as_leader(batch(), leader_epoch=0)
    region = log.read_records(0, max_bytes=1000, max_offset=3).region
    assert region is not None
    before = region.read()
    log.advance_log_start(2)
    removed = log.detach_unreachable()
    files = log.local.retire_segments(removed)
    names = {entry.name for entry in filesystem.list_directory(DIRECTORY)}
    assert f"{0:020d}.log.deleted" in names and f"{0:020d}.log" not in names
    assert {path.name for path in files} <= names
    log.local.unlink_files(files)
    log.local.unlink_files(files)
    assert not [entry for entry in filesystem.list_directory(DIRECTORY) if entry.name.endswith(".deleted")]
    assert region.read() == before
    assert read_bytes(log, 2)


def life(filesystem: MemoryFilesystem, clock: ManualClock) -> None:
    log_dir = start(filesystem, clock)
    log = log_dir.logs.get(KEY) or create_log(log_dir, "t", 0, bytes(16), CONFIG)
    for number in range(4):
        log.append_as_leader(batch(START_MS + number * 400), leader_epoch=number // 2)
    log.high_watermark = log.log_end_offset
    log.local.flush()
    clock.advance(2000)
    advance(log, clock.wall_ms())
    log_dir.checkpoint()
    files = log.local.retire_segments(log.detach_unreachable())
    log_dir.checkpoint()
    log.local.unlink_files(files)
    log_dir.checkpoint()


def start(filesystem: MemoryFilesystem, clock: ManualClock) -> LogDir:
    log_dir = LogDir.open(DIRECTORY.parent, node_id=1, cluster_id="c", clock=clock, filesystem=filesystem)
    load_logs(log_dir, lambda topic: CONFIG)
    return log_dir


@pytest.mark.parametrize("fate", ["kill", "cut", "torn"])
def test_a_crash_at_every_step_is_finished_later(fate: str) -> None:
    filesystem = MemoryFilesystem()
    before = filesystem.changes
    life(filesystem, ManualClock())
    for changes in range(filesystem.changes - before):
        filesystem, clock = MemoryFilesystem(), ManualClock()
        filesystem.crash_after(changes)
        with pytest.raises(Crash):
            life(filesystem, clock)
        filesystem.kill() if fate == "kill" else filesystem.crash(random.Random(changes) if fate == "torn" else None)
        log_dir = start(filesystem, clock)
        assert log_dir.offline == {}
        log = log_dir.logs.get(KEY)
        if log is None:
            continue
        assert all_offsets(log) == list(range(log.log_start_offset, log.log_end_offset))
        assert not [
            entry for entry in filesystem.list_directory(log.local.directory) if entry.name.endswith(".deleted")
        ]
        log.high_watermark = log.log_end_offset
        clock.advance(DAY_MS)
        advance(log, clock.wall_ms())
        log_dir.checkpoint()
        delete_unreachable(log)
        assert log.local.size_bytes == 0


def test_a_log_start_that_retention_moved_does_not_come_back() -> None:
    """A power cut may bring the files back; the log start is known."""
    filesystem, clock = MemoryFilesystem(), ManualClock()
    log_dir = start(filesystem, clock)
    log = create_log(log_dir, "t", 0, bytes(16), CONFIG)
    for _ in range(4):
        log.append_as_leader(batch(), leader_epoch=0)
    log.advance_log_start(3)
    log_dir.checkpoint()
    log.detach_unreachable()
    log_dir.checkpoint()
    filesystem.crash()
    assert start(filesystem, clock).logs[KEY].log_start_offset == 3


def test_row_31_a_clock_that_jumps_ahead_is_believed_after_an_hour() -> None:
    clock = ManualClock()
    time = TrustedTime(clock)
    clock.advance(HOUR_MS)
    assert time.now_ms() == START_MS + HOUR_MS
    clock.jump_wall(DAY_MS)
    clock.advance(5000)
    assert time.now_ms() == START_MS + HOUR_MS + 5000
    clock.advance(int(TRUST_AFTER_SECONDS) * 1000 - 1)
    assert time.now_ms() == clock.wall_ms() - DAY_MS
    clock.advance(1)
    assert time.now_ms() == clock.wall_ms()
    clock.advance(1000)
    assert time.now_ms() == clock.wall_ms()


def test_a_clock_that_jumps_ahead_and_back_was_never_believed() -> None:
    clock = ManualClock()
    time = TrustedTime(clock)
    clock.jump_wall(DAY_MS)
    assert time.now_ms() == START_MS
    clock.jump_wall(-DAY_MS)
    clock.advance(2 * HOUR_MS)
    assert time.now_ms() == clock.wall_ms()
    clock.jump_wall(DAY_MS)
    assert time.now_ms() == clock.wall_ms() - DAY_MS


def test_a_clock_that_is_set_back_is_believed_at_once() -> None:
    clock = ManualClock()
    time = TrustedTime(clock)
    clock.jump_wall(-DAY_MS)
    assert time.now_ms() == START_MS - DAY_MS
