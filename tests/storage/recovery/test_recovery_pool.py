"""Logs checked by worker processes after a crash: the result is the same as when this process checks them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.storage import log_loading, paths
from klamm.storage.clock import SystemClock
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import LogLoading, load_logs
from klamm.storage.paths import TopicPartition
from klamm.storage.recovery import recovery_pool
from klamm.storage.recovery.recovery_pool import Progress, unchecked
from tests.storage.batches import all_records, batch
from tests.support.log_dirs import create_log
from tests.support.manual_clock import ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
PARTITIONS = 3
BATCHES = 200
NOW_MS = SystemClock().wall_ms()
"""Workers have the real clock: older producers would have expired."""


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_loading, "LARGE_BYTES", 1)
    monkeypatch.setattr(log_loading, "WORKER_BYTES", 1)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A log dir after the death of its process: some of each log was flushed."""
    path = tmp_path / "data"
    data = LogDir.open(path, node_id=1)
    load_logs(data, lambda _: CONFIG)
    for index in range(PARTITIONS):
        log = create_log(data, "t", index, bytes([index]) * 16, CONFIG)
        for number in range(BATCHES):
            made = batch(NOW_MS + number, producer_id=7 + number % 2, epoch=0, sequence=number // 2, value=b"v" * 200)
            log.append_as_leader(made, leader_epoch=number // 90)
            if number == 60:
                log.local.flush()
                data.checkpoint()
    data.close(clean=False)
    return path


def state(data: LogDir) -> Iterator[object]:
    for partition, log in sorted(data.logs.items(), key=lambda item: item[0].partition):
        yield partition, log.log_end_offset, log.local.recovery_point, log.topic_id, list(log.leader_epochs)
        yield all_records(log)
        yield log.producers.snapshot()
        for segment in log.local.segments.all:
            segment.become_inactive()
            index, times = segment.offset_index, segment.time_index
            yield segment.base_offset, segment.size_bytes, segment.load_largest_timestamp()
            yield [index.entry(at) for at in range(index.count)], [times.entry(at) for at in range(times.count)]


def opened(path: Path, *, workers: int) -> LogDir:
    data = LogDir.open(path, node_id=1)
    loading = LogLoading(data, lambda _: CONFIG)
    assert loading.begin(workers) if workers else True
    loading.load(lambda _: False)
    return data


def test_workers_recover_what_the_caller_would(crashed: Path, caplog: pytest.LogCaptureFixture) -> None:
    torn = crashed / "t-1"
    active = max(torn.glob("*.log"))
    active.write_bytes(active.read_bytes() + b"torn")
    other = crashed.with_name("other")
    shutil.copytree(crashed, other)
    with caplog.at_level("INFO"):
        mine, theirs = opened(other, workers=0), opened(crashed, workers=2)
    assert list(state(theirs)) == list(state(mine))
    assert [log.log_end_offset for log in theirs.logs.values()] == [BATCHES] * PARTITIONS
    assert all(log.local.recovery_point <= 61 for log in theirs.logs.values())
    assert theirs.recovery.remaining_logs == theirs.recovery.remaining_bytes == 0
    assert sum("t-1: torn write cut" in record.message for record in caplog.records) == 2, "the workers' log is ours"
    for data in (mine, theirs):
        for log in data.logs.values():
            again = batch(NOW_MS, producer_id=8, epoch=0, sequence=BATCHES // 2 - 1)
            assert log.append_as_leader(again, leader_epoch=2).duplicate
        assert data.close()
    assert LogDir.open(crashed, node_id=1).was_clean


def test_one_damaged_log_is_offline_alone(crashed: Path) -> None:
    victim = sorted((crashed / "t-2").glob("*.log"))[-2]
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    data = opened(crashed, workers=2)
    assert set(data.logs) == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert "later segments follow" in data.offline[TopicPartition("t", 2)].reason
    assert data.offline[TopicPartition("t", 2)].topic_id == bytes([2]) * 16
    assert victim.read_bytes() == content


def test_after_a_power_cut_what_is_cut_is_kept(crashed: Path) -> None:
    (crashed / paths.BOOT).write_bytes(b"another\n")
    victim = sorted((crashed / "t-2").glob("*.log"))[-2]
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    data = opened(crashed, workers=1)
    end = data.logs[TopicPartition("t", 2)].log_end_offset
    assert 61 < end < BATCHES
    kept = list(crashed.with_name("data.cut").rglob("*.from-*"))
    assert len(kept) == 2


@pytest.mark.parametrize("command", ["pass", "print('{'); input()", "print('7'); input()"])
def test_what_a_worker_cannot_do_the_caller_does(crashed: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(recovery_pool, "COMMAND", (sys.executable, "-c", command))
    data = opened(crashed, workers=2)
    assert [log.log_end_offset for log in data.logs.values()] == [BATCHES] * PARTITIONS


def test_closing_ends_the_workers(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_pool, "COMMAND", (sys.executable, "-c", "while True: input()"))
    data = LogDir.open(crashed, node_id=1)
    loading = LogLoading(data, lambda _: CONFIG)
    assert loading.begin(2)
    loading.close()
    data.leave()
    opened(crashed, workers=0)


def test_a_worker_ends_with_its_broker(crashed: Path) -> None:
    process = subprocess.Popen(recovery_pool.COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_nothing_is_begun_after_a_clean_close(crashed: Path) -> None:
    assert opened(crashed, workers=0).close()
    data = LogDir.open(crashed, node_id=1)
    loading = LogLoading(data, lambda _: CONFIG)
    assert not loading.begin(2)
    loading.load(lambda _: False)
    assert data.close()


def test_only_segments_from_the_one_with_the_recovery_point_on_are_counted() -> None:
    filesystem = MemoryFilesystem()
    directory = Path("/d/t-0")
    filesystem.make_directories(directory)
    for base_offset, size in ((0, 10), (100, 20), (200, 30)):
        filesystem.open_file(paths.offset_file(directory, base_offset, ".log"), create=True).write_at(bytes(size), 0)
        filesystem.open_file(paths.offset_file(directory, base_offset, ".index"), create=True).write_at(bytes(8), 0)
    assert unchecked(filesystem, directory, 0) == (3, 60)
    assert unchecked(filesystem, directory, 150) == (2, 50)
    assert unchecked(filesystem, directory, 200) == (2, 50), "the one before may have been rolled since the flush"
    assert unchecked(filesystem, directory, 201) == (1, 30)


def test_progress_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    progress = Progress("/d", clock)
    progress.begin(2, 3000)
    progress.log_begun(0, 2)
    with caplog.at_level("INFO"):
        progress.segment_done(0, 1000)
        assert not caplog.records
        clock.advance(11_000)
        progress.segment_done(0, 1000)
        progress.segment_done(0, 500)
    assert [record.message for record in caplog.records] == ["/d: recovery: logs=0 of 2 size_bytes=2000 of 3000"]
    assert (progress.remaining_logs, progress.remaining_bytes, progress.remaining_segments) == (2, 500, {0: 0})
    progress.log_done(0)
    progress.log_done()
    assert progress.remaining_logs == 0
