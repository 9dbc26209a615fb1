"""OffsetCommit and TxnOffsetCommit: writes offsets to the log, and decides those of transactions.

A commit counts when it is durable. `PendingTransactionalOffsets` holds the offsets of a transaction until the partition
has its marker. A transaction with many offsets is decided in turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from klamm.broker.coordinator.group.groups import Groups
from klamm.broker.coordinator.group.offsets import CommittedOffset, OffsetTable
from klamm.broker.coordinator.group.pending_transactional_offsets import (
    Key,
    OffsetsOfTransaction,
    PendingTransactionalOffsets,
)
from klamm.broker.coordinator.group.records import offset_record
from klamm.broker.coordinator.group.removals import PIECE, Removals, commit_error
from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.broker.coordinator.runtime.coordinator_writer import TransactionalProducer
from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime
from klamm.broker.coordinator.runtime.types import KeyValue, Now
from klamm.broker.coordinator.runtime.write_timeouts import Outcome, WriteTimeouts
from klamm.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from klamm.broker.metadata.image import TopicImage

Commit = tuple[str, int, CommittedOffset]


class Commits:
    """See the module's head. `late_markers` arrived while their partition was being loaded."""

    def __init__(
        self,
        offsets: OffsetTable,
        pending: PendingTransactionalOffsets,
        groups: Groups,
        removals: Removals,
        *,
        runtime: CoordinatorRuntime[Any],
        timeouts: WriteTimeouts,
        topics: Callable[[], Mapping[str, TopicImage]],
    ) -> None:
        self.count = 0
        self._offsets = offsets
        self._pending = pending
        self._groups = groups
        self._removals = removals
        self._runtime = runtime
        self._timeouts = timeouts
        self._topics = topics
        self._late_markers: dict[int, list[tuple[int, bool]]] = {}

    def commit(
        self, group_id: str, commits: Sequence[Commit], producer: TransactionalProducer | None = None
    ) -> Outcome:
        """Store all offsets of a request in one batch, and return the response code. With a ``producer``, the offsets
        count when its transaction commits.
        """
        now = self._runtime.now()
        answer: CompletableResult[ErrorCode] = CompletableResult()

        def done(code: ErrorCode, now: Now) -> None:
            if code is ErrorCode.NONE:
                for topic, partition, committed in commits:
                    self._stored(producer, (group_id, topic, partition), committed)
                self._groups.simple(group_id, now.wall_ms)
                self.count += len(commits)
            answer.complete(commit_error(code))

        def records() -> list[KeyValue]:
            return [offset_record(group_id, topic, partition, committed) for topic, partition, committed in commits]

        self._runtime.append(group_id, records, done, now, producer=producer)
        return self._timeouts.limited(answer, now)

    def _stored(self, producer: TransactionalProducer | None, key: Key, committed: CommittedOffset) -> None:
        """Apply an offset that is in the log: it counts, or waits for the outcome of its transaction."""
        if producer is not None:
            self._pending.add(self._runtime.topic.index_of(key[0]), producer.producer_id, key, committed)
            return
        self._pending.overtake(key)
        self._put(key, committed)

    def _put(self, key: Key, committed: CommittedOffset) -> None:
        self._offsets.put(*key, committed)
        if committed.is_stale(self._topics().get(key[1])):  # its topic was deleted meanwhile
            self._removals.remove(key[0], [(key[1], key[2])])

    # -- the end of a transaction -------------------------------------------------------------------------------

    def transaction_ended(self, index: int, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """Decide the offsets of a transaction: the partition ``index`` has its marker."""
        if not self._runtime.topic.is_loaded(index):
            self._late_markers.setdefault(index, []).append((producer_id, commit))
            return
        self._end(index, producer_id, commit=commit)

    def loaded(self, index: int) -> None:
        """Decide transactions that ended while the partition was being loaded."""
        for producer_id, commit in self._late_markers.pop(index, ()):
            self._end(index, producer_id, commit=commit)

    def forget_markers(self) -> None:
        """Drop the markers that arrived early: their topic is deleted."""
        self._late_markers.clear()

    def _end(self, index: int, producer_id: int, *, commit: bool) -> None:
        """Decide the offsets of a transaction, many in turns; undecided ones stay unstable."""
        transaction = self._pending.ended(index, producer_id)
        if transaction is not None:
            self._decide(transaction, commit=commit)
            if transaction.offsets:
                self._runtime.tasks.start(self._decide_in_turns(transaction, commit=commit))

    async def _decide_in_turns(self, transaction: OffsetsOfTransaction, *, commit: bool) -> None:
        while transaction.offsets:
            self._decide(transaction, commit=commit)
            await asyncio.sleep(0)

    def _decide(self, transaction: OffsetsOfTransaction, *, commit: bool) -> None:
        wall_ms = self._runtime.now().wall_ms
        for key, committed in self._pending.decide(transaction, commit=commit, at_most=PIECE).items():
            self._groups.simple(key[0], wall_ms)
            self._put(key, committed)
