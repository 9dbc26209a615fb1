from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from klamm.storage.log_config import LogConfig
from tests.storage.batches import all_records, batch, fill, open_log
from tests.support.manual_clock import START_MS
from tests.support.memory_filesystem import MemoryFilesystem

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def test_segment_offsets_for_list_offsets_v0() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    fill(log, 12)
    bases = [segment.base_offset for segment in log.segments]
    assert log.segment_offsets(-1, 100) == [12, *reversed(bases)]
    assert log.segment_offsets(-2, 100) == [0]
    assert log.segment_offsets(-1, 2) == [12, bases[-1]]
    assert log.segment_offsets(START_MS - 1, 100) == []


def test_max_timestamp_is_the_first_record_that_has_it() -> None:
    log = open_log(MemoryFilesystem(), config=SMALL)
    assert log.max_timestamp() is None
    log.append(batch(5, 9, 7), leader_epoch=2)
    log.append(batch(9, 3), leader_epoch=2)
    assert log.max_timestamp() == (9, 1, 2)
    log.advance_log_start(2)
    assert log.max_timestamp() == (9, 3, 2)
    log.advance_log_start(4)
    log.append(batch(4), leader_epoch=2)
    assert log.max_timestamp() == (4, 5, 2)


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=40),
    st.integers(0, 20),
    st.booleans(),
)
def test_no_record_at_or_after_a_timestamp_is_missed(times: list[list[int]], log_start: int, reopen: bool) -> None:
    filesystem = MemoryFilesystem()
    log = open_log(filesystem, config=SMALL)
    for batch_times in times:
        log.append(batch(*batch_times), leader_epoch=0)
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
        assert log.lookup_timestamp(timestamp) == expected
    largest = max((time for _, time in model), default=-1)
    expected = next(((time, offset, 0) for offset, time in model if time == largest), None)
    assert log.max_timestamp() == expected
