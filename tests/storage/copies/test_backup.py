"""Backup of a partition while its log is in use, and restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.wire import ZERO_UUID
from klamm.storage import paths
from klamm.storage.copies.backup import BackupError, Restored, Taken, restore_partition, take_partition
from klamm.storage.filesystem import make_durable_directory
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import (
    DIRECTORY,
    all_offsets,
    batch,
    delete_unreachable,
    end_transaction,
    fill,
    open_log,
    transact,
    valid,
)
from tests.storage.read_committed import read_committed
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

SNAPSHOT = Path("/snapshot/t-0")
RESTORED = Path("/data/u-0")


def no_pause() -> None:
    raise AssertionError("nothing changes meanwhile")


def take(filesystem: MemoryFilesystem, pause: Callable[[], None] = no_pause, *, log_start_offset: int = 0) -> Taken:
    return take_partition(filesystem, DIRECTORY, SNAPSHOT, log_start_offset=log_start_offset, pause=pause)


def restore(filesystem: MemoryFilesystem, taken: Taken, target: Path = RESTORED) -> Restored:
    return restore_partition(
        filesystem,
        ManualClock(),
        SNAPSHOT,
        target,
        LogConfig(),
        topic_id=ZERO_UUID,
        log_start_offset=taken.log_start_offset,
        end_offset=taken.end_offset,
    )


def contents(filesystem: MemoryFilesystem, directory: Path = SNAPSHOT) -> dict[str, bytes]:
    return {entry.name: filesystem.read_bytes(directory / entry.name) for entry in filesystem.list_directory(directory)}


def reopened(filesystem: MemoryFilesystem) -> Log:
    return open_log(filesystem, clean=True, directory=RESTORED)


def test_a_log_that_is_open_and_goes_on() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    log.roll()
    fill(log, 2, epoch=4)
    taken = take(filesystem)
    assert (taken.log_start_offset, taken.end_offset) == (0, 5)
    before = contents(filesystem)
    assert taken.size.linked_bytes >= len(before["00000000000000000000.log"])
    fill(log, 2, epoch=6)
    log.roll()
    log.truncate_to(1)
    log.close()
    assert contents(filesystem) == before
    assert restore(filesystem, taken).last_epoch == 4
    restored = reopened(filesystem)
    assert all_offsets(restored) == list(range(5))
    assert list(restored.leader_epochs) == [(0, 0), (4, 3)]


def test_a_transaction_index_that_is_lost_afterwards_is_missed() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    transact(log, 7, 0, 0)
    end_transaction(log, 7, 0, is_commit=False)
    for _ in range(3):
        log.roll()
        fill(log, 1)
    taken = take(filesystem)
    filesystem.unlink(SNAPSHOT / "00000000000000000000.txnindex")
    restore(filesystem, taken)
    restored = reopened(filesystem)
    restored.set_high_watermark(restored.log_end_offset)
    assert [record.offset for record in read_committed(restored)] == [2, 3, 4]


def test_what_is_shared_survives_a_power_cut_though_the_broker_has_not_flushed() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    make_durable_directory(filesystem, SNAPSHOT.parent)
    fill(log, 3)
    log.roll()
    fill(log, 2)
    assert log.local.recovery_point == 0
    taken = take(filesystem)
    filesystem.sync_directory(SNAPSHOT.parent)
    before = contents(filesystem)
    filesystem.crash()
    assert contents(filesystem) == before
    assert restore(filesystem, taken).end_offset == 5


def test_it_can_be_restored_again_whatever_happened_to_the_first() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    log.roll()
    fill(log, 2)
    taken = take(filesystem)
    before = contents(filesystem)
    restore(filesystem, taken)
    first = reopened(filesystem)
    fill(first, 3)
    first.truncate_to(1)
    fill(first, 1)
    first.close()
    assert contents(filesystem) == before
    restore(filesystem, taken, RESTORED.with_name("v-0"))
    assert all_offsets(open_log(filesystem, clean=True, directory=RESTORED.with_name("v-0"))) == list(range(5))


@pytest.mark.parametrize("size", [1, 30, 70])
def test_a_batch_that_is_being_written_is_left_out(size: int) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 2)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    content = filesystem.read_bytes(path)
    filesystem.open_file(path).write_at(content[: len(content) // 2][:size], len(content))
    taken = take(filesystem)
    assert taken.end_offset == 2
    assert filesystem.read_bytes(SNAPSHOT / path.name) == content


def test_an_incomplete_batch_is_left_out() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    size = len(filesystem.read_bytes(path))
    filesystem.open_file(path).write_at(bytes(10), size - 10)
    assert take(filesystem).end_offset == 2


def test_damage_in_the_middle_is_not_taken_for_the_end() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    filesystem.open_file(path).write_at(bytes(5), 70)
    with pytest.raises(BackupError, match="damaged at position 0, a good batch follows"):
        take(filesystem)


class Interrupted(MemoryFilesystem):
    """A filesystem that calls a function before the n-th link is made."""

    at = -1
    then: Callable[[], object] = staticmethod(lambda: None)

    def hard_link(self, path: Path, new: Path) -> None:
        self.at -= 1
        if self.at == 0:
            self.then()
        super().hard_link(path, new)


@pytest.mark.parametrize("at", range(1, 7))
def test_retention_gets_in_between(at: int) -> None:
    filesystem = Interrupted()
    log = open_log(filesystem)
    for _ in range(3):
        fill(log, 2)
        log.roll()
    fill(log, 1)
    pauses: list[None] = []

    def retire() -> None:
        log.advance_log_start(4)
        delete_unreachable(log)

    filesystem.at, filesystem.then = at, retire
    taken = take(filesystem, lambda: pauses.append(None))
    restore(filesystem, taken)
    assert all_offsets(reopened(filesystem)) == list(range(taken.log_start_offset, 7))
    assert bool(pauses) == (filesystem.at <= 0)
    assert taken.log_start_offset == (4 if pauses else 0)


def test_what_was_preallocated_is_not_read() -> None:
    """Reading it would take seconds for segments of 1 GiB."""
    reads = []
    for preallocate in (False, True):
        filesystem = MemoryFilesystem()
        fill(open_log(filesystem, config=LogConfig(segment_bytes=16 << 20, preallocate=preallocate)), 3)
        reads.append(-filesystem.reads)
        assert take(filesystem).end_offset == 3
        reads[-1] += filesystem.reads
    without, having = reads
    assert having <= without + 1  # whether a batch lies after the end


def test_another_file_under_the_same_name_is_noticed() -> None:
    filesystem = Interrupted()
    log = open_log(filesystem)
    fill(log, 2)
    log.roll()
    fill(log, 1)
    path = paths.offset_file(DIRECTORY, 0, paths.LOG_SUFFIX)
    pauses: list[None] = []

    def replace() -> None:
        content = filesystem.read_bytes(path)
        filesystem.open_file(path.with_name("new"), create=True).write_at(content, 0)
        filesystem.rename(path.with_name("new"), path)

    filesystem.at, filesystem.then = 2, replace
    taken = take(filesystem, lambda: pauses.append(None))
    assert len(pauses) == 1
    restore(filesystem, taken)


def test_a_partition_that_is_deleted_meanwhile_is_gone() -> None:
    filesystem = Interrupted()
    log = open_log(filesystem)
    fill(log, 2)
    log.roll()
    filesystem.at = 1
    filesystem.then = lambda: filesystem.rename(DIRECTORY, DIRECTORY.with_name("t-0.x-delete"))
    with pytest.raises(FileNotFoundError):
        take(filesystem)


def test_a_compaction_that_does_not_end_is_an_error() -> None:
    filesystem = MemoryFilesystem()
    fill(open_log(filesystem), 1)
    filesystem.open_file(DIRECTORY / paths.COMPACTION_MANIFEST, create=True)
    pauses: list[None] = []
    with pytest.raises(BackupError, match="20 tries"):
        take(filesystem, lambda: pauses.append(None))
    assert len(pauses) == 20


def test_deleted_records_stay_deleted() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 4)
    taken = take(filesystem, log_start_offset=2)
    assert restore(filesystem, taken).log_start_offset == 2


def test_open_transactions_are_aborted_and_producers_remembered() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 2)
    log.roll()
    for producer_id in (7, 3):
        data = encode_batch(
            [Record(0, START_MS, None, b"v")],
            producer_id=producer_id,
            producer_epoch=1,
            base_sequence=0,
            transactional=True,
        )
        guard = log.verifications.begin(producer_id, 1, 0, begins_at_zero=False, now_ms=START_MS)
        log.append_as_leader(valid(data), leader_epoch=0, guard=guard)
    taken = take(filesystem)
    assert taken.end_offset == 4
    done = restore(filesystem, taken)
    assert (done.end_offset, done.aborted_count, done.highest_producer_id) == (6, 2, 7)
    restored = reopened(filesystem)
    restored.set_high_watermark(restored.log_end_offset)
    assert restored.last_stable_offset == restored.log_end_offset == 6
    aborted = restored.local.segments.aborted(0, 6)
    assert sorted((found.producer_id, found.first_offset) for found in aborted) == [(3, 3), (7, 2)]
    assert len(restored.producers) == 2


def test_a_snapshot_that_was_changed_is_refused() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 2)
    log.roll()
    fill(log, 2)
    taken = take(filesystem)
    path = paths.offset_file(SNAPSHOT, 2, paths.LOG_SUFFIX)
    filesystem.open_file(path).truncate(len(filesystem.read_bytes(path)) - 3)
    with pytest.raises(BackupError, match="ends at offset 3, but 4 was taken"):
        restore(filesystem, taken)


@given(steps=st.lists(st.sampled_from(["append", "append", "roll", "take"]), max_size=12))
def test_every_moment_of_a_log_is_a_prefix(steps: list[str]) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    for number, step in enumerate([*steps, "take"]):
        if step == "append":
            log.append_as_leader(batch(START_MS + number, START_MS), leader_epoch=number)
        elif step == "roll":
            log.roll()
        else:
            target, again = Path(f"/snapshot/{number}"), Path(f"/again/{number}-0")
            taken = take_partition(filesystem, DIRECTORY, target, log_start_offset=0, pause=no_pause)
            restore_partition(
                filesystem, ManualClock(), target, again, LogConfig(),
                topic_id=ZERO_UUID, log_start_offset=0, end_offset=taken.end_offset,
            )  # fmt: skip
            assert taken.end_offset == log.log_end_offset
            restored = open_log(filesystem, clean=True, directory=again)
            assert all_offsets(restored) == all_offsets(log)
            assert list(restored.leader_epochs) == list(log.leader_epochs)
