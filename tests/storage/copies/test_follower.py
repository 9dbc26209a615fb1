from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import CorruptMessage, KafkaStorageError
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.storage.copies.follower import UnexpectedOffset, append_assigned
from klamm.storage.log.index import MAX_RELATIVE_OFFSET
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import all_offsets, all_records, batch, fill, open_log, read_bytes
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, compacted=True)


def at(
    offset: int, *, epoch: int = 0, last_offset: int | None = None, value: bytes = b"v", sequence: int = -1
) -> bytes:
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    return bytes(
        encode_batch(
            [Record(offset, START_MS, b"k", value)],
            base_offset=offset,
            last_offset=last_offset,
            leader_epoch=epoch,
            **producer,  # type: ignore[arg-type]
        )
    )


@given(
    gaps=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 1)), max_size=30),
    pieces=st.integers(1, 9),
)
def test_a_copy_is_the_same_byte_for_byte(gaps: list[tuple[int, int, int]], pieces: int) -> None:
    """Offsets, gaps and epochs are copied unchanged."""
    stored = []
    offset = epoch = 0
    for gap, extra, step in gaps:
        epoch += step
        stored.append(at(offset + gap, epoch=epoch, last_offset=offset + gap + extra))
        offset += gap + extra + 1
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    for first in range(0, len(stored), pieces):
        assert append_assigned(log, b"".join(stored[first : first + pieces])) == len(stored[first : first + pieces])
    assert log.log_end_offset == offset
    for _ in range(2):
        found = b"".join(segment.file.read_at(segment.size_bytes, 0) for segment in log.local.segments.all)
        assert found == b"".join(stored)
        assert log.leader_epochs.latest == (epoch if stored else -1)
        filesystem.kill()
        log = open_log(filesystem, config=CONFIG)


def test_what_does_not_continue_the_log_is_refused_as_a_whole() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    append_assigned(log, at(5))
    for wrong, why in [
        (at(5), "batch at offset 5, the log ends at 6"),
        (at(8) + at(7), "batch at offset 7, the batch before it ends at 9"),
        (at(8) + at(8), "offset 8, the batch before it"),
    ]:
        with pytest.raises(UnexpectedOffset, match=why):
            append_assigned(log, wrong)
    damaged = bytearray(at(6) + at(7))
    damaged[-1] ^= 1
    with pytest.raises(CorruptMessage):
        append_assigned(log, damaged)
    assert (log.log_end_offset, all_offsets_above(log, 5)) == (6, [5])


def all_offsets_above(log: Log, offset: int) -> list[int]:
    return [found for found in all_offsets(log) if found >= offset]


def test_a_last_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    assert append_assigned(log, at(0) + at(1)[:-1]) == 1
    assert append_assigned(log, at(1)[:40]) == 0
    assert append_assigned(log, b"") == 0
    assert log.log_end_offset == 1


def test_epochs_are_those_of_the_batches() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    append_assigned(log, at(0, epoch=3) + at(1, epoch=5) + at(2, epoch=4))
    assert list(log.leader_epochs) == [(3, 0), (4, 2)]
    assert append_assigned(log, at(3, epoch=4) + at(4, epoch=6) + at(5, epoch=4), leader_epoch=5) == 1
    assert (log.log_end_offset, log.leader_epochs.latest) == (4, 4)
    append_assigned(log, encode_set([Record(4, START_MS, b"k", b"v")], 1, codec=Codec.GZIP))
    assert list(log.leader_epochs) == []


def test_messages_of_old_formats_are_taken_as_they_are() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    rows = [Record(offset, START_MS + offset, b"k", b"v") for offset in (2, 3, 7)]
    data = encode_set(rows, 1, codec=Codec.GZIP) + encode_set(rows[:1], 0).replace(b"\x02", b"\x08", 1)
    append_assigned(log, data)
    assert all_records(log) == [(2, START_MS + 2), (3, START_MS + 3), (7, START_MS + 7), (8, -1)]
    assert log.log_end_offset == 9
    assert read_bytes(log, 0) == data


def test_producers_are_noted_but_not_asked() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    append_assigned(log, at(0, sequence=5) + at(3, sequence=9))
    again = log.append_as_leader(batch(producer_id=7, epoch=0, sequence=9), leader_epoch=0)
    assert (again.duplicate, again.base_offset) == (True, 3)
    assert log.append_as_leader(batch(producer_id=7, epoch=0, sequence=10), leader_epoch=0).base_offset == 4


def test_rolls_by_size_by_age_and_before_a_relative_offset_overflows() -> None:
    clock = ManualClock()
    filesystem = MemoryFilesystem(clock.wall_ms)
    log = open_log(filesystem, config=LogConfig(segment_bytes=1000, segment_ms=10, compacted=True), clock=clock)
    append_assigned(log, at(0))
    append_assigned(log, at(MAX_RELATIVE_OFFSET))
    assert [segment.base_offset for segment in log.local.segments.all] == [0]
    append_assigned(log, at(MAX_RELATIVE_OFFSET + 1))
    assert [segment.base_offset for segment in log.local.segments.all] == [0, MAX_RELATIVE_OFFSET + 1]
    far = 1 << 38
    append_assigned(log, at(far))
    assert [segment.base_offset for segment in log.local.segments.all] == [0, MAX_RELATIVE_OFFSET + 1, far]
    append_assigned(log, at(far + 1, value=bytes(950)))
    assert [segment.base_offset for segment in log.local.segments.all][3:] == [far + 1]
    new = encode_batch([Record(far + 2, START_MS + 11, b"k", b"v")], base_offset=far + 2, leader_epoch=0)
    append_assigned(log, new)
    assert [segment.base_offset for segment in log.local.segments.all][4:] == [far + 2]
    for clean in (True, False):
        log.close()
        log = open_log(filesystem, config=CONFIG, clean=clean)
        assert all_offsets(log) == [0, MAX_RELATIVE_OFFSET, MAX_RELATIVE_OFFSET + 1, far, far + 1, far + 2]
        assert log.timestamp_search(START_MS + 11).run() == (START_MS + 11, far + 2, 0)


@pytest.mark.parametrize("magic", [1, 2])
def test_an_empty_log_begins_where_the_leaders_does_however_far(magic: int) -> None:
    far = 1 << 38
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    data = at(far) if magic == 2 else encode_set([Record(far, START_MS, b"k", b"v")], magic, codec=Codec.GZIP)
    append_assigned(log, data)
    assert len(log.local.segments.all) == 1
    assert log.log_end_offset == far + 1
    assert read_bytes(log, 0) == data
    filesystem.kill()
    again = open_log(filesystem, config=CONFIG)
    assert (again.log_end_offset, len(again.local.segments.all)) == (far + 1, 1)


def test_a_full_disk_where_the_segment_moves_leaves_the_log_as_it_was() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=CONFIG)
    filesystem.inject("create", errno.ENOSPC, f"{1 << 38:020d}.log")
    with pytest.raises(KafkaStorageError, match="roll failed"):
        append_assigned(log, at(1 << 38))
    fill(log, 2)
    assert all_offsets(log) == [0, 1]
    filesystem.heal()
    append_assigned(log, at(1 << 38))
    assert all_offsets(log) == [0, 1, 1 << 38]


def test_an_offline_log_takes_nothing() -> None:
    log = open_log(MemoryFilesystem(), config=CONFIG)
    log.local.abandon("gone")
    with pytest.raises(KafkaStorageError, match="offline"):
        append_assigned(log, at(0))
