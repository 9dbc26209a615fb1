"""A log that moves to another log directory while it is appended to, and a crash at every step of it (row 32)."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from klamm.storage.copies import future_log
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.faults.campaign import scaled
from tests.storage.batches import all_offsets, batch, delete_unreachable, end_transaction, transact
from tests.storage.read_committed import read_committed
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
KEY = TopicPartition("t", 0)
SEEDS = scaled(1, 20)


class Disks:
    """Two log directories."""

    def __init__(self, filesystem: MemoryFilesystem) -> None:
        self.filesystem = filesystem
        self.log_dirs = [self._open(name) for name in ("a", "b")]

    def _open(self, name: str) -> LogDir:
        log_dir = LogDir.open(
            Path("/") / name, node_id=1, cluster_id="c", clock=ManualClock(), filesystem=self.filesystem
        )
        load_logs(log_dir, lambda topic: CONFIG)
        return log_dir

    def settle(self) -> Log | None:
        """Do the work of a broker's start."""
        holders = [each for each in self.log_dirs if KEY in each.logs or KEY in each.offline]
        if len(holders) > 1:
            assert future_log.settle(KEY, holders)
        found = [each.logs[KEY] for each in self.log_dirs if KEY in each.logs]
        assert len(found) <= 1
        return found[0] if found else None


class Known:
    """The written batches, the durable ones, and the log start."""

    def __init__(self) -> None:
        self.written = self.attempted = self.durable = self.log_start = self.log_start_attempted = 0


def append(log: Log, known: Known, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        known.attempted = offset + 1
        log.append_as_leader(batch(START_MS + offset, producer_id=5, epoch=0, sequence=offset), leader_epoch=epoch)
        known.written = offset + 1


def flush(log: Log, known: Known) -> None:
    log.local.flush()
    known.durable = known.written


def delete_records(log: Log, known: Known, offset: int, log_dir: LogDir) -> None:
    """Delete records as `broker.retention` does; the answer follows when the log start is durable."""
    known.log_start_attempted = offset
    log.advance_log_start(offset)
    log_dir.checkpoint()
    known.log_start = offset
    delete_unreachable(log)


def life(filesystem: MemoryFilesystem, known: Known) -> None:
    disks = Disks(filesystem)
    source, target = disks.log_dirs
    log = create_log(source, "t", 0, bytes(16), CONFIG)
    append(log, known, 20)
    flush(log, known)
    delete_records(log, known, 2, source)
    copy = future_log.begin(log, KEY, target)
    while copy.copy_some(150):
        append(log, known, 1, epoch=1)
        if known.log_start < 9:
            delete_records(log, known, known.log_start + 1, source)
    flush(log, known)
    epochs = log.leader_epochs.content()
    copy.open(epochs, source, target)
    append(log, known, 6, epoch=2)
    delete_records(log, known, 11, source)
    while copy.catch_up(200):
        pass
    assert copy.log is not None
    copy.log.local.flush()
    append(log, known, 3, epoch=3)
    flush(log, known)
    delete_records(log, known, 13, source)
    assert not copy.is_stale
    while copy.catch_up(200):
        pass
    taken = copy.replace_current_log()
    source.hand_over(KEY)
    target.take_in(KEY, taken)
    append(taken, known, 3, epoch=4)
    flush(taken, known)
    for log_dir in disks.log_dirs:  # the scheduler, just now
        log_dir.checkpoint()
    delete_records(taken, known, 16, target)
    future_log.finish(copy, KEY, source, target)
    append(taken, known, 7, epoch=4)
    flush(taken, known)
    for log_dir in disks.log_dirs:
        assert log_dir.close()


def check(filesystem: MemoryFilesystem, known: Known, least: int) -> None:
    disks = Disks(filesystem)
    log = disks.settle()
    if log is None:
        assert least == 0
        return
    assert least <= log.log_end_offset <= known.attempted
    assert known.log_start <= log.log_start_offset <= known.log_start_attempted
    assert all_offsets(log) == list(range(log.log_start_offset, log.log_end_offset))
    end = log.log_end_offset
    if end > log.log_start_offset:
        last = log.append_as_leader(batch(START_MS, producer_id=5, epoch=0, sequence=end - 1), leader_epoch=9)
        assert (last.duplicate, last.base_offset) == (True, end - 1)
        assert log.leader_epochs.epoch_of(end - 1) >= 0
    assert (
        log.append_as_leader(batch(START_MS, producer_id=5, epoch=0, sequence=end), leader_epoch=9).base_offset == end
    )
    for log_dir in disks.log_dirs:
        assert log_dir.close()
    again = Disks(filesystem)
    found = again.settle()
    assert found is not None and found.log_end_offset == end + 1


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("fate", ["kill", "cut", "torn"])
def test_row_32_a_crash_at_every_step_of_a_move_loses_nothing(fate: str) -> None:
    filesystem, known = MemoryFilesystem(), Known()
    seen: set[tuple[bytes, int]] = set()

    def crash() -> None:
        for seed in range(SEEDS if fate == "torn" else 1):
            disk = filesystem.clone()
            if fate == "kill":
                disk.kill()
            else:
                disk.crash(random.Random(f"{filesystem.changes} {seed}") if fate == "torn" else None)
            least = known.written if fate == "kill" else known.durable
            if (state := (disk.fingerprint(), least)) in seen:
                continue
            seen.add(state)
            try:
                check(disk, known, least)
            except BaseException as error:
                error.add_note(f"changes={filesystem.changes} seed={seed}")
                raise

    filesystem.before_change = crash
    life(filesystem, known)
    print(f"{fate}: {len(seen)} distinct states")
    assert len(seen) > (30 if fate == "cut" else 300), len(seen)


def test_two_directories_without_a_marker_are_not_settled() -> None:
    filesystem = MemoryFilesystem()
    disks = Disks(filesystem)
    for log_dir in disks.log_dirs:
        append(create_log(log_dir, "t", 0, bytes(16), CONFIG), Known(), 3)
    assert not future_log.settle(KEY, disks.log_dirs)
    assert all(KEY in log_dir.logs for log_dir in disks.log_dirs)


def test_a_copy_of_segments_that_were_truncated_is_stale() -> None:
    disks = Disks(MemoryFilesystem())
    source, target = disks.log_dirs
    log = create_log(source, "t", 0, bytes(16), CONFIG)
    append(log, Known(), 20)
    copy = future_log.begin(log, KEY, target)
    while copy.copy_some(1 << 20):
        pass
    assert not copy.is_stale
    log.truncate_to(0)
    append(log, Known(), 20)
    assert copy.is_stale
    future_log.drop(copy, target)
    assert not [entry.name for entry in target.filesystem.list_directory(target.path) if entry.is_directory]


def test_a_source_that_rolls_before_the_copy_is_opened_is_followed() -> None:
    disks = Disks(MemoryFilesystem())
    source, target = disks.log_dirs
    log = create_log(source, "t", 0, bytes(16), CONFIG)
    append(log, Known(), 20)
    copy = future_log.begin(log, KEY, target)
    while copy.copy_some(1 << 20):
        pass
    before = len(log.local.segments.all)
    append(log, Known(), 20)
    assert len(log.local.segments.all) > before + 2
    copy.open(log.leader_epochs.content(), source, target)
    assert not copy.is_stale
    while copy.catch_up(200):
        pass
    assert not copy.is_stale
    assert all_offsets(copy.replace_current_log()) == list(range(40))


@pytest.mark.parametrize("stop", [False, True])
def test_retention_may_overtake_the_copy(stop: bool) -> None:
    """Segments that are deleted uncopied leave no hole: a start after a crash would take it for a loss."""
    filesystem = MemoryFilesystem()
    disks = Disks(filesystem)
    source, target = disks.log_dirs
    log = create_log(source, "t", 0, bytes(16), CONFIG)
    append(log, Known(), 40)
    log.local.flush()
    copy = future_log.begin(log, KEY, target)
    while copy.next_offset < log.local.segments.all[2].base_offset:
        copy.copy_some(1 << 20)
    start = log.local.segments.all[5].base_offset
    delete_records(log, Known(), start, source)
    while copy.copy_some(1 << 20):
        pass
    copy.open(log.leader_epochs.content(), source, target)
    if stop:
        future_log.set_aside(copy, target)
        assert [entry.name for entry in filesystem.list_directory(target.path) if entry.name.endswith("-future")]
    filesystem.kill()
    settled = Disks(filesystem).settle()
    assert settled is not None
    assert all_offsets(settled) == list(range(start, 40))


def test_aborted_transactions_stay_aborted_in_the_copy_and_after_a_restart() -> None:
    """Transactions in complete segments, in the active one as it is copied, and in batches that follow."""
    filesystem = MemoryFilesystem()
    disks = Disks(filesystem)
    source, target = disks.log_dirs
    log = create_log(source, "t", 0, bytes(16), CONFIG)
    sequences: dict[int, int] = {}

    def transactions(count: int) -> None:
        for number in range(count):
            producer_id = number % 3
            transact(log, producer_id, 0, sequences.get(producer_id, 0))
            sequences[producer_id] = sequences.get(producer_id, 0) + 1
            log.append_as_leader(batch(), leader_epoch=0)
            end_transaction(log, producer_id, 0, is_commit=number % 2 == 0)

    transactions(8)
    filesystem.inject("write", errno.ENOSPC, ".txnindex")  # some entries are in memory only
    transactions(4)
    filesystem.heal()
    copy = future_log.begin(log, KEY, target)
    while copy.copy_some(1 << 20):
        pass
    while not log.local.segments.all[-1].transaction_index.count:
        transactions(2)
    copy.open(log.leader_epochs.content(), source, target)
    transactions(6)
    while copy.catch_up(1 << 20):
        pass
    log.set_high_watermark(log.log_end_offset)
    seen = [record.offset for record in read_committed(log)]
    taken = copy.replace_current_log()
    assert [record.offset for record in read_committed(taken)] == seen
    source.hand_over(KEY)
    target.take_in(KEY, taken)
    taken.local.flush()
    future_log.finish(copy, KEY, source, target)
    for log_dir in disks.log_dirs:
        assert log_dir.close()
    again = Disks(filesystem).settle()
    assert again is not None
    again.set_high_watermark(again.log_end_offset)
    assert [record.offset for record in read_committed(again)] == seen


def test_a_topic_with_too_long_a_future_name_does_not_move() -> None:
    source, target = Disks(MemoryFilesystem()).log_dirs
    log = create_log(source, "x" * 230, 0, bytes(16), CONFIG)
    with pytest.raises(ValueError, match="longer than 255"):
        future_log.begin(log, TopicPartition("x" * 230, 0), target)
