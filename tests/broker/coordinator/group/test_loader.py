"""Reading __consumer_offsets back: pieces, transactions, junk."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.broker.coordinator.group.loader import Replay
from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.records import KeyValue, offset_key, offset_record
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.offset_fetch import OffsetFetchRequest
from klamm.protocol.records.batch import Record, batches, encode_batch
from klamm.protocol.records.compression import Codec
from tests.broker.coordinator.group.test_coordinator import CONFIG, begin, commit, offsets, opened, reopened

LIMIT = 1 << 20
COMMIT_MARKER = b"\0\0\0\1"
ABORT_MARKER = b"\0\0\0\0"


def committed(partition: int, offset: int) -> KeyValue:
    return offset_record("g", "t", partition, CommittedOffset(offset))


def log(*batches: list[KeyValue], codec: Codec = Codec.NONE) -> bytes:
    """Batches one after the other."""
    out, offset = b"", 0
    for batch in batches:
        records = [Record(offset + number, 1, key, value) for number, (key, value) in enumerate(batch)]
        out += encode_batch(records, base_offset=offset, codec=codec)
        offset += len(batch)
    return out


def found(replay: Replay) -> dict[int, int]:
    return {partition: value.offset for (_, _, partition), value in replay.offsets.items()}


@pytest.mark.parametrize("codec", Codec)
def test_the_last_word_counts(codec: Codec) -> None:
    replay = Replay("p", 0, LIMIT)
    tombstone = (offset_key("g", "t", 1), None)
    data = log([committed(0, 1), committed(1, 1)], [committed(0, 2)], [tombstone, committed(2, 3)], codec=codec)
    assert replay.read(data, 0) == 5
    assert found(replay) == {0: 2, 2: 3}


def test_a_log_may_be_cut_anywhere() -> None:
    data = log(*[[committed(number % 3, number)] for number in range(20)])
    replay, offset = Replay("p", 0, LIMIT), 0
    size = len(data) // 20
    while offset < 20:
        start = size * offset
        offset = replay.read(data[start : start + size * 3 + 7], offset)
    assert found(replay) == {0: 18, 1: 19, 2: 17} and replay.record_count == 20


def test_transactional_offsets_count_when_the_transaction_is_committed() -> None:
    data = b""
    for producer, offset in ((1, 0), (2, 1), (3, 2)):
        key, value = committed(producer, 7)
        record = Record(offset, 1, key, value)
        data += encode_batch(
            [record], base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
    for producer, offset, marker in ((1, 3, COMMIT_MARKER), (2, 4, ABORT_MARKER)):
        data += encode_batch(
            [Record(offset, 1, marker, b"\0\0\0\0\0\0")],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    replay = Replay("p", 0, LIMIT)
    assert replay.read(data, 0) == 5
    assert found(replay) == {1: 7}


def test_a_transactional_offset_that_was_deleted_does_not_come_back() -> None:
    key, value = committed(0, 7)
    data = encode_batch([Record(0, 1, key, value)], producer_id=1, producer_epoch=0, transactional=True)
    data += encode_batch([Record(1, 1, offset_key("g", "t", 0), None)], base_offset=1)
    replay = Replay("p", 0, LIMIT)
    assert replay.read(data, 0) == 2
    assert not replay.pending.is_pending(("g", "t", 0))
    assert replay.pending.end(0, 1, commit=True) == {}


def test_a_bad_record_is_skipped_and_the_others_count() -> None:
    replay = Replay("p", 0, LIMIT)
    replay.read(log([committed(0, 1), (b"\0\1junk", b""), (b"", b""), committed(1, 2)]), 0)
    assert found(replay) == {0: 1, 1: 2} and replay.skipped == 2


def test_a_long_log_is_read_in_pieces(tmp_path: Path) -> None:
    config = {**CONFIG, "offsets.load.buffer.size": 500}
    with opened(tmp_path, config) as broker:
        begin(broker)
        for number in range(100):
            commit(broker, number, number + 1)
    with opened(tmp_path, config) as broker:
        reopened(broker)
        assert offsets(broker, 0, 1) == [99, 100]


@pytest.mark.parametrize("damage", [(8, b"\0\x7f\xff\xff"), (16, b"\x09")], ids=["size", "magic"])
def test_half_a_log_is_no_log(tmp_path: Path, damage: tuple[int, bytes], caplog: pytest.LogCaptureFixture) -> None:
    """Offsets would go back to what they were before the damage."""
    with opened(tmp_path) as broker:
        begin(broker)
        for number in range(10):
            commit(broker, number, metadata="x" * 3000)  # the index has an entry after the damage
    (path,) = [path for path in tmp_path.rglob("__consumer_offsets-*/*.log") if path.stat().st_size]
    data = bytearray(path.read_bytes())
    second = list(batches(bytes(data)))[1][0] + damage[0]
    data[second : second + len(damage[1])] = damage[1]
    path.write_bytes(data)
    with opened(tmp_path) as broker:
        reopened(broker)
        for _ in range(5):
            asked = OffsetFetchRequest(group_id="g", topics=[])
            assert broker.call(asked, 7).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert commit(broker, 3) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    warnings = [record for record in caplog.records if "cannot be loaded" in record.message]
    assert len(warnings) == 1  # it is not read again for every request
