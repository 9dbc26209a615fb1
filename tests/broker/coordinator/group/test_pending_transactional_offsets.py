"""Offsets in open transactions."""

from __future__ import annotations

from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.pending_transactional_offsets import PendingTransactionalOffsets

KEY = ("g", "t", 0)
OTHER = ("g", "t", 1)


def test_an_offset_counts_when_its_transaction_commits() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    pending.add(3, 7, KEY, CommittedOffset(2))
    pending.add(3, 7, OTHER, CommittedOffset(5))
    assert pending.is_pending(KEY)
    assert pending.end(3, 7, commit=True) == {KEY: CommittedOffset(2), OTHER: CommittedOffset(5)}
    assert not pending.is_pending(KEY)
    assert pending.end(3, 7, commit=True) == {}
    assert len(pending) == 0


def test_an_offset_of_an_aborted_transaction_never_counts() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    assert pending.end(3, 7, commit=False) == {}
    assert not pending.is_pending(KEY)


def test_what_was_written_later_outside_of_it_stays() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    pending.overtake(KEY)
    assert pending.is_pending(KEY)  # unstable all the same
    pending.add(3, 8, KEY, CommittedOffset(9))
    assert pending.end(3, 7, commit=True) == {}
    assert pending.is_pending(KEY)
    assert pending.end(3, 8, commit=True) == {KEY: CommittedOffset(9)}


def test_transactions_of_other_partitions_and_producers_stay_open() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    pending.add(4, 7, ("h", "t", 0), CommittedOffset(2))
    assert pending.end(3, 8, commit=True) == {}
    pending.forget(4)
    assert not pending.is_pending(("h", "t", 0))
    assert list(pending.of("g")) == [("t", 0)]


def test_of_two_transactions_the_one_that_wrote_last_counts_whichever_commits_last() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    pending.add(3, 8, KEY, CommittedOffset(9))
    assert pending.end(3, 8, commit=True) == {KEY: CommittedOffset(9)}
    assert pending.end(3, 7, commit=True) == {}
    pending.add(3, 7, KEY, CommittedOffset(10))
    pending.add(3, 8, KEY, CommittedOffset(11))
    assert pending.end(3, 8, commit=False) == {}
    assert pending.end(3, 7, commit=True) == {KEY: CommittedOffset(10)}


def test_what_is_deleted_is_stable_and_never_counts() -> None:
    pending = PendingTransactionalOffsets()
    pending.add(3, 7, KEY, CommittedOffset(1))
    pending.add(3, 7, OTHER, CommittedOffset(2))
    pending.add(3, 8, KEY, CommittedOffset(3))
    pending.drop(KEY)
    assert not pending.is_pending(KEY) and list(pending.of("g")) == [("t", 1)]
    assert pending.end(3, 8, commit=True) == {}
    assert pending.end(3, 7, commit=True) == {OTHER: CommittedOffset(2)}
    assert len(pending) == 0
