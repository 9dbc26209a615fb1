from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from klamm.protocol.records.control import EndMarker
from klamm.storage.log.producer_state_entry import (
    MAX_SEQUENCE,
    BatchMetadata,
    SnapshotError,
    decrement_sequence,
    parse_snapshot,
)
from klamm.storage.log.producer_state_manager import ProducerStateManager
from klamm.storage.log.transaction_index import AbortedTransaction
from klamm.storage.log.transaction_verification import TransactionVerifications

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


def filled() -> ProducerStateManager:
    state = ProducerStateManager("t-0")
    state.update(1000, 2, 0, 4, 37, 1_700_000_000_000)
    state.update(1000, 2, 5, 4, 42, 1_700_000_000_000)
    return state


def test_snapshot_format() -> None:
    assert filled().snapshot().hex() == SNAPSHOT.hex()
    (producer,) = parse_snapshot(SNAPSHOT)
    assert (producer.producer_id, producer.epoch, producer.last_sequence) == (1000, 2, 9)
    assert list(producer.batches) == [BatchMetadata(9, 42, 4, 1_700_000_000_000)]
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
    assert decrement_sequence(2, 4) == MAX_SEQUENCE - 1
    state = ProducerStateManager("t-0")
    state.update(1, 0, MAX_SEQUENCE - 1, 4, 4, 0)  # sequences max-1, max, 0, 1, 2
    assert state.check_batch(1, 0, 3, 0) is None
    duplicate = state.check_batch(1, 0, MAX_SEQUENCE - 1, 4)
    assert duplicate is not None
    assert duplicate.first_sequence == MAX_SEQUENCE - 1


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStateManager("t-0").check_batch(1, 3, 17, 0) is None


def test_a_part_of_a_known_batch_is_not_a_duplicate() -> None:
    state = filled()
    for base_sequence, delta in ((5, 3), (6, 3), (0, 9), (4, 4)):
        with pytest.raises(OutOfOrderSequenceNumber, match="expected 10"):
            state.check_batch(1000, 2, base_sequence, delta)


def test_epochs() -> None:
    state = filled()
    with pytest.raises(InvalidProducerEpoch, match="fenced by epoch=2"):
        state.check_batch(1000, 1, 10, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="new epoch=3, expected 0"):
        state.check_batch(1000, 3, 10, 0)
    assert state.check_batch(1000, 3, 0, 0) is None
    state.update(1000, 3, 0, 0, 43, 0)
    producer = state.get(1000)
    assert producer is not None
    assert len(producer.batches) == 1


def test_silent_producers_expire() -> None:
    state = ProducerStateManager("t-0", expiration_ms=1000)
    state.update(1, 0, 0, 0, 0, 5000)
    assert state.remove_expired(100) == 0
    state.update(2, 0, 0, 0, 1, 5500)
    assert state.remove_expired(600) == 0  # the second one is idle from now on
    assert state.remove_expired(1099) == 0
    assert state.remove_expired(1100) == 1
    assert [producer.producer_id for producer in state] == [2]
    state.update(2, 0, 1, 0, 2, 5500)
    assert state.remove_expired(1700) == 0
    assert state.remove_expired(2699) == 0
    assert state.remove_expired(2700) == 1


@pytest.mark.parametrize("timestamp", [0, 5, 10**15])
def test_timestamps_of_records_do_not_tell_how_long_a_producer_is_idle(timestamp: int) -> None:
    state = ProducerStateManager("t-0", expiration_ms=1000)
    state.update(1, 0, 0, 0, 0, timestamp)
    assert [state.remove_expired(now_ms) for now_ms in (0, 999, 1000)] == [0, 0, 1]


def test_a_snapshot_tells_how_long_producers_have_been_idle_when_it_was_written() -> None:
    state = ProducerStateManager("t-0", expiration_ms=100_000)
    now_ms = 1_700_000_000_000
    state.update(1, 0, 0, 0, 0, now_ms)
    state.update(2, 0, 0, 0, 1, 5)  # old records
    state.remove_expired(0)
    state.remove_expired(60_000)
    state.update(3, 0, 0, 0, 2, 5)
    state.remove_expired(60_000)
    content = state.snapshot(now_ms + 60_000)
    again = ProducerStateManager("t-0", expiration_ms=100_000)
    again.load(content, now_ms + 60_000)
    assert [(producer.producer_id, producer.idle_ms) for producer in again] == [(1, 60_000), (2, 60_000), (3, 0)]
    assert [again.remove_expired(ms) for ms in (0, 39_999, 40_000, 99_999, 100_000)] == [0, 0, 2, 0, 1]
    again.load(content, now_ms + 100_000)
    assert [producer.producer_id for producer in again] == [3]


def test_a_timestamp_that_is_about_when_it_was_appended_is_stored_as_it_is() -> None:
    state = ProducerStateManager("t-0")
    now_ms = 1_700_000_000_000
    for producer_id, timestamp in enumerate((now_ms - 3_600_000, now_ms, now_ms + 3_600_000)):
        state.update(producer_id, 0, 0, 0, producer_id, timestamp)
    state.remove_expired(0)
    assert state.snapshot(now_ms) == state.snapshot()


def transacting(*producer_ids: int, epoch: int = 3) -> ProducerStateManager:
    """Each has a transaction open, at offsets 10, 20, ..."""
    state = ProducerStateManager("t-0")
    for number, producer_id in enumerate(producer_ids):
        state.update(producer_id, epoch, 0, 0, 10 * (number + 1), 1000, is_transactional=True)
    return state


def mark(
    state: ProducerStateManager, producer_id: int, offset: int, *, epoch: int = 3, coordinator_epoch: int = 0
) -> None:
    state.end_transaction(producer_id, epoch, EndMarker(True, coordinator_epoch, 2000), offset)


def test_the_first_unstable_offset_is_that_of_the_oldest_undecided_transaction() -> None:
    state = transacting(1, 2, 3)
    assert state.first_unstable_offset == 10
    mark(state, 2, 40)
    mark(state, 1, 41)
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(41)  # the marker of 1 is not below the high watermark
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(42)
    assert state.first_unstable_offset == 30
    mark(state, 3, 42)
    state.on_high_watermark_updated(43)
    assert state.first_unstable_offset is None


def test_what_the_index_says_of_a_transaction_that_ends() -> None:
    state = transacting(1, 2)
    assert state.ending(1, 40) == AbortedTransaction(1, 10, 40, 20)
    assert state.ending(2, 40) == AbortedTransaction(2, 20, 40, 10)
    mark(state, 1, 40)
    assert state.ending(2, 41) == AbortedTransaction(2, 20, 41, 42)
    assert state.ending(1, 42) is None


@pytest.mark.parametrize(
    ("epoch", "version", "is_open", "good"),
    [
        (2, 1, True, False),
        (3, 1, True, True),
        (4, 1, True, True),
        (2, 2, True, False),
        (3, 2, True, False),
        (4, 2, True, True),
        (3, 2, False, True),
        (2, 2, False, False),
    ],
)
def test_epochs_of_markers(epoch: int, version: int, is_open: bool, good: bool) -> None:
    state = transacting(1)
    if not is_open:
        mark(state, 1, 40)
    if good:
        state.check_marker(1, epoch, 0, version)
    else:
        with pytest.raises(InvalidProducerEpoch):
            state.check_marker(1, epoch, 0, version)


@pytest.mark.parametrize(("epoch", "good"), [(32765, False), (32766, False), (32767, True)])
def test_a_transaction_in_the_highest_epoch_ends_in_it(epoch: int, good: bool) -> None:
    """No epoch follows: refused, the marker would be missing for good."""
    state = transacting(1, epoch=epoch)
    if good:
        state.check_marker(1, epoch, 0, 2)
    else:
        with pytest.raises(InvalidProducerEpoch):
            state.check_marker(1, epoch, 0, 2)
        state.check_marker(1, epoch + 1, 0, 2)


def test_an_older_coordinator_is_fenced() -> None:
    state = transacting(1)
    mark(state, 1, 40, coordinator_epoch=5)
    state.check_marker(1, 3, 5, 1)
    with pytest.raises(TransactionCoordinatorFenced):
        state.check_marker(1, 3, 4, 1)


def test_sequences_continue_after_a_marker_and_restart_with_its_epoch() -> None:
    state = transacting(1)
    mark(state, 1, 40)
    assert state.check_batch(1, 3, 1, 0) is None
    assert state.check_batch(1, 3, 0, 0) is not None  # a duplicate
    mark(state, 1, 41, epoch=4)
    assert state.check_batch(1, 4, 0, 0) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        state.check_batch(1, 4, 1, 0)
    with pytest.raises(InvalidProducerEpoch):
        state.check_batch(1, 3, 1, 0)


def test_records_outside_of_an_open_transaction_are_refused() -> None:
    state = transacting(1)
    with pytest.raises(InvalidTxnState):
        state.check_batch(1, 3, 1, 0)
    assert state.check_batch(1, 3, 1, 0, is_transactional=True) is None


def test_a_snapshot_holds_open_transactions_and_producers_of_markers_only() -> None:
    state = transacting(1, 2)
    mark(state, 1, 40, epoch=4, coordinator_epoch=7)
    state.update(9, 0, -1, 0, 41, 1000, is_transactional=True)  # a coordinator's, without sequence
    again = ProducerStateManager("t-0")
    again.load(state.snapshot(), 5000)
    assert again.first_unstable_offset == 20
    assert [
        (p.producer_id, p.epoch, list(p.batches), p.coordinator_epoch, p.first_transaction_offset) for p in again
    ] == [
        (1, 4, [], 7, -1),
        (2, 3, [BatchMetadata(0, 20, 0, 1000)], -1, 20),
        (9, 0, [BatchMetadata(-1, 41, 0, 1000)], -1, 41),
    ]
    assert [again.remove_expired(0), again.remove_expired(10**15)] == [0, 1]


def test_a_guard_is_good_for_one_transaction() -> None:
    verifications = TransactionVerifications("t-0")
    with pytest.raises(InvalidTxnState):
        verifications.check_guard(1, None)
    guard = verifications.begin(1, 0, 5, begins_at_zero=False, now_ms=0)
    assert verifications.begin(1, 0, 7, begins_at_zero=False, now_ms=0) is guard
    verifications.check_guard(1, guard)
    verifications.check_sequence(1, 5, has_batches=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        verifications.check_sequence(1, 7, has_batches=True)
    assert verifications.begin(1, 0, 3, begins_at_zero=False, now_ms=0) is guard
    with pytest.raises(OutOfOrderSequenceNumber):
        verifications.check_sequence(1, 5, has_batches=True)
    verifications.begin(1, 1, 4, begins_at_zero=False, now_ms=0)
    verifications.check_sequence(1, 4, has_batches=True)
    verifications.end(1)
    with pytest.raises(InvalidTxnState):
        verifications.check_guard(1, guard)
    assert verifications.begin(1, 0, 0, begins_at_zero=False, now_ms=0) is not guard


def test_what_a_partition_has_not_seen_of_a_newer_producer_begins_with_zero() -> None:
    verifications = TransactionVerifications("t-0")
    verifications.begin(1, 0, 5, begins_at_zero=True, now_ms=0)
    verifications.check_sequence(1, 5, has_batches=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        verifications.check_sequence(1, 5, has_batches=False)
    verifications.remove_expired(99, 100)
    assert len(verifications) == 1
    verifications.remove_expired(100, 100)
    assert len(verifications) == 0
