from __future__ import annotations

import errno
from pathlib import Path

import pytest

from klamm.protocol.errors import (
    CorruptMessage,
    InvalidProducerEpoch,
    KafkaStorageError,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from klamm.protocol.records.batch import batches, read_header
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log import segment_list
from klamm.storage.log.durability import FlushNotTried
from klamm.storage.log.local_log import LocalLog
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.results import NOTHING, AppendResult
from klamm.storage.log.segment import KNOWN_READS
from klamm.storage.recovery import loader
from tests.storage.batches import (
    DIRECTORY,
    EVERYTHING,
    all_offsets,
    all_records,
    batch,
    delete_unreachable,
    fill,
    open_log,
    read_bytes,
)
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def names(filesystem: MemoryFilesystem, directory: Path = DIRECTORY) -> set[str]:
    return {entry.name for entry in filesystem.list_directory(directory)}


def test_append_stamps_offset_and_epoch_in_place() -> None:
    log = open_log(MemoryFilesystem())
    first = log.append_as_leader(batch(START_MS, START_MS), leader_epoch=3)
    second = log.append_as_leader(batch(), leader_epoch=3)
    assert (first.base_offset, first.last_offset, first.duplicate) == (0, 1, False)
    assert (second.base_offset, second.last_offset) == (2, 2)
    header = read_header(read_bytes(log, 2))
    assert (header.base_offset, header.leader_epoch) == (2, 3)
    assert log.log_end_offset == 3


def test_read_begins_with_the_batch_that_holds_the_offset() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 3, records_each=5)
    assert read_header(read_bytes(log, 7)).base_offset == 5


def test_read_at_the_end_is_empty_and_beyond_is_an_error() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 2)
    assert log.read_records(2, max_bytes=100, max_offset=EVERYTHING) == NOTHING
    with pytest.raises(OffsetOutOfRange, match=r"t-0: offset 3 not in \[0, 2\]"):
        log.read_records(3, max_bytes=100, max_offset=EVERYTHING)
    with pytest.raises(OffsetOutOfRange):
        log.read_records(-1, max_bytes=100, max_offset=EVERYTHING)


def test_read_gives_the_first_batch_whole_however_large() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 2, value=bytes(1000))
    size = read_header(read_bytes(log, 0)).size_bytes
    assert log.read_records(0, max_bytes=1, max_offset=EVERYTHING).size == size
    assert log.read_records(0, max_bytes=0, max_offset=EVERYTHING).size == size


def test_read_without_min_one_is_cut_at_max_bytes() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 2, value=bytes(1000))
    cut = log.read_records(0, max_bytes=10, max_offset=EVERYTHING, min_one=False)
    assert (cut.size, cut.truncated) == (10, True)
    assert log.read_records(0, max_bytes=0, max_offset=EVERYTHING, min_one=False).region is None


def test_cuts_of_many_lengths_are_not_all_kept() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(index_interval_bytes=100))
    fill(log, 10, value=bytes(1000))
    for max_bytes in range(2000, 9000):
        found = log.read_records(0, max_bytes=max_bytes, max_offset=EVERYTHING)
        assert found.region is not None
        *_, (_, last) = batches(found.region.read())
        assert found.next_offset == last.next_offset
    (segment,) = log.local.segments.all
    assert len(segment._next_reads) <= len(segment._next_offsets) <= KNOWN_READS


def test_a_segment_that_is_closed_forgets_its_readers() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(index_interval_bytes=100))
    fill(log, 10, value=bytes(1000))
    segment = log.local.segments.all[0]
    log.read_records(0, max_bytes=5000, max_offset=EVERYTHING)
    log.read_records(9, max_bytes=5000, max_offset=EVERYTHING)
    assert segment._next_reads and segment._next_offsets
    log.roll()
    assert not segment._next_reads and not segment._next_offsets


def test_few_closed_segments_know_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_list, "CLOSED_READS", segment_list.ClosedReads(3))
    log = open_log(MemoryFilesystem(), config=LogConfig(segment_bytes=5000, index_interval_bytes=100))
    fill(log, 40, value=bytes(1000))
    assert len(log.local.segments.all) == 10
    for segment in log.local.segments.all:
        assert log.read_records(segment.base_offset, max_bytes=2500, max_offset=EVERYTHING).size == 2500
    knowing = [
        segment.base_offset for segment in log.local.segments.all if segment._next_reads or segment._next_offsets
    ]
    assert knowing == [
        segment.base_offset for segment in log.local.segments.all[-4:]
    ]  # the active one and the last three
    assert all_offsets(log) == list(range(40))


def test_reads_that_go_on_where_the_last_was_cut_give_the_same_bytes() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(index_interval_bytes=100))
    fill(log, 40, records_each=3, value=bytes(60))

    def in_steps(max_bytes: int) -> bytes:
        data, offset = b"", 0
        while offset < log.log_end_offset:
            found = log.read_records(offset, max_bytes=max_bytes, max_offset=EVERYTHING)
            assert found.region is not None
            content = found.region.read()
            whole = [(at, header) for at, header in batches(content) if at + header.size_bytes <= len(content)]
            assert found.next_offset == whole[-1][1].next_offset
            data += content[: whole[-1][0] + whole[-1][1].size_bytes]
            offset = found.next_offset
        return data

    for max_bytes in (300, 500, 1000, 1001, 1500):
        assert in_steps(max_bytes) == read_bytes(log, 0)
    log.truncate_to(31)  # remembered positions of batches above it are invalid now
    for size in (10, 200, 30):
        fill(log, 4, records_each=2, value=bytes(size))
    for max_bytes in (300, 500, 1000, 1001, 1500):
        assert in_steps(max_bytes) == read_bytes(log, 0)


def test_read_stops_below_max_offset() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 5)
    data = read_bytes(log, 1, max_offset=3)
    assert [header.base_offset for _, header in batches(data)] == [1, 2]
    assert read_bytes(log, 3, max_offset=3) == b""


def test_rolls_by_size_and_reads_across_segments() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    fill(log, 30)
    assert len(log.local.segments.all) > 3
    assert all(segment.size_bytes <= 400 for segment in log.local.segments.all)
    assert all_offsets(log) == list(range(30))


def test_rolls_by_record_time_of_the_first_batch() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(segment_ms=1000))
    log.append_as_leader(batch(START_MS), leader_epoch=0)
    log.append_as_leader(batch(START_MS + 1000), leader_epoch=0)
    assert len(log.local.segments.all) == 1
    log.append_as_leader(batch(START_MS + 1001), leader_epoch=0)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 2]


def test_rolls_by_age_when_records_have_no_timestamp() -> None:
    clock = ManualClock()
    log = open_log(MemoryFilesystem(clock.wall_ms), config=LogConfig(segment_ms=1000), clock=clock)
    log.append_as_leader(batch(-1), leader_epoch=0)
    clock.advance(1001)
    log.append_as_leader(batch(-1), leader_epoch=0)
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 1]


def test_roll_jitter_makes_segments_roll_earlier() -> None:
    log = loader.open_log(
        loader.LogSource(
            DIRECTORY,
            LogConfig(segment_ms=1000, segment_jitter_ms=100),
            clock=ManualClock(),
            filesystem=MemoryFilesystem(),
            clean=True,
            jitter=lambda limit: limit - 1,
        )
    )
    log.append_as_leader(batch(START_MS), leader_epoch=0)
    log.append_as_leader(batch(START_MS + 902), leader_epoch=0)
    assert len(log.local.segments.all) == 2


def test_rolls_when_the_index_is_full() -> None:
    log = open_log(MemoryFilesystem(), config=LogConfig(index_interval_bytes=0, segment_index_bytes=40))
    fill(log, 20)
    assert all(segment.offset_index.count <= 5 for segment in log.local.segments.all)
    assert len(log.local.segments.all) >= 3
    assert all_offsets(log) == list(range(20))


def test_an_empty_active_segment_never_rolls() -> None:
    log = open_log(MemoryFilesystem())
    log.roll()
    log.roll()
    assert len(log.local.segments.all) == 1
    fill(log, 1)
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log.local.segments.all] == [0, 1]


DAY_MS = 86_400_000


def retried(log: Log, *timestamps: int) -> bool:
    """Return whether the first batch of producer 7 is detected as a duplicate."""
    return log.append_as_leader(batch(*timestamps, producer_id=7, epoch=0, sequence=0), leader_epoch=0).duplicate


@pytest.mark.parametrize("age_ms", [0, DAY_MS, 400 * DAY_MS])
def test_a_batch_of_any_age_that_is_sent_again_after_a_clean_restart_is_a_duplicate(age_ms: int) -> None:
    clock = ManualClock()
    filesystem = MemoryFilesystem(clock.wall_ms)
    log = open_log(filesystem, clock=clock)
    assert not retried(log, START_MS - age_ms)
    log.close()
    clock.advance(DAY_MS // 2)
    for _ in range(3):
        log = open_log(filesystem, clock=clock, clean=True)
        assert retried(log, START_MS - age_ms)
        clock.advance(DAY_MS // 4)
        log.forget_idle_producers()
        log.close()


@pytest.mark.parametrize("days", [1, -1, 400])
@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_jumps_makes_no_log_forget_its_producers(days: int, restart: bool) -> None:
    clock = ManualClock()
    filesystem = MemoryFilesystem(clock.wall_ms)
    log = open_log(filesystem, clock=clock)
    assert not retried(log)
    log.forget_idle_producers()
    if restart:
        log.close()
    clock.jump_wall(days * DAY_MS)
    if restart:
        log = open_log(filesystem, clock=clock, clean=True)
    clock.advance(3_600_000)
    log.forget_idle_producers()
    log.roll()
    assert retried(log)
    clock.advance(DAY_MS)
    log.forget_idle_producers()
    assert not retried(log), "it was silent for a day"


def test_producers_that_are_silent_for_long_do_not_outlive_restarts() -> None:
    clock = ManualClock()
    filesystem = MemoryFilesystem(clock.wall_ms)
    log = open_log(filesystem, clock=clock)
    log.append_as_leader(batch(START_MS - DAY_MS, producer_id=7, epoch=0, sequence=0), leader_epoch=0)
    for _ in range(3):
        fill(log, 1)
        log.forget_idle_producers()
        assert len(log.producers) == 1
        clock.advance(DAY_MS // 3)
        log.forget_idle_producers()
        log.close()
        log = open_log(filesystem, clock=clock, clean=True)
        log.forget_idle_producers()
    assert len(log.producers) == 0


def test_a_duplicate_is_answered_with_its_first_offsets() -> None:
    log = open_log(MemoryFilesystem())
    for sequence in range(7):
        log.append_as_leader(batch(producer_id=9, epoch=0, sequence=sequence), leader_epoch=0)
    again = log.append_as_leader(batch(producer_id=9, epoch=0, sequence=2), leader_epoch=0)
    assert (again.base_offset, again.last_offset, again.duplicate) == (2, 2, True)
    assert log.log_end_offset == 7
    with pytest.raises(OutOfOrderSequenceNumber):  # the sixth last is not kept
        log.append_as_leader(batch(producer_id=9, epoch=0, sequence=1), leader_epoch=0)


def test_five_batches_are_known_again_after_a_clean_restart() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    for sequence in range(7):
        log.append_as_leader(batch(producer_id=9, epoch=0, sequence=sequence), leader_epoch=0)
        log.append_as_leader(batch(producer_id=8, epoch=0, sequence=sequence), leader_epoch=0)
    log.close()
    again = open_log(filesystem, clean=True)
    for sequence in range(2, 7):
        result = again.append_as_leader(batch(producer_id=9, epoch=0, sequence=sequence), leader_epoch=0)
        assert result == AppendResult(sequence * 2, sequence * 2, -1, True)
    with pytest.raises(OutOfOrderSequenceNumber):
        again.append_as_leader(batch(producer_id=9, epoch=0, sequence=1), leader_epoch=0)
    assert again.append_as_leader(batch(producer_id=9, epoch=0, sequence=7), leader_epoch=0).base_offset == 14


def test_sequence_gaps_and_old_epochs_are_refused() -> None:
    log = open_log(MemoryFilesystem())
    log.append_as_leader(batch(producer_id=9, epoch=1, sequence=0), leader_epoch=0)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append_as_leader(batch(producer_id=9, epoch=1, sequence=2), leader_epoch=0)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append_as_leader(batch(producer_id=9, epoch=2, sequence=1), leader_epoch=0)
    with pytest.raises(InvalidProducerEpoch):
        log.append_as_leader(batch(producer_id=9, epoch=0, sequence=1), leader_epoch=0)
    assert log.append_as_leader(batch(producer_id=9, epoch=2, sequence=0), leader_epoch=0).base_offset == 1


def test_flush_moves_the_recovery_point_after_the_sync_only() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    assert log.local.unflushed_messages == 3
    filesystem.inject("sync", errno.EIO)
    with pytest.raises(KafkaStorageError, match="flush failed"):
        log.local.flush()
    assert log.local.recovery_point == 0


@pytest.mark.parametrize(("operation", "suffix"), [("open", "leader-epoch-checkpoint"), ("sync_directory", "t-0")])
def test_a_flush_without_a_descriptor_was_not_tried(operation: str, suffix: str) -> None:
    """A failed sync would take the log directory offline: its unwritten data may be lost."""
    filesystem, clock = MemoryFilesystem(), ManualClock()
    log = open_log(filesystem, config=LogConfig(flush_ms=1000), clock=clock)
    failed: list[str] = []
    log.local.on_sync_failure = failed.append
    fill(log, 3)
    due_ms = clock.wall_ms() + 1000
    filesystem.inject(operation, errno.EMFILE, suffix, times=2)
    for _ in range(2):
        with pytest.raises(FlushNotTried, match="EMFILE"):
            log.local.flush()
    assert (log.local.offline_reason, failed, log.local.recovery_point) == (None, [], 0)
    assert log.local.flush_due(due_ms)
    assert log.local.flush() == log.local.recovery_point == 3
    assert not log.local.flush_due(due_ms)
    epochs = filesystem.read_bytes(log.leader_epochs.path)
    assert not log.leader_epochs.unsynced
    filesystem.sync_directory(DIRECTORY.parent)
    filesystem.crash()
    assert filesystem.read_bytes(log.leader_epochs.path) == epochs


def test_flush_up_to_an_offset() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    fill(log, 10)
    log.local.flush(4)
    assert log.local.recovery_point == 4
    log.local.flush()
    assert log.local.recovery_point == 10


def test_after_a_failed_fsync_nothing_is_appended_or_synced_any_more() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    failures: list[str] = []
    log.local.on_sync_failure = failures.append
    fill(log, 1)
    filesystem.inject("sync", errno.EIO, ".log", times=1)
    with pytest.raises(KafkaStorageError):
        log.local.flush()
    syncs = filesystem.syncs
    with pytest.raises(KafkaStorageError, match="offline"):
        log.local.flush()
    with pytest.raises(KafkaStorageError, match="offline"):
        fill(log, 1)
    assert filesystem.syncs == syncs
    assert len(failures) == 1
    assert read_bytes(log, 0)


def test_flush_is_due_by_messages_and_by_time() -> None:
    clock = ManualClock()
    log = open_log(MemoryFilesystem(), config=LogConfig(flush_messages=3, flush_ms=1000), clock=clock)
    assert not log.local.flush_due(clock.wall_ms() + 10_000)
    fill(log, 2)
    assert not log.local.flush_due(clock.wall_ms() + 999)
    assert log.local.flush_due(clock.wall_ms() + 1000)
    fill(log, 1)
    assert log.local.flush_due(clock.wall_ms())
    log.local.flush()
    assert not log.local.flush_due(clock.wall_ms() + 10_000)
    fill(log, 1)
    clock.jump_wall(-86_400_000)
    assert not log.local.flush_due(clock.wall_ms())
    assert log.local.flush_due(clock.wall_ms() + 1000)


def test_full_disk_refuses_appends_serves_reads_and_resumes() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 2)
    before = read_bytes(log, 0)
    filesystem.space_bytes = 10
    with pytest.raises(KafkaStorageError, match="ENOSPC"):
        fill(log, 1)
    assert (log.log_end_offset, read_bytes(log, 0)) == (2, before)
    assert log.local.segments.all[0].file.size() == len(before)
    filesystem.space_bytes = None
    fill(log, 1)
    assert all_offsets(log) == [0, 1, 2]


def test_a_full_disk_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    filesystem, clock = MemoryFilesystem(), ManualClock()
    log = open_log(filesystem, clock=clock)
    fill(log, 2)
    filesystem.space_bytes = 10
    counts = []
    for _ in range(3):
        for _ in range(5):
            with pytest.raises(KafkaStorageError, match="ENOSPC"):
                fill(log, 1)
        counts.append(sum("append failed" in record.getMessage() for record in caplog.records))
        clock.advance(1000)
    assert counts == [1, 2, 3]


def test_full_disk_at_roll_keeps_the_old_segment() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    while log.local.segments.all[-1].has_room_for(80, log.log_end_offset, START_MS, START_MS, SMALL):
        fill(log, 1)
    end = log.log_end_offset
    filesystem.inject("create", errno.ENOSPC, ".log")
    with pytest.raises(KafkaStorageError, match="roll failed"):
        fill(log, 1)
    assert (log.log_end_offset, len(log.local.segments.all)) == (end, 1)
    filesystem.heal()
    fill(log, 1)
    assert all_offsets(log) == list(range(end + 1))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot.tmp", "leader-epoch-checkpoint.tmp"])
def test_the_data_path_lives_on_without_room_for_indexes_and_snapshots(suffix: str) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    filesystem.inject("create", errno.ENOSPC, suffix)
    fill(log, 30)
    assert all_offsets(log) == list(range(30))


def test_the_recovery_point_waits_for_indexes_that_cannot_be_written() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    filesystem.inject("create", errno.ENOSPC, ".timeindex")
    fill(log, 30)
    log.local.flush()
    assert log.local.recovery_point == 0
    assert log.local.offline_reason is None
    filesystem.heal()
    log.local.flush()
    assert log.local.recovery_point == 30


def test_records_are_durable_though_indexes_of_older_segments_cannot_be_written() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    log.local.flush()
    filesystem.inject("create", errno.ENOSPC, ".timeindex")
    fill(log, 30)
    assert len(log.local.segments.all) > 2
    assert log.local.flush() == log.local.flushed_offset == 30
    assert log.local.unflushed_messages == 0
    filesystem.crash()
    assert all_offsets(open_log(filesystem, config=SMALL, power_loss=True)) == list(range(30))


def test_a_close_that_an_append_overtakes_is_not_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 3)
    flush = LocalLog.flush

    def overtaken(local: LocalLog, up_to: int | None = None) -> int:
        flushed = flush(local, up_to)
        monkeypatch.undo()
        fill(log, 1)
        return flushed

    monkeypatch.setattr(LocalLog, "flush", overtaken)
    with pytest.raises(KafkaStorageError, match="recovery_point=3 log_end=4"):
        log.close()


def test_a_close_that_cannot_write_an_older_index_is_not_clean() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    filesystem.inject("create", errno.ENOSPC, f"{0:020d}.timeindex")
    fill(log, 30)
    with pytest.raises(KafkaStorageError, match="close failed: recovery_point=0 log_end=30"):
        log.close()
    filesystem.crash()
    assert all_offsets(open_log(filesystem, config=SMALL, power_loss=True)) == list(range(30))


def test_a_close_without_room_for_the_last_index_syncs_the_records() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    filesystem.inject("create", errno.ENOSPC, ".index")
    with pytest.raises(KafkaStorageError, match="close failed"):
        log.close()
    filesystem.crash()
    assert all_offsets(open_log(filesystem, power_loss=True)) == [0, 1, 2]


def test_a_flush_that_cannot_open_a_file_may_be_tried_again() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 10)
    log.local.segments.all[0].close()
    filesystem.inject("open", errno.EMFILE, ".log", times=1)
    with pytest.raises(FlushNotTried, match="EMFILE"):
        log.local.flush()
    assert log.local.flush() == log.local.recovery_point == 10


def test_records_after_the_target_of_a_flush_keep_their_time() -> None:
    clock = ManualClock()
    log = open_log(MemoryFilesystem(), config=LogConfig(flush_ms=1000), clock=clock)
    fill(log, 3)
    log.local.flush(2)  # asked for before the third was appended
    assert log.local.flush_due(clock.wall_ms() + 1000)
    log.local.flush()
    assert not log.local.flush_due(clock.wall_ms() + 1000)


def test_io_error_on_write_stops_appends_but_not_reads() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 1)
    filesystem.inject("write", errno.EIO, ".log", times=1)
    with pytest.raises(KafkaStorageError, match="EIO"):
        fill(log, 1)
    with pytest.raises(KafkaStorageError, match="offline"):
        fill(log, 1)
    assert all_offsets(log) == [0]


def test_io_error_on_read_hits_that_read_only() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 2)
    filesystem.inject("read", errno.EIO, ".log", times=1)
    with pytest.raises(KafkaStorageError, match="read failed"):
        log.read_records(0, max_bytes=100, max_offset=EVERYTHING)
    assert all_offsets(log) == [0, 1]


def test_a_region_outlives_the_deletion_of_its_segment(tmp_path: Path) -> None:
    log = loader.open_log(
        loader.LogSource(tmp_path / "t-0", LogConfig(), clock=ManualClock(), filesystem=OsFilesystem(), clean=True)
    )
    fill(log, 3)
    region = log.read_records(0, max_bytes=EVERYTHING, max_offset=EVERYTHING).region
    assert region is not None
    expected = region.read()
    for segment in log.local.segments.all:
        segment.delete()
    log.local.abandon("deleted")
    assert not list((tmp_path / "t-0").glob("*.log"))
    assert region.read() == expected


def test_truncate_removes_the_batch_that_holds_the_offset() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    fill(log, 20, records_each=3)
    log.truncate_to(31)
    assert log.log_end_offset == 30
    assert all_offsets(log) == list(range(0, 30, 3))
    fill(log, 2, records_each=3)
    assert all_offsets(log) == list(range(0, 36, 3))


def test_truncate_below_the_first_segment_empties_the_log() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 20)
    log.advance_log_start(15)
    delete_unreachable(log)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, log.local.recovery_point) == (3, 3, 0)
    fill(log, 1)
    assert all_offsets(log) == [3]


def test_truncate_forgets_later_producers_and_epochs() -> None:
    log = open_log(MemoryFilesystem())
    log.append_as_leader(batch(producer_id=1, epoch=0, sequence=0), leader_epoch=0)
    log.append_as_leader(batch(producer_id=1, epoch=0, sequence=1), leader_epoch=4)
    log.append_as_leader(batch(producer_id=2, epoch=0, sequence=0), leader_epoch=4)
    log.truncate_to(1)
    assert list(log.leader_epochs) == [(0, 0)]
    assert log.producers.get(2) is None
    assert log.append_as_leader(batch(producer_id=1, epoch=0, sequence=1), leader_epoch=5).base_offset == 1


def test_log_start_hides_records_and_unreachable_segments_go() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 30)
    log.advance_log_start(17)
    with pytest.raises(OffsetOutOfRange):
        log.read_records(16, max_bytes=1, max_offset=EVERYTHING)
    deleted = delete_unreachable(log)
    assert deleted > 0
    assert log.local.segments.all[0].base_offset <= 17
    assert not any(name.startswith(f"{0:020d}") for name in names(filesystem))
    assert all_records(log)[0][0] == 17
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(31)


def test_end_offset_for_epoch() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 2, epoch=0)
    fill(log, 3, epoch=4)
    assert log.leader_epochs.end_offset_for(0, log.log_end_offset) == (0, 2)
    assert log.leader_epochs.end_offset_for(3, log.log_end_offset) == (0, 2)
    assert log.leader_epochs.end_offset_for(4, log.log_end_offset) == (4, 5)
    assert log.leader_epochs.end_offset_for(5, log.log_end_offset) == (-1, -1)


def test_a_clean_reopen_scans_no_segment() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 50)
    log.close()
    filesystem.inject("read", errno.EIO, ".log", skip=1)  # the tail of the active segment, nothing else
    again = open_log(filesystem, config=SMALL, clean=True)
    filesystem.heal()
    assert (again.log_end_offset, again.local.recovery_point) == (50, 50)
    assert all_offsets(again) == list(range(50))


def test_closing_an_untouched_log_again_writes_nothing() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 20)
    log.close()
    again = open_log(filesystem, config=SMALL, clean=True)
    changes = filesystem.changes
    again.close()
    assert filesystem.changes == changes


def test_an_index_that_lies_is_rebuilt_when_it_is_found_out() -> None:
    filesystem = MemoryFilesystem()
    config = LogConfig(index_interval_bytes=100)
    log = open_log(filesystem, config=config)
    fill(log, 50)
    log.roll()
    fill(log, 1)
    log.close()
    path = log.local.segments.all[0].offset_index.path
    entries = bytearray(filesystem.read_bytes(path))
    entries[12:16] = (60_000).to_bytes(4, "big")  # a position far after the end
    filesystem.open_file(path).write_at(entries, 0)
    again = open_log(filesystem, config=config, clean=True)
    assert [read_header(read_bytes(again, offset)).base_offset for offset in range(51)] == list(range(51))


def test_config_changes_take_effect_at_once() -> None:
    log = open_log(MemoryFilesystem())
    fill(log, 5)
    log.local.configure(SMALL)
    fill(log, 10)
    assert len(log.local.segments.all) > 1


def test_a_damaged_batch_length_in_a_sealed_segment_is_an_error() -> None:
    filesystem = MemoryFilesystem()
    config = LogConfig(segment_bytes=400, index_interval_bytes=10_000)
    log = open_log(filesystem, config=config)
    fill(log, 20)
    sealed, following = log.local.segments.all[1:3]
    *_, (position, head) = sealed.batch_headers()
    path = sealed.path
    log.close()
    filesystem.open_file(path).write_at(b"\x7f", position + 8)
    log = open_log(filesystem, config=config, clean=True)
    with pytest.raises(CorruptMessage):
        log.read_records(head.base_offset, max_bytes=10_000, max_offset=EVERYTHING)
    assert read_header(read_bytes(log, following.base_offset)).base_offset == following.base_offset
