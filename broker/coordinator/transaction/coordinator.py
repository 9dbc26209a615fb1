"""The transaction coordinator of a broker: the shell around the state machine.

It maps transactional ids to partitions of ``__transaction_state``, appends the machine's records, has markers written,
keeps the machine's deadlines, and expires unused ids. A response is sent when its records are as durable as acks=all
makes them: at once, unless a flush is due.

After a crash all state comes from the log: a decided transaction is completed, and no client learns an outcome that is
not in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from klamm.broker.controller.features import TRANSACTION_VERSION
from klamm.broker.coordinator.names import check_names
from klamm.broker.coordinator.runtime.completable_result import CompletableResult
from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime
from klamm.broker.coordinator.runtime.types import Done, KeyValue, Now
from klamm.broker.coordinator.transaction.loader import Replay
from klamm.broker.coordinator.transaction.markers import EndsTransactions, MarkerWriter, Unmarked
from klamm.broker.coordinator.transaction.producer_ids import NO_PRODUCER_ID
from klamm.broker.coordinator.transaction.records import transaction_key, transaction_value
from klamm.broker.coordinator.transaction.states import State
from klamm.broker.coordinator.transaction.transaction import (
    EPOCH_BUMP_FROM,
    Markers,
    ProducerIdAndEpoch,
    TopicPartition,
    Transaction,
)
from klamm.broker.coordinator.transaction.transactions import (
    KINDS,
    Transactions,
)
from klamm.broker.metadata.image import TRANSACTION_TOPIC
from klamm.broker.turns import in_turns
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.records.compression import Codec
from klamm.storage.log.retention import TrustedTime

if TYPE_CHECKING:
    from klamm.broker.background.flusher import Flusher
    from klamm.broker.controller.controller import Controller
    from klamm.broker.coordinator.transaction.producer_ids import ProducerIds
    from klamm.broker.metadata.image import MetadataImage
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager
    from klamm.config.broker_config import BrokerConfig
    from klamm.storage.clock import Clock
    from klamm.storage.log.transaction_verification import VerificationGuard

log = logging.getLogger(__name__)

EXPIRED_TOGETHER = 200  # transactional ids, each a record; the loop serves other events before the next ones
EXPIRY_PAUSE_MS = 50

Outcome = tuple[ErrorCode, ProducerIdAndEpoch]


class TransactionCoordinator:
    """See the module's head. All methods run on the loop. Methods that return a value or a future return the value
    unless a log has to be flushed first.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        controller: Controller,
        partitions: PartitionManager,
        flusher: Flusher,
        executor: Executor,
        producer_ids: ProducerIds,
        offsets: EndsTransactions,
    ) -> None:
        self._trusted = TrustedTime(clock)
        self._producer_ids = producer_ids
        self.runtime = runtime = CoordinatorRuntime(
            TRANSACTION_TOPIC,
            self,
            config,
            buffer_key="transaction.state.log.load.buffer.size",
            expiry_key="transaction.remove.expired.transaction.cleanup.interval.ms",
            codec=Codec.NONE,
            clock=clock,
            controller=controller,
            partitions=partitions,
            flusher=flusher,
            executor=executor,
        )
        self.topic, self.now = runtime.topic, runtime.now
        self.markers = MarkerWriter(partitions, flusher, offsets, self.now)
        self.state_machine = Transactions(
            store=self._store,
            write_markers=self.write_markers,
            take_producer_id=producer_ids.take,
            timers=runtime.timers,
        )
        runtime.when(KINDS, self.state_machine.due)
        self.configure(config)
        self._take_version(controller.image)

    def configure(self, config: BrokerConfig) -> None:
        """Apply a new config."""
        self.runtime.config = config
        self.max_timeout_ms = config.integer("transaction.max.timeout.ms")
        self.verifies = config.flag("transaction.partition.verification.enable")

    # -- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to load the log, and set the first expiry."""
        self.runtime.start()

    def close(self) -> None:
        """Stop: no more ticks or markers; later requests get NotCoordinator."""
        self.runtime.close()
        self.markers.close()

    def on_image(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply metadata changes: to the internal topic, and to the version of the transaction protocol."""
        self.runtime.on_image(old, new)
        if new.features is not old.features:
            self._take_version(new)

    def _take_version(self, image: MetadataImage) -> None:
        self.state_machine.version = image.features.finalized.get(TRANSACTION_VERSION, 0)

    def make_replay(self, partition: Partition) -> Replay:
        return Replay(partition.name, partition.rules.max_decompressed_bytes)

    async def take(self, index: int, replay: Replay) -> None:
        """Take over the loaded transactions, in turns. Decided ones are completed once all of the partition is here."""
        now = self.now()
        alive = [found for found in replay.transactions.values() if found.state is not State.DEAD]
        async for transaction in in_turns(alive):
            self.state_machine.take(transaction, now)
        async for transaction in in_turns(alive):
            self.state_machine.resume(transaction.transactional_id, now)
        log.info(
            "%s-%d: loaded, transactional_ids=%d records=%d skipped=%d",
            TRANSACTION_TOPIC,
            index,
            len(replay.transactions),
            replay.record_count,
            replay.skipped,
        )

    def unload(self, index: int | None) -> None:
        """Forget the transactional ids of a partition; None: of all."""
        for transactional_id in [transaction.transactional_id for transaction in self.state_machine]:
            if index is None or self.topic.index_of(transactional_id) == index:
                self.state_machine.forget(transactional_id)

    def expire(self, now: Now) -> None:
        """Forget transactional ids that have been unused for too long, `EXPIRED_TOGETHER` at a time."""
        self.runtime.set_expiry(now)
        before_ms = self._trusted.now_ms() - self.runtime.config.integer("transactional.id.expiration.ms")
        expired = self.state_machine.expire(before_ms, now, EXPIRED_TOGETHER)
        if expired:
            log.info("%d transactional id(s) expired", len(expired))
        if len(expired) == EXPIRED_TOGETHER:  # there may be more
            self.runtime.set_expiry(now, EXPIRY_PAUSE_MS)

    # -- requests -----------------------------------------------------------------------------------------------

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> Outcome:
        """Handle InitProducerId. Raises what `InternalTopic.check` does."""
        fresh_id = await self._fresh_id(transactional_id)
        now = self.now()
        answer: CompletableResult[Outcome] = CompletableResult()
        self.state_machine.init_producer_id(
            transactional_id, timeout_ms, expected, fresh_id, now, lambda code, who: answer.complete((code, who))
        )
        self.runtime.arm(now)
        return await answer.wait()

    def add_partitions(
        self, transactional_id: str, who: ProducerIdAndEpoch, partitions: frozenset[TopicPartition], version: int
    ) -> ErrorCode | asyncio.Future[ErrorCode]:
        """Handle AddPartitionsToTxn. Raises what `InternalTopic.check` does."""
        self._check(transactional_id)
        now = self.now()
        answer: CompletableResult[ErrorCode] = CompletableResult()
        self.state_machine.add_partitions(transactional_id, who, partitions, version, now, answer.complete)
        self.runtime.arm(now)
        return answer.value_or_future()

    def verify(self, transactional_id: str, who: ProducerIdAndEpoch, partition: TopicPartition) -> ErrorCode:
        """Return whether a partition is part of the transaction. Raises what `InternalTopic.check` does."""
        self._check(transactional_id)
        return self.state_machine.verify(transactional_id, who, partition)

    def add_or_verify_partition(
        self,
        partition: Partition,
        transactional_id: str,
        who: ProducerIdAndEpoch,
        base_sequence: int,
        *,
        adds: bool,
    ) -> VerificationGuard | asyncio.Future[VerificationGuard | None] | None:
        """Make sure that the partition of a transactional batch is part of the transaction, before the append
        (KIP-890).

        With version 2 of the protocol the batch itself `adds` the partition. Raises the coordinator's error as a
        KafkaError, directly or through the future.
        """
        guard = partition.begin_verification(
            who.producer_id, who.producer_epoch, base_sequence, begins_at_zero=adds, now_ms=self.now().ms
        )
        if guard is None or not (adds or self.verifies):
            return guard
        key = (partition.topic, partition.index)
        if not adds:
            _refuse(self.verify(transactional_id, who, key))
            return guard
        outcome = self.add_partitions(transactional_id, who, frozenset((key,)), EPOCH_BUMP_FROM)
        if isinstance(outcome, asyncio.Future):
            return asyncio.ensure_future(_verified(outcome, guard))
        _refuse(outcome)
        return guard

    async def end(self, transactional_id: str, who: ProducerIdAndEpoch, version: int, *, commit: bool) -> Outcome:
        """Handle EndTxn. Raises what `InternalTopic.check` does."""
        fresh_id = await self._fresh_id(transactional_id, ends=True)
        now = self.now()
        answer: CompletableResult[Outcome] = CompletableResult()
        self.state_machine.end(
            transactional_id, who, version, fresh_id, now, lambda code, who: answer.complete((code, who)), commit=commit
        )
        self.runtime.arm(now)
        return await answer.wait()

    async def _fresh_id(self, transactional_id: str, *, ends: bool = False) -> int:
        """Return a new producer id if the machine will need one. Raises what `InternalTopic.check` does."""
        self._check(transactional_id)
        fresh_id = NO_PRODUCER_ID
        while fresh_id == NO_PRODUCER_ID and self.state_machine.needs_producer_id(transactional_id, ends=ends):
            fresh_id = await self._producer_ids.next()
            self._check(transactional_id)
        return fresh_id

    def _check(self, transactional_id: str) -> None:
        check_names(transactional_id=transactional_id)
        self.topic.check(transactional_id)

    def transactions(self) -> Iterator[Transaction]:
        """Return all transactions of this coordinator."""
        return iter(self.state_machine)

    # -- calls from the state machine ---------------------------------------------------------------------------

    def _store(self, transactional_id: str, transaction: Transaction | None, done: Done, now: Now) -> None:
        def records() -> list[KeyValue]:
            value = transaction_value(transaction) if transaction is not None else None
            return [(transaction_key(transactional_id), value)]

        self.runtime.append(transactional_id, records, done, now)

    def write_markers(self, markers: Markers, done: Unmarked, now: Now) -> None:
        partition = self.topic.partition_for(markers.transactional_id)

        def written(unmarked: frozenset[TopicPartition], now: Now) -> None:
            done(unmarked, now)
            self.runtime.arm(now)

        self.markers.write(markers, _epoch(partition), written, now)


async def _verified(outcome: asyncio.Future[ErrorCode], guard: VerificationGuard) -> VerificationGuard | None:
    _refuse(await outcome)
    return guard


def _refuse(code: ErrorCode) -> None:
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"the transaction coordinator says {code.name}")


def _epoch(partition: Partition | None) -> int:
    """Return the coordinator epoch: the leader epoch of its partition."""
    return partition.leader_epoch if partition is not None else 0
