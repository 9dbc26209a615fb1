"""Rows of the fault table that concern one log; the row is in each test's comment."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from klamm.protocol.errors import KafkaStorageError
from klamm.protocol.records.batch import Record as KafkaRecord
from klamm.protocol.records.batch import encode_batch, read_header, stamp
from klamm.storage import paths
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.recovery.loader import LogDamaged
from klamm.storage.recovery.recovery import SEARCH_BYTES, find_batch_after
from tests.storage.batches import DIRECTORY, all_offsets, batch, fill, open_log, read_bytes
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import MemoryFilesystem

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def path_of(base_offset: int, suffix: str = ".log") -> Path:
    return paths.offset_file(DIRECTORY, base_offset, suffix)


def written(
    batch_count: int = 6, *, config: LogConfig | None = None, flush_after: int = 0
) -> tuple[MemoryFilesystem, Log]:
    """A filesystem with a log just after the death of its process."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=config)
    fill(log, flush_after)
    log.local.flush()
    fill(log, batch_count - flush_after)
    filesystem.kill()
    return filesystem, log


def overwrite(filesystem: MemoryFilesystem, path: Path, position: int, data: bytes) -> None:
    filesystem.open_file(path).write_at(data, position)


def position_of(filesystem: MemoryFilesystem, path: Path, index: int) -> int:
    data = filesystem.read_bytes(path)
    position = 0
    for _ in range(index):
        position += read_header(data, position).size_bytes
    return position


def content(filesystem: MemoryFilesystem) -> dict[str, bytes]:
    return {
        entry.name: filesystem.read_bytes(DIRECTORY / entry.name)
        for entry in filesystem.list_directory(DIRECTORY)
        if entry.name.endswith(".log")
    }


def flip(filesystem: MemoryFilesystem, path: Path, position: int) -> None:
    overwrite(filesystem, path, position, bytes([filesystem.read_bytes(path)[position] ^ 0x10]))


@pytest.mark.parametrize("kept", range(1, 75, 7))
def test_row_1_torn_last_batch_is_cut(kept: int) -> None:
    filesystem, _ = written()
    last = position_of(filesystem, path_of(0), 5)
    filesystem.open_file(path_of(0)).truncate(last + kept)
    log = open_log(filesystem)
    assert all_offsets(log) == [0, 1, 2, 3, 4]
    assert filesystem.open_file(path_of(0)).size() == last
    fill(log, 1)
    assert all_offsets(log) == [0, 1, 2, 3, 4, 5]


def test_row_2_zero_filled_tail_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    filesystem, log = written()
    overwrite(filesystem, path_of(0), log.local.size_bytes, bytes(4096))
    with caplog.at_level("INFO"):
        assert all_offsets(open_log(filesystem)) == [0, 1, 2, 3, 4, 5]
    assert "cut_bytes=4096" in caplog.text


@pytest.mark.parametrize("seed", range(5))
def test_row_3_garbage_tail_is_cut(seed: int) -> None:
    filesystem, log = written()
    overwrite(filesystem, path_of(0), log.local.size_bytes, random.Random(seed).randbytes(3000))
    assert all_offsets(open_log(filesystem)) == [0, 1, 2, 3, 4, 5]


def test_row_4_bit_flip_below_the_recovery_point_takes_the_partition_offline_uncut() -> None:
    filesystem, _ = written(flush_after=4)
    flip(filesystem, path_of(0), position_of(filesystem, path_of(0), 2) + 70)
    before = content(filesystem)
    for power_loss in (False, True):
        with pytest.raises(LogDamaged, match="offset 2: wrong CRC; below the recovery point 4"):
            open_log(filesystem, recovery_point=4, power_loss=power_loss)
    assert content(filesystem) == before


def test_row_4_bit_flip_in_the_middle_after_the_death_of_the_process_is_damage() -> None:
    filesystem, _ = written()
    flip(filesystem, path_of(0), position_of(filesystem, path_of(0), 2) + 70)
    before = content(filesystem)
    with pytest.raises(LogDamaged, match="a good batch follows"):
        open_log(filesystem)
    assert content(filesystem) == before


def test_row_4_a_broken_length_in_the_middle_is_damage_too() -> None:
    filesystem, _ = written()
    overwrite(filesystem, path_of(0), position_of(filesystem, path_of(0), 2) + 8, b"\x7f\xff\xff\xff")
    with pytest.raises(LogDamaged, match="a good batch follows"):
        open_log(filesystem)


def test_bit_flip_in_the_last_batch_is_taken_for_a_torn_write() -> None:
    filesystem, _ = written()
    flip(filesystem, path_of(0), position_of(filesystem, path_of(0), 5) + 70)
    assert all_offsets(open_log(filesystem)) == [0, 1, 2, 3, 4]


def test_row_4_damage_in_an_older_segment_is_damage_even_at_its_end() -> None:
    filesystem, log = written(20, config=SMALL)
    first = log.local.segments.all[0]
    filesystem.open_file(first.path).truncate(first.size_bytes - 5)
    before = content(filesystem)
    with pytest.raises(LogDamaged, match="later segments follow"):
        open_log(filesystem, config=SMALL)
    assert content(filesystem) == before


def test_after_a_power_cut_the_log_is_cut_at_the_first_bad_batch_and_the_bytes_are_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:  # row 4
    filesystem, log = written(20, config=SMALL, flush_after=1)
    segment = log.local.segments.all[1]
    bad = position_of(filesystem, segment.path, 1)
    flip(filesystem, segment.path, bad + 70)
    lost = [
        filesystem.read_bytes(segment.path)[bad:],
        *(filesystem.read_bytes(s.path) for s in log.local.segments.all[2:]),
    ]
    again = open_log(filesystem, config=SMALL, recovery_point=1, power_loss=True)
    end = segment.base_offset + 1
    assert all_offsets(again) == list(range(end))
    assert again.local.segments.all[-1].base_offset == segment.base_offset
    assert len(caplog.records) == 1
    assert caplog.records[0].levelname == "ERROR"
    assert f"cut_bytes={sum(map(len, lost))} later_segments={len(lost) - 1}" in caplog.text
    (directory,) = filesystem.list_directory(Path("/cut"))
    kept = filesystem.list_directory(Path("/cut") / directory.name)
    assert [filesystem.read_bytes(Path("/cut") / directory.name / entry.name) for entry in kept] == lost


def test_what_cannot_be_kept_is_not_cut() -> None:
    filesystem, _ = written()
    flip(filesystem, path_of(0), position_of(filesystem, path_of(0), 2) + 70)
    before = content(filesystem)
    filesystem.inject("create", errno.EROFS, "from-152")
    filesystem.inject("mkdir", errno.EROFS)
    with pytest.raises(KafkaStorageError, match="EROFS"):
        open_log(filesystem, power_loss=True)
    assert content(filesystem) == before


def test_a_missing_segment_in_the_middle() -> None:
    filesystem, log = written(30, config=SMALL)
    missing, following = log.local.segments.all[2:4]
    filesystem.unlink(missing.path)
    for clean, recovery_point, power_loss in (
        (True, 0, False),
        (False, 0, False),
        (False, following.base_offset, True),
    ):
        with pytest.raises(LogDamaged, match=f"segment {missing.base_offset} has lost its log"):
            open_log(filesystem, config=SMALL, clean=clean, recovery_point=recovery_point, power_loss=power_loss)
    for path in (missing.offset_index.path, missing.time_index.path):
        filesystem.unlink(path)
    with pytest.raises(LogDamaged, match="follows; later segments follow"):
        open_log(filesystem, config=SMALL)


def test_a_missing_segment_in_the_middle_after_a_power_cut() -> None:
    filesystem, log = written(30, config=SMALL)
    filesystem.unlink(log.local.segments.all[2].path)
    again = open_log(filesystem, config=SMALL, power_loss=True)
    assert all_offsets(again) == list(range(log.local.segments.all[2].base_offset))


def test_row_6_offsets_that_go_back_are_not_accepted() -> None:
    filesystem, log = written()
    data = encode_batch([KafkaRecord(0, START_MS, None, b"x")])
    stamp(data, 1, 0)
    overwrite(filesystem, path_of(0), log.local.size_bytes, bytes(data))
    assert open_log(filesystem).log_end_offset == 6


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("how", ["missing", "garbage", "half an entry", "empty"])
def test_rows_7_8_indexes_are_rebuilt(suffix: str, clean: bool, how: str) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 40)
    log.close()
    expected = {}
    for segment in log.local.segments.all:
        path = paths.offset_file(DIRECTORY, segment.base_offset, suffix)
        expected[path] = filesystem.read_bytes(path)
        assert expected[path]
        if how == "missing":
            filesystem.unlink(path)
        elif how == "garbage":
            overwrite(filesystem, path, 0, random.Random(7).randbytes(len(expected[path])))
        elif how == "half an entry":
            filesystem.open_file(path).truncate(len(expected[path]) - 3)
        else:
            filesystem.open_file(path).truncate(0)
    again = open_log(filesystem, config=SMALL, clean=clean)
    assert all_offsets(again) == list(range(40))
    assert again.timestamp_search(START_MS).run() == (START_MS, 0, 0)
    assert again.timestamp_search(START_MS + 1).run() is None
    again._snapshot_offset = -1  # write everything again
    again.close()
    if how != "empty" or suffix == ".timeindex":  # an empty offset index only costs time
        assert {path: filesystem.read_bytes(path) for path in expected} == expected


def test_recovery_rebuilds_the_indexes_that_appending_made() -> None:
    filesystem, log = written(60, config=SMALL)
    again = open_log(filesystem, config=SMALL)
    for before, after in zip(log.local.segments.all, again.local.segments.all, strict=True):
        assert (before.offset_index.count, before.time_index.count) == (
            after.offset_index.count,
            after.time_index.count,
        )
        assert before.largest_timestamp == after.largest_timestamp


@pytest.mark.parametrize("how", ["missing", "garbage", "wrong crc"])
@pytest.mark.parametrize("clean", [True, False])
def test_rows_10_11_producer_state_is_rebuilt_from_the_log(how: str, clean: bool) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    for sequence in range(20):
        log.append_as_leader(batch(producer_id=7, epoch=0, sequence=sequence), leader_epoch=0)
    log.close()
    for entry in filesystem.list_directory(DIRECTORY):
        path = DIRECTORY / entry.name
        if entry.name.endswith(".snapshot"):
            if how == "missing":
                filesystem.unlink(path)
            elif how == "garbage":
                overwrite(filesystem, path, 0, b"garbage")
            else:
                overwrite(filesystem, path, 12, b"\x55")
    again = open_log(filesystem, config=SMALL, clean=clean)
    assert again.append_as_leader(batch(producer_id=7, epoch=0, sequence=19), leader_epoch=0).duplicate
    assert again.append_as_leader(batch(producer_id=7, epoch=0, sequence=16), leader_epoch=0).base_offset == 16
    assert again.append_as_leader(batch(producer_id=7, epoch=0, sequence=20), leader_epoch=0).base_offset == 20


def test_five_batches_are_known_again_after_the_death_of_the_process() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    for sequence in range(22):
        log.append_as_leader(batch(producer_id=7, epoch=0, sequence=sequence), leader_epoch=0)
    filesystem.kill()
    again = open_log(filesystem, config=SMALL)
    producer, before = again.producers.get(7), log.producers.get(7)
    assert producer is not None
    assert before is not None
    assert list(producer.batches)[-1] == list(before.batches)[-1]
    assert again.append_as_leader(batch(producer_id=7, epoch=0, sequence=17), leader_epoch=0).duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", range(20, 32))
def test_five_batches_are_known_again_wherever_a_segment_begins(clean: bool, count: int) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    for sequence in range(count):
        log.append_as_leader(batch(producer_id=7, epoch=0, sequence=sequence), leader_epoch=0)
        log.append_as_leader(batch(producer_id=8, epoch=0, sequence=sequence), leader_epoch=0)
    if clean:
        log.close()
    else:
        filesystem.kill()
    again = open_log(filesystem, config=SMALL, clean=clean)
    for sequence in range(count - 5, count):
        for producer_id in (7, 8):
            assert again.append_as_leader(
                batch(producer_id=producer_id, epoch=0, sequence=sequence), leader_epoch=0
            ).duplicate


@pytest.mark.parametrize("known", ["recovery_point", "log_start_offset", "high_watermark"])
@pytest.mark.parametrize("clean", [True, False])
def test_row_12_a_log_that_lost_its_segment_does_not_start_empty(known: str, clean: bool) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 6)
    log.close()
    filesystem.unlink(path_of(0))
    before = filesystem.list_directory(DIRECTORY)
    with pytest.raises(LogDamaged, match="the log ends at 0, below its"):
        open_log(filesystem, clean=clean, **{known: 5})  # type: ignore[arg-type]
    assert filesystem.list_directory(DIRECTORY) == before


def test_an_unsynced_high_watermark_is_no_evidence_after_a_power_cut() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3)
    log.local.flush()
    fill(log, 3)
    filesystem.crash()
    again = open_log(filesystem, recovery_point=3, high_watermark=6, power_loss=True)
    assert (again.log_end_offset, again.high_watermark) == (3, 3)


def test_rows_12_14_17_leftovers_are_removed() -> None:
    filesystem, _ = written()
    leftovers = [
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000099.txnindex",
        "00000000000000000099.snapshot",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ]
    for name in leftovers:
        filesystem.open_file(DIRECTORY / name, create=True)
    filesystem.open_file(DIRECTORY / "notes.txt", create=True)
    open_log(filesystem)
    left = {entry.name for entry in filesystem.list_directory(DIRECTORY)}
    assert not left & set(leftovers)
    assert "notes.txt" in left


@pytest.mark.parametrize("garbage", [b"", b"garbage\n", b"0\n7\n0 0\n", b"0\n2\n3 5\n1 2\n", b"\xff\xfe"])
def test_row_18_garbage_leader_epochs_are_rebuilt_from_the_batches(garbage: bytes) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    fill(log, 3, epoch=1)
    fill(log, 3, epoch=4)
    log.close()
    path = DIRECTORY / paths.LEADER_EPOCH_CHECKPOINT
    filesystem.open_file(path).truncate(0)
    overwrite(filesystem, path, 0, garbage)
    again = open_log(filesystem, clean=True)
    assert list(again.leader_epochs) == [(1, 0), (4, 3)]
    assert filesystem.read_bytes(path) == b"0\n2\n1 0\n4 3\n"


def test_only_the_segments_from_the_recovery_point_on_are_read() -> None:
    filesystem, log = written(40, config=SMALL, flush_after=30)
    old = [segment for segment in log.local.segments.all if segment.base_offset + 6 < 30][:-1]
    assert len(old) > 2
    for segment in old:
        filesystem.inject("read", errno.EIO, segment.path.name)
    again = open_log(filesystem, config=SMALL, recovery_point=30)
    filesystem.heal()
    assert all_offsets(again) == list(range(40))
    assert again.local.recovery_point == 30


def test_row_27_read_error_while_recovering_leaves_the_log_alone() -> None:
    filesystem, _ = written()
    before = content(filesystem)
    filesystem.inject("read", errno.EIO, ".log")
    with pytest.raises(KafkaStorageError, match="EIO"):
        open_log(filesystem)
    filesystem.heal()
    assert content(filesystem) == before
    assert read_bytes(open_log(filesystem), 0)


def test_find_batch_after_finds_a_batch_anywhere() -> None:
    filesystem = MemoryFilesystem()
    file = filesystem.open_file(Path("/f"), create=True)
    for offset in (0, 2**32 - 1, 2**62):
        data = encode_batch([KafkaRecord(0, START_MS, None, b"x")])
        stamp(data, offset, 3)
        for before in (0, 1, SEARCH_BYTES, SEARCH_BYTES - 70):
            file.truncate(0)
            file.write_at(bytes(before) + bytes(data) + b"tail", 0)
            end = file.size()
            assert find_batch_after(file, 0, end, max(0, offset - 7)) == before
            assert find_batch_after(file, 0, end - 5, max(0, offset - 7)) is None
            assert find_batch_after(file, 0, end, offset + 1) is None
