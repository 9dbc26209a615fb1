"""The transactions of one broker: a state machine without clock, log or sockets.

Requests come in with the time. Responses go out through callbacks, at once or when the state they report is in the log.
A transactional id takes one step at a time; a request that comes in between gets CONCURRENT_TRANSACTIONS and is retried
by its client.

The end of a transaction has three parts. `store` writes the decision; from then on it is final, and the client gets its
response. `write_markers` writes markers, and is repeated until each partition has its own. A second `store` records
that, and the next transaction may begin. After a crash `take` receives the last record of each id, and the machine goes
on from there. Source: Kafka's TransactionCoordinator; the differences in version 2 are those of KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from klamm.broker.coordinator.runtime import types
from klamm.broker.coordinator.runtime.timer_queue import TimerQueue
from klamm.broker.coordinator.runtime.types import Done, Now, TimerKey
from klamm.broker.coordinator.transaction.end_checks import refusal
from klamm.broker.coordinator.transaction.producer_ids import NO_PRODUCER_ID
from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import (
    EPOCH_BUMP_FROM,
    NO_EPOCH,
    NOBODY,
    Markers,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
)
from klamm.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
from klamm.protocol.errors import ErrorCode

TIMEOUT, RETRY = "timeout", "retry"  # of keys: (TIMEOUT, transactional id), (RETRY, transactional id)
KINDS = (TIMEOUT, RETRY)
RETRY_MS = 100
"""The pause before a failed write of a record or marker is tried again."""


ErrorCallback = Callable[[ErrorCode], None]
ProducerIdCallback = Callable[[ErrorCode, ProducerIdAndEpoch], None]


class Store(Protocol):
    """The storage of a transactional id's new state; None deletes the id."""

    def __call__(self, transactional_id: str, transaction: Transaction | None, done: Done, now: Now) -> None: ...


class WriteMarkers(Protocol):
    """Writes markers; `done` receives the partitions that have none yet."""

    def __call__(self, markers: Markers, done: Callable[[frozenset[TopicPartition], Now], None], now: Now) -> None: ...


class Transactions:
    """See the module's head. `version` is the highest protocol version that may be used."""

    def __init__(
        self,
        *,
        store: Store,
        write_markers: WriteMarkers,
        take_producer_id: Callable[[], int],
        timers: TimerQueue[TimerKey],
        version: int = EPOCH_BUMP_FROM,
    ) -> None:
        self.version = version
        self._store = store
        self._take_producer_id = take_producer_id
        self._write_markers = write_markers
        self._timers = timers
        self._entries: dict[str, TransactionMetadata] = {}
        self.committed_count = 0
        self.aborted_count = 0
        self.timed_out_count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Transaction]:
        return (entry.current for entry in self._entries.values())

    def get(self, transactional_id: str) -> Transaction | None:
        entry = self._entries.get(transactional_id)
        return entry.current if entry is not None else None

    def unmarked(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Return the partitions of a transaction; while it is ending, those that lack their marker."""
        entry = self._entries[transactional_id]
        return entry.unmarked if entry.current.state.is_preparing else entry.current.partitions

    # -- InitProducerId -----------------------------------------------------------------------------------------

    def needs_producer_id(self, transactional_id: str, *, ends: bool = False) -> bool:
        """Return whether InitProducerId or, with `ends`, EndTxn will need a new producer id."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            return not ends
        return entry.current.is_exhausted

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        fresh_id: int,
        now: Now,
        callback: ProducerIdCallback,
    ) -> None:
        """Start or restart a producer; `expected` is the identity it had. The previous user of the id is fenced."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            assert fresh_id >= 0
            entry = TransactionMetadata(Transaction(transactional_id, fresh_id, timeout_ms, now.wall_ms))
            self._entries[transactional_id] = entry
        current = entry.current
        if entry.pending is not None:
            callback(ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        elif expected is not None and not current.knows(*expected):
            callback(ErrorCode.PRODUCER_FENCED, NOBODY)
        elif current.state.is_preparing:
            callback(ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)
        elif current.state is State.ONGOING:

            def aborted(code: ErrorCode, _: ProducerIdAndEpoch) -> None:
                callback(code or ErrorCode.CONCURRENT_TRANSACTIONS, NOBODY)

            self._fence(entry, fresh_id, now, aborted)
        else:
            self._renew(entry, timeout_ms, expected, fresh_id, now, callback)

    def _renew(
        self,
        entry: TransactionMetadata,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        fresh_id: int,
        now: Now,
        callback: ProducerIdCallback,
    ) -> None:
        current = entry.current
        following: Transaction | None
        if current.is_exhausted and (expected is None or expected.producer_epoch == current.producer_epoch):
            following = current.rotated(fresh_id, timeout_ms, now.wall_ms, keeps_last_epoch=expected is not None)
        else:
            epoch = expected.producer_epoch if expected is not None else None
            following = current.renewed(timeout_ms, epoch, now.wall_ms)
        if following is None:
            callback(ErrorCode.PRODUCER_FENCED, NOBODY)
            return
        who = ProducerIdAndEpoch(following.producer_id, following.producer_epoch)
        self._step(entry, following, now, lambda code, _: callback(code, NOBODY if code else who))

    # -- AddPartitionsToTxn -------------------------------------------------------------------------------------

    def add_partitions(
        self,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        version: int,
        now: Now,
        callback: ErrorCallback,
    ) -> None:
        """Add partitions to the transaction; the first ones begin it."""
        code, entry = self._find(transactional_id, who)
        if entry is None:
            callback(code)
        elif entry.pending is not None or entry.current.state.is_preparing:
            callback(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif entry.current.state is State.ONGOING and partitions <= entry.current.partitions:
            callback(ErrorCode.NONE)
        else:
            following = entry.current.with_partitions(partitions, version, now.wall_ms)
            self._step(entry, following, now, lambda code, _: callback(code))

    def verify(self, transactional_id: str, who: ProducerIdAndEpoch, partition: TopicPartition) -> ErrorCode:
        """Check that a partition is part of the transaction (KIP-890): NONE, or the reason to refuse its records."""
        code, entry = self._find(transactional_id, who)
        if entry is None:
            return code
        if entry.current.state.is_preparing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if partition in entry.current.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def _find(self, transactional_id: str, who: ProducerIdAndEpoch) -> tuple[ErrorCode, TransactionMetadata | None]:
        entry = self._entries.get(transactional_id)
        if entry is None or entry.current.producer_id != who.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if entry.current.producer_epoch != who.producer_epoch:
            return ErrorCode.PRODUCER_FENCED, None
        return ErrorCode.NONE, entry

    # -- EndTxn -------------------------------------------------------------------------------------------------

    def end(
        self,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        version: int,
        fresh_id: int,
        now: Now,
        callback: ProducerIdCallback,
        *,
        commit: bool,
    ) -> None:
        """Commit or abort. The callback runs when the outcome is decided, with the producer's next epoch."""
        entry = self._entries.get(transactional_id)
        if entry is None:
            callback(ErrorCode.INVALID_PRODUCER_ID_MAPPING, NOBODY)
            return
        code = refusal(entry, who, version, commit=commit)
        current = entry.current
        if code is not None:
            callback(code, NOBODY if code else ProducerIdAndEpoch(current.producer_id, current.producer_epoch))
            return
        next_id = _next_id(current, version, fresh_id)
        following = current.ended(version, now.wall_ms, commit=commit, next_producer_id=next_id)
        self._decide(entry, following, now, callback)

    def _fence(self, entry: TransactionMetadata, fresh_id: int, now: Now, callback: ProducerIdCallback) -> None:
        """Abort a transaction and fence its producer."""
        next_id = _next_id(entry.current, self.version, fresh_id)
        self._decide(entry, entry.current.fenced(self.version, now.wall_ms, next_producer_id=next_id), now, callback)

    def _decide(
        self, entry: TransactionMetadata, following: Transaction, now: Now, callback: ProducerIdCallback
    ) -> None:
        def decided(code: ErrorCode, now: Now) -> None:
            if code is not ErrorCode.NONE:
                callback(code, NOBODY)
                return
            if following.state is State.PREPARE_COMMIT:
                self.committed_count += 1
            else:
                self.aborted_count += 1
            after = following.completed(now.wall_ms)
            callback(ErrorCode.NONE, ProducerIdAndEpoch(after.producer_id, after.producer_epoch))
            self._timers.cancel((TIMEOUT, following.transactional_id))
            self._complete(entry, following.partitions, now)

        self._step(entry, following, now, decided)

    def _complete(self, entry: TransactionMetadata, partitions: frozenset[TopicPartition], now: Now) -> None:
        """Write the missing markers, then the record that the transaction is complete."""
        current = entry.current
        assert current.state.is_preparing
        entry.unmarked = partitions

        def marked(unmarked: frozenset[TopicPartition], now: Now) -> None:
            if self._entries.get(current.transactional_id) is not entry:
                return  # unloaded meanwhile
            entry.unmarked = unmarked
            if unmarked:
                self._timers.set((RETRY, current.transactional_id), now.ms + RETRY_MS)
                return
            self._step(entry, current.completed(now.wall_ms), now, completed)

        def completed(code: ErrorCode, now: Now) -> None:
            if code is not ErrorCode.NONE:
                self._timers.set((RETRY, current.transactional_id), now.ms + RETRY_MS)

        if partitions:
            markers = Markers(
                current.transactional_id,
                current.producer_id,
                current.producer_epoch,
                current.state is State.PREPARE_COMMIT,
                current.client_version,
                partitions,
            )
            self._write_markers(markers, marked, now)
        else:
            marked(frozenset(), now)

    # -- steps --------------------------------------------------------------------------------------------------

    def _step(self, entry: TransactionMetadata, following: Transaction, now: Now, done: Done) -> None:
        """Take a step once it is in the log; until then no other step of this id may begin."""
        assert entry.pending is None
        entry.pending = following.state

        def stored(code: ErrorCode, now: Now) -> None:
            entry.pending = None
            if self._entries.get(following.transactional_id) is not entry:
                code = ErrorCode.NOT_COORDINATOR
            elif code is ErrorCode.NONE:
                began = following.state is State.ONGOING and entry.current.state is not State.ONGOING
                entry.current = following
                if began:
                    self._set_timeout(following, now)
            elif entry.current.producer_epoch == NO_EPOCH:  # the log has nothing of this id
                del self._entries[following.transactional_id]
            done(types.coordinator_error(code, too_large=ErrorCode.UNKNOWN_SERVER_ERROR), now)

        self._store(following.transactional_id, following, stored, now)

    def _set_timeout(self, transaction: Transaction, now: Now) -> None:
        left_ms = min(max(transaction.started_ms + transaction.timeout_ms - now.wall_ms, 0), transaction.timeout_ms)
        self._timers.set((TIMEOUT, transaction.transactional_id), now.ms + left_ms)

    def due(self, key: TimerKey, now: Now) -> None:
        """Handle a deadline of one of the KINDS."""
        kind, transactional_id = key
        entry = self._entries.get(transactional_id)
        if entry is None:
            return
        if entry.pending is not None:  # the write in progress may fail: check again later
            self._timers.set(key, now.ms + RETRY_MS)
        elif kind == RETRY and entry.current.state.is_preparing:
            self._complete(entry, entry.unmarked, now)
        elif kind == TIMEOUT and entry.current.state is State.ONGOING:
            self._time_out(entry, key, now)

    def _time_out(self, entry: TransactionMetadata, key: TimerKey, now: Now) -> None:
        """Abort a transaction that took too long; retry if that is not possible yet."""
        fresh_id = NO_PRODUCER_ID
        if entry.current.is_exhausted:
            fresh_id = self._take_producer_id()
            if fresh_id == NO_PRODUCER_ID:
                self._timers.set(key, now.ms + RETRY_MS)
                return

        def aborted(code: ErrorCode, _: ProducerIdAndEpoch) -> None:
            if code:
                self._timers.set(key, now.ms + RETRY_MS)
            else:
                self.timed_out_count += 1

        self._fence(entry, fresh_id, now, aborted)

    def expire(self, before_ms: int, now: Now, limit: int) -> list[str]:
        """Remove at most `limit` ids that are unused since `before_ms`; return those that could be removed."""
        old = (
            entry
            for entry in self._entries.values()
            if entry.pending is None
            and (entry.current.state is State.EMPTY or entry.current.state.is_complete)
            and entry.current.updated_ms <= before_ms
        )
        expired = list(islice(old, limit))
        for entry in expired:
            self._forget_expired(entry, now)
        ids = [entry.current.transactional_id for entry in expired]
        return [name for name, entry in zip(ids, expired, strict=True) if entry.pending or name not in self._entries]

    def _forget_expired(self, entry: TransactionMetadata, now: Now) -> None:
        transactional_id = entry.current.transactional_id
        entry.pending = State.DEAD

        def forgotten(code: ErrorCode, now: Now) -> None:
            entry.pending = None
            if code is ErrorCode.NONE and self._entries.get(transactional_id) is entry:
                del self._entries[transactional_id]

        self._store(transactional_id, None, forgotten, now)

    # -- loading and unloading ----------------------------------------------------------------------------------

    def take(self, transaction: Transaction, now: Now) -> None:
        """Take over an id from the log. Call `resume` when all are loaded."""
        self._entries[transaction.transactional_id] = TransactionMetadata(transaction)

    def resume(self, transactional_id: str, now: Now) -> None:
        """Continue a loaded transaction: complete a decided one, set the timeout of an ongoing one."""
        entry = self._entries.get(transactional_id)
        if entry is None:  # its topic was deleted meanwhile
            return
        if entry.current.state.is_preparing:
            self._complete(entry, entry.current.partitions, now)
        elif entry.current.state is State.ONGOING:
            self._set_timeout(entry.current, now)

    def forget(self, transactional_id: str) -> None:
        """Drop an id and its deadlines."""
        self._entries.pop(transactional_id, None)
        for kind in KINDS:
            self._timers.cancel((kind, transactional_id))


def _next_id(current: Transaction, version: int, fresh_id: int) -> int:
    """Return the producer id that follows the end of a transaction, if the current one has no epoch left."""
    if version < EPOCH_BUMP_FROM or not current.is_exhausted:
        return NO_PRODUCER_ID
    assert fresh_id >= 0
    return fresh_id
