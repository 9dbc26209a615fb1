"""Why an EndTxn ends nothing: its producer is not the one that the coordinator knows, or it has come before."""

from __future__ import annotations

from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import EPOCH_BUMP_FROM, ProducerIdAndEpoch, Transaction
from klamm.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klamm.protocol.errors import ErrorCode


def refusal(entry: TransactionMetadata, who: ProducerIdAndEpoch, version: int, *, commit: bool) -> ErrorCode | None:
    """What an EndTxn that ends nothing is told: NONE when it has been carried out before. None: go on.

    The version is that of the request: the broker's own abort, for one, has bumped the epoch of a producer that knows
    of no such thing, and is fenced.
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
    """A repeated request has the epoch before; one with the current epoch is about the next transaction."""
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
        return None  # what has no partitions is aborted, too: the epoch is bumped
    return ErrorCode.INVALID_TXN_STATE


def _repeated(current: Transaction, *, commit: bool) -> ErrorCode | None:
    """The answer of a transaction that is decided, if it is."""
    if current.state is State.ONGOING:
        return None
    if current.state.is_preparing and commit == (current.state is State.PREPARE_COMMIT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state.is_complete and commit == (current.state is State.COMPLETE_COMMIT):
        return ErrorCode.NONE
    return ErrorCode.INVALID_TXN_STATE
