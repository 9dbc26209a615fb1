from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import CorruptMessage, KafkaStorageError
from klamm.protocol.records.batch import HEADER_BYTES
from klamm.protocol.records.compression import Codec
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from tests.storage.batches import all_records, batch, delete_unreachable, fill, open_log
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import MemoryFilesystem

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def test_segment_offsets_for_list_offsets_v0() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    fill(log, 12)
    bases = [segment.base_offset for segment in log.local.segments.all]
    assert log.segment_offsets(-1, 100) == [12, *reversed(bases)]
    assert log.segment_offsets(-2, 100) == [0]
    assert log.segment_offsets(-1, 2) == [12, bases[-1]]
    assert log.segment_offsets(START_MS - 1, 100) == []


def test_max_timestamp_is_the_first_record_that_has_it() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    assert log.timestamp_search(None).run() is None
    log.append_as_leader(batch(5, 9, 7), leader_epoch=2)
    log.append_as_leader(batch(9, 3), leader_epoch=2)
    assert log.timestamp_search(None).run() == (9, 1, 2)
    log.advance_log_start(2)
    assert log.timestamp_search(None).run() == (9, 3, 2)
    log.advance_log_start(4)
    log.append_as_leader(batch(4), leader_epoch=2)
    assert log.timestamp_search(None).run() == (4, 5, 2)


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=40),
    st.integers(0, 20),
    st.booleans(),
)
def test_no_record_at_or_after_a_timestamp_is_missed(times: list[list[int]], log_start: int, reopen: bool) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    for batch_times in times:
        log.append_as_leader(batch(*batch_times), leader_epoch=0)
    log.advance_log_start(min(log_start, log.log_end_offset))
    if reopen:
        log.close()
        log = open_log(filesystem, config=SMALL, clean=True, log_start_offset=log.log_start_offset)
    model = [
        (offset, timestamp)
        for offset, timestamp in enumerate(time for batch_times in times for time in batch_times)
        if offset >= log.log_start_offset
    ]
    assert all_records(log) == model
    for timestamp in range(62):
        expected = next(((time, offset, 0) for offset, time in model if time >= timestamp), None)
        assert log.timestamp_search(timestamp).run() == expected
    largest = max((time for _, time in model), default=-1)
    expected = next(((time, offset, 0) for offset, time in model if time == largest), None)
    assert log.timestamp_search(None).run() == expected


def reads_of(filesystem: MemoryFilesystem, log: Log) -> int:
    """How often a search for the largest timestamp reads from the disk."""
    before = filesystem.reads
    log.timestamp_search(None).run()
    return filesystem.reads - before


def test_a_search_for_the_largest_timestamp_reads_little_of_a_long_log() -> None:
    """This holds even where the record with that timestamp is below the log start."""
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=LogConfig(segment_bytes=100_000, index_interval_bytes=4096))
    log.append_as_leader(batch(START_MS + 10_000), leader_epoch=0)
    for step in range(100):
        log.append_as_leader(batch(START_MS + step, value=bytes(20_000)), leader_epoch=0)
    assert len(log.local.segments.all) > 20
    log.advance_log_start(3)
    assert log.timestamp_search(None).run() == (START_MS + 99, 100, 0)
    assert reads_of(filesystem, log) < 20
    log.advance_log_start(98)
    assert reads_of(filesystem, log) < 10
    before = filesystem.reads
    assert log.timestamp_search(START_MS).run() == (START_MS + 97, 98, 0)
    assert filesystem.reads - before < 5


def test_a_search_finds_what_there_was_when_it_was_made() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    log.append_as_leader(batch(5), leader_epoch=0)
    searches = [log.timestamp_search(timestamp) for timestamp in (None, 5, 6)]
    for step in range(50):
        log.append_as_leader(batch(6 + step), leader_epoch=0)
    assert [search.run() for search in searches] == [(5, 0, 0), (5, 0, 0), None]


def test_a_segment_that_is_deleted_under_a_search_has_nothing_to_find() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 12)
    log.close()
    log = open_log(filesystem, config=SMALL, clean=True)
    search = log.timestamp_search(START_MS)
    first = log.local.segments.all[1].base_offset
    log.advance_log_start(first)
    delete_unreachable(log)
    assert search.run() == (START_MS, first, 0)


def test_a_disk_that_cannot_be_read_is_a_storage_error() -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    fill(log, 12)
    filesystem.inject("read", errno.EIO, ".log")
    for timestamp in (None, START_MS):
        with pytest.raises(KafkaStorageError, match="EIO"):
            log.timestamp_search(timestamp).run()


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(20))
def test_damaged_batches_are_an_answer_or_an_error_that_clients_know(codec: Codec, seed: int) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem)
    for _ in range(3):
        log.append_as_leader(batch(*range(1, 9), codec=codec), leader_epoch=0)
    file = log.local.segments.all[0].file
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 30)):
        file.write_at(rng.randbytes(1), rng.randrange(file.size()))
    for timestamp in (None, 1, 5, 8):
        with suppress(CorruptMessage, KafkaStorageError):
            log.timestamp_search(timestamp).run()
    log.advance_log_start(3)
    with suppress(CorruptMessage, KafkaStorageError):
        log.timestamp_search(None).run()


def test_records_that_do_not_parse_are_a_corrupt_message() -> None:
    log = open_log(MemoryFilesystem())
    log.append_as_leader(batch(1, 2), leader_epoch=0)
    log.local.segments.all[0].file.write_at(b"\xff" * 8, HEADER_BYTES)
    with pytest.raises(CorruptMessage, match="t-0: a stored batch is damaged"):
        log.timestamp_search(1).run()
