"""Checks of EndTxn: a request that ends nothing has the wrong producer, or repeats an earlier one."""

from __future__ import annotations

from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM, ProducerIdAndEpoch, Transaction
from klamm.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klamm.protocol.errors import ErrorCode


def refusal(entry: TransactionMetadata, who: ProducerIdAndEpoch, version: int, *, commit: bool) -> ErrorCode | None:
    """Return the response code of an EndTxn that ends nothing: NONE when it was carried out before. None: go on.

    The version is that of the request. After the broker's own abort the epoch is bumped; a producer that uses version 1
    does not know this and is fenced.
    """
    if version >= EPOCH_BUMP_FROM:
        return _refusal_of_version_2(entry, who, commit=commit)
    current = entry.current
    if current.producer_id != who.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.producer_epoch != who.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if entry.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return _repeated(current, commit=commit)


def _refusal_of_version_2(entry: TransactionMetadata, who: ProducerIdAndEpoch, *, commit: bool) -> ErrorCode | None:
    """Check an EndTxn of version 2: a repeated request has the previous epoch; the current epoch means the next
    transaction.
    """
    current = entry.current
    repeated = current.is_repeated_end(*who)
    if entry.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.producer_id != who.producer_id and not repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if repeated and (current.state.is_preparing or current.state.is_complete):
        return _repeated(current, commit=commit)
    if current.producer_epoch != who.producer_epoch or current.state.is_preparing:
        return ErrorCode.PRODUCER_FENCED
    if current.state is State.ONGOING or not commit:
        return None  # a transaction without partitions is aborted, too: the epoch is bumped
    return ErrorCode.INVALID_TXN_STATE


def _repeated(current: Transaction, *, commit: bool) -> ErrorCode | None:
    """Return the code for a transaction that is already decided; None: it is not."""
    if current.state is State.ONGOING:
        return None
    if current.state.is_preparing and commit == (current.state is State.PREPARE_COMMIT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state.is_complete and commit == (current.state is State.COMPLETE_COMMIT):
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE
