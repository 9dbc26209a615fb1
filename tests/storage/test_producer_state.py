from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from klamm.storage.producer_state import (
    MAX_SEQUENCE,
    ProducerState,
    RetainedBatch,
    SnapshotError,
    decrement_sequence,
    increment_sequence,
    parse_snapshot,
)

SNAPSHOT = bytes.fromhex(
    "0001"  # version
    "36f6e599"  # crc32c of what follows
    "00000001"  # one producer
    "00000000000003e8"  # producer id 1000
    "0002"  # epoch
    "00000009"  # last sequence
    "000000000000002a"  # last offset 42
    "00000004"  # offset delta
    "0000018bcfe56800"  # timestamp
    "ffffffff"  # coordinator epoch: none
    "ffffffffffffffff"  # no open transaction
)


def filled() -> ProducerState:
    state = ProducerState("t-0")
    state.update(1000, 2, 0, 4, 37, 1_700_000_000_000)
    state.update(1000, 2, 5, 4, 42, 1_700_000_000_000)
    return state


def test_snapshot_format() -> None:
    assert filled().snapshot().hex() == SNAPSHOT.hex()
    (producer,) = parse_snapshot(SNAPSHOT)
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (1000, 2, 9)
    assert list(producer.batches) == [RetainedBatch(9, 42, 4, 1_700_000_000_000)]
    assert (producer.batches[0].first_offset, producer.batches[0].first_sequence) == (38, 5)


@pytest.mark.parametrize("position", range(0, len(SNAPSHOT), 3))
def test_a_damaged_snapshot_is_refused(position: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= 1
    with pytest.raises(SnapshotError):
        parse_snapshot(bytes(damaged))


@given(st.integers(0, len(SNAPSHOT) - 1))
def test_a_torn_snapshot_is_refused(size: int) -> None:
    with pytest.raises(SnapshotError):
        parse_snapshot(SNAPSHOT[:size])


def test_sequences_wrap_around_to_zero() -> None:
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 4) == 2
    assert decrement_sequence(2, 4) == MAX_SEQUENCE - 1
    state = ProducerState("t-0")
    state.update(1, 0, MAX_SEQUENCE - 1, 4, 4, 0)  # sequences max-1, max, 0, 1, 2
    assert state.check(1, 0, 3, 0) is None
    duplicate = state.check(1, 0, MAX_SEQUENCE - 1, 4)
    assert duplicate is not None
    assert duplicate.first_sequence == MAX_SEQUENCE - 1


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState("t-0").check(1, 3, 17, 0) is None


def test_a_part_of_a_known_batch_is_not_a_duplicate() -> None:
    state = filled()
    for base_sequence, delta in ((5, 3), (6, 3), (0, 9), (4, 4)):
        with pytest.raises(OutOfOrderSequenceNumber, match="expected 10"):
            state.check(1000, 2, base_sequence, delta)


def test_epochs() -> None:
    state = filled()
    with pytest.raises(InvalidProducerEpoch, match="fenced by epoch=2"):
        state.check(1000, 1, 10, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="new epoch=3, expected 0"):
        state.check(1000, 3, 10, 0)
    assert state.check(1000, 3, 0, 0) is None
    state.update(1000, 3, 0, 0, 43, 0)
    producer = state.get(1000)
    assert producer is not None
    assert len(producer.batches) == 1


def test_silent_producers_expire() -> None:
    state = ProducerState("t-0", expiration_ms=1000)
    state.update(1, 0, 0, 0, 0, 5000)
    state.update(2, 0, 0, 0, 1, 5500)
    assert state.remove_expired(5999) == 0
    assert state.remove_expired(6000) == 1
    assert [producer.producer_id for producer in state] == [2]
    content = state.snapshot()
    state.load(content, 6499)
    assert len(state) == 1
    state.load(content, 6500)
    assert len(state) == 0


def test_a_producer_of_old_records_expires_by_when_it_was_seen() -> None:
    state = ProducerState("t-0", expiration_ms=1000)
    state.update(1, 0, 0, 0, 0, 5, 100_000)
    assert state.remove_expired(100_999) == 0
    assert state.remove_expired(101_000) == 1
