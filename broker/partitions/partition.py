"""One partition as its leader sees it: the log, how far it is committed, and those who wait for more.

``log start offset <= last stable offset <= high watermark <= log end offset`` at all times. On one node the high
watermark follows the log end at once, except while a flush that ``klamm.acks.fsync`` or ``flush.messages`` asks for is
under way: then it waits for the disk, and so do the acknowledgements (one flush serves all the appends before it).

Everything here runs on the loop and none of it awaits: an append and the wake-up of its readers change together.

What is at the files in the background (compaction, a move) goes by their names, so whatever renames the directory ends
it first: `file_work`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from klamm.protocol.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotEnoughReplicas,
    TransactionalIdAuthorizationFailed,
    UnknownLeaderEpoch,
)
from klamm.protocol.records.control import EndMarker
from klamm.protocol.records.validate import AppendRules, ValidBatch, valid_marker, valid_own, validate
from klamm.storage.log.log_config import LONG_MAX
from klamm.storage.paths import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from klamm.broker.metrics import TopicMetrics
    from klamm.storage.log.log import Log
    from klamm.storage.log.results import AppendResult, LogRead
    from klamm.storage.log.transaction_verification import VerificationGuard


class FileWork(Protocol):
    """Something in the background that is at the files of a partition."""

    async def end(self) -> None:
        """Let it end, done or not; returns when it is not at the files any more."""


async def end_file_work(work: Iterable[FileWork]) -> None:
    """Return when none of it is at its files any more."""
    await asyncio.gather(*[each.end() for each in work])


class Partition:
    """The leader's view of one partition. ``log`` is None while it has none: see ``offline_reason``."""

    __slots__ = (
        "_no_log_reason",
        "file_work",
        "flush_ms",
        "flush_pending",
        "has_flush_rule",
        "in_sync_count",
        "index",
        "internal",
        "is_moving",
        "lacks_replicas",
        "leader_epoch",
        "log",
        "metrics",
        "min_insync_replicas",
        "name",
        "replica_count",
        "rules",
        "topic",
        "topic_id",
        "waiters",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log | None,
        *,
        leader_epoch: int,
        values: Mapping[str, object],
        metrics: TopicMetrics,
        internal: bool = False,
        offline_reason: str = "",
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.name = f"{topic}-{index}"
        self.log = log
        self.leader_epoch = leader_epoch
        self.metrics = metrics
        self.internal = internal
        self._no_log_reason = offline_reason
        self.replica_count = 1
        self.in_sync_count = 1
        self.flush_pending = False
        self.is_moving = False  # to another log directory
        self.file_work: set[FileWork] = set()
        if log is not None:
            log.set_high_watermark(log.log_end_offset)  # what is on disk is committed: one replica
        self.waiters: set[Callable[[Partition, int], None]] = set()
        self.configure(values)

    def configure(self, values: Mapping[str, object]) -> None:
        """Take the topic's config (Kafka's topic keys, typed)."""
        self.rules = append_rules(values)
        minimum = values["min.insync.replicas"]
        flush_ms = values["flush.ms"]
        assert isinstance(minimum, int) and isinstance(flush_ms, int)
        self.min_insync_replicas = minimum
        self.set_replicas(self.replica_count, self.in_sync_count)
        self.flush_ms = flush_ms
        self.has_flush_rule = bool(
            flush_ms != LONG_MAX or values["flush.messages"] != LONG_MAX or values.get("klamm.acks.fsync")
        )

    def set_replicas(self, count: int, in_sync_count: int) -> None:
        """How many replicas there are, and how many of them are in sync."""
        self.replica_count = count
        self.in_sync_count = in_sync_count
        self.lacks_replicas = in_sync_count < self._needed_in_sync()

    def _needed_in_sync(self) -> int:
        """As in Kafka 4, min.insync.replicas asks for no more replicas than the partition has."""
        return min(self.min_insync_replicas, self.replica_count)

    def check_replicas(self) -> None:
        """Refuse what all replicas are to have while too few of them are in sync. Raises NotEnoughReplicas."""
        if self.lacks_replicas:
            raise NotEnoughReplicas(
                f"{self.name} has {self.in_sync_count} of {self._needed_in_sync()} replicas in sync"
            )

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    # -- offsets ------------------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset if self.log is not None else -1

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset if self.log is not None else -1

    @property
    def high_watermark(self) -> int:
        """What is below it is committed. The log keeps it: what cuts the log moves it, too."""
        return self.log.high_watermark if self.log is not None else -1

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: the high watermark, or the first record of a transaction that is open."""
        return self.log.last_stable_offset if self.log is not None else -1

    def online_log(self) -> Log:
        """The log; raises KafkaStorageError while the partition is offline."""
        log = self.log
        if log is None:
            raise KafkaStorageError(f"{self.name} is offline: {self.offline_reason}")
        return log

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata is older or newer than ours (KIP-320); -1 is not checked."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name}: epoch {epoch} is older than the current {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.name}: epoch {epoch} is newer than the current {self.leader_epoch}")

    # -- the two verbs ------------------------------------------------------------------------------------------

    def append_records(
        self,
        records: memoryview | None,
        *,
        produce_version: int,
        now_ms: int,
        transactional_id: str | None = None,
        guard: VerificationGuard | None = None,
        valid: ValidBatch | None = None,
    ) -> AppendResult:
        """Validate one batch and append it. After it ``flush_pending`` tells whether the ack must wait for a flush.

        A transactional batch that begins a transaction here needs the `guard` of `begin_verification`. Raises the
        errors of `validate` and of `Log.append`; `NotAtOnce` unless what `validate` has made of it in a thread is
        given as `valid`.
        """
        log = self.log
        if log is None:
            raise KafkaStorageError(f"{self.name} is offline: {self.offline_reason}")
        batch = valid or validate(records, self.rules, produce_version=produce_version, now_ms=now_ms, at_once=True)
        if batch.is_transactional and transactional_id is None:
            raise TransactionalIdAuthorizationFailed(f"{self.name}: a transactional batch without transactional id")
        result = log.append_as_leader(batch, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        if result.duplicate:
            if (
                log.local.unflushed_messages >= log.local.config.flush_messages
            ):  # its first append may not be on the disk yet
                self.flush_pending = True
            return result
        metrics = self.metrics
        metrics.bytes_in += batch.size_bytes
        metrics.messages_in += batch.record_count
        self._appended(log, batch.size_bytes)
        return result

    def append_coordinator_records(
        self, records: bytearray, *, now_ms: int, guard: VerificationGuard | None = None
    ) -> AppendResult:
        """Append a batch that the broker has made itself (a coordinator's); otherwise as `append`.

        One with a producer id is part of its transaction: `guard` as with `append`.
        """
        log = self.online_log()
        batch = valid_own(records, self.rules, now_ms)
        result = log.append_as_leader(
            batch, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard, by_coordinator=True
        )
        self._appended(log, batch.size_bytes)
        return result

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """End the transaction of a producer, as its coordinator has decided; otherwise as `append`.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, KafkaStorageError.
        """
        log = self.online_log()
        marker = EndMarker(is_commit, coordinator_epoch, now_ms)
        batch = valid_marker(producer_id, producer_epoch, marker, self.rules)
        result = log.append_marker(
            batch, marker, transaction_version=transaction_version, leader_epoch=self.leader_epoch, now_ms=now_ms
        )
        self._appended(log, batch.size_bytes)
        return result

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, begins_at_zero: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Before a transactional batch: the guard to hand to `append` once the coordinator has said that the
        transaction is open and has this partition in it. None: the producer has this transaction open here, nobody
        need be asked. `now_ms` is monotonic. Raises KafkaStorageError, InvalidProducerEpoch."""
        log = self.online_log()
        open_epoch = log.producers.open_epoch(producer_id)
        if open_epoch is not None:
            log.producers.check_epoch(producer_id, producer_epoch)
            if producer_epoch == open_epoch:
                return None
        return log.verifications.begin(
            producer_id, producer_epoch, base_sequence, begins_at_zero=begins_at_zero, now_ms=now_ms
        )

    def _appended(self, log: Log, size_bytes: int) -> None:
        if self.has_flush_rule and log.local.unflushed_messages >= log.local.config.flush_messages:
            self.flush_pending = True
        if not self.flush_pending:
            log.set_high_watermark(log.local.log_end_offset)
            if self.waiters:
                self.wake(size_bytes)

    def fetch_records(self, offset: int, *, max_bytes: int, min_one: bool, up_to: int) -> LogRead:
        """Whole batches from ``offset`` to below the offset ``up_to``. Raises what `Log.read` does."""
        return self.online_log().read_records(offset, max_bytes=max_bytes, max_offset=up_to, min_one=min_one)

    # -- waiting ------------------------------------------------------------------------------------------------

    def flushed(self, up_to: int) -> None:
        """A flush has reached the disk up to the offset ``up_to``: what it covers becomes visible."""
        log = self.log
        assert log is not None
        if up_to >= log.log_end_offset:
            self.flush_pending = False
        if up_to > log.high_watermark:
            log.set_high_watermark(up_to)
            self.wake(0)

    def wake(self, size_bytes: int) -> None:
        """Tell every waiter that ``size_bytes`` more can be read (0: look for yourself)."""
        for waiter in tuple(self.waiters):
            waiter(self, size_bytes)

    @property
    def offline_reason(self) -> str | None:
        """Why it answers KAFKA_STORAGE_ERROR: it has no log, or its log has failed. None while it is online."""
        return self._no_log_reason if self.log is None else self.log.local.offline_reason

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def go_online(self, log: Log) -> None:
        """Begin to serve a log that could not be made before."""
        self.log = log
        log.set_high_watermark(log.log_end_offset)
        self.wake(0)

    def go_offline(self, reason: str) -> None:
        """Stop serving; waiters look again and are told."""
        self.log = None
        self._no_log_reason = reason
        self.wake(0)


def append_rules(values: Mapping[str, object]) -> AppendRules:
    """What `validate` needs of a topic's config."""
    compression = str(values["compression.type"])
    level = values.get(f"compression.{compression}.level")
    numbers = {name: value for name, value in values.items() if isinstance(value, int)}
    return AppendRules(
        max_message_bytes=numbers["max.message.bytes"],
        segment_bytes=numbers["segment.bytes"],
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=numbers["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=numbers["message.timestamp.after.max.ms"],
        compression=compression,
        compression_level=level if isinstance(level, int) else None,
        compacted="compact" in str(values["cleanup.policy"]),
        max_decompressed_bytes=numbers.get("max.decompressed.message.bytes", 100 << 20),
    )
