"""One partition as its leader sees it: the log, the high watermark, and the fetches that wait for more.

``log start offset <= last stable offset <= high watermark <= log end offset`` at all times. On one node the high
watermark follows the log end at once, except during a flush that ``klamm.acks.fsync`` or ``flush.messages`` requires:
then the high watermark and the acknowledgements wait for the disk (one flush serves all the appends before it).

All methods run on the loop without an await: an append and the wake-up of its readers happen together.

Background work on the files (compaction, a move) uses their paths, so code that renames the directory ends that work
first: `file_work`.
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
    """Background work on the files of a partition."""

    async def end(self) -> None:
        """End the work, complete or not. Returns when it no longer uses the files."""


async def end_file_work(work: Iterable[FileWork]) -> None:
    """End all of this work. Returns when none of it uses the files."""
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
            log.set_high_watermark(log.log_end_offset)  # all records on disk are committed: one replica
        self.waiters: set[Callable[[Partition, int], None]] = set()
        self.configure(values)

    def configure(self, values: Mapping[str, object]) -> None:
        """Apply the topic's config (Kafka's topic keys, typed)."""
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
        """Set the number of replicas, and of those in sync."""
        self.replica_count = count
        self.in_sync_count = in_sync_count
        self.lacks_replicas = in_sync_count < self._needed_in_sync()

    def _needed_in_sync(self) -> int:
        """Return the in-sync replicas that min.insync.replicas requires: as in Kafka 4, at most the replica count."""
        return min(self.min_insync_replicas, self.replica_count)

    def check_replicas(self) -> None:
        """Refuse an append with acks=all while too few replicas are in sync. Raises NotEnoughReplicas."""
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
        """Records below this offset are committed. The log holds it, because truncation of the log moves it, too."""
        return self.log.high_watermark if self.log is not None else -1

    @property
    def last_stable_offset(self) -> int:
        """The offset at which read_committed readers stop: the high watermark, or the start of the first open
        transaction.
        """
        return self.log.last_stable_offset if self.log is not None else -1

    def online_log(self) -> Log:
        """Return the log. Raises KafkaStorageError while the partition is offline."""
        log = self.log
        if log is None:
            raise KafkaStorageError(f"{self.name} is offline: {self.offline_reason}")
        return log

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client with older or newer metadata than the broker's (KIP-320); -1 is not checked."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.name}: epoch {epoch} is older than the current {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.name}: epoch {epoch} is newer than the current {self.leader_epoch}")

    # -- append and read ----------------------------------------------------------------------------------------

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
        """Validate one batch and append it. Afterwards ``flush_pending`` says whether the ack must wait for a flush.

        A transactional batch that begins a transaction here needs the `guard` of `begin_verification`. Raises the
        errors of `validate` and of `Log.append`; also `NotAtOnce`, unless `valid` has the result of `validate` from a
        thread.
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
        """Append a batch made by a coordinator of this broker; otherwise like `append`.

        A batch with a producer id is part of that producer's transaction: `guard` as with `append`.
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
        """End a producer's transaction by its coordinator's decision; otherwise like `append`.

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
        """Return the guard of a transactional batch. Pass it to `append` once the coordinator has confirmed that the
        transaction is open and includes this partition. None: the producer has this transaction open here, so no
        verification is needed. `now_ms` is monotonic. Raises KafkaStorageError, InvalidProducerEpoch.
        """
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
        """Read whole batches from ``offset`` to below the offset ``up_to``. Raises what `Log.read` does."""
        return self.online_log().read_records(offset, max_bytes=max_bytes, max_offset=up_to, min_one=min_one)

    # -- waiters ------------------------------------------------------------------------------------------------

    def flushed(self, up_to: int) -> None:
        """Advance the high watermark: a flush has reached the disk up to the offset ``up_to``."""
        log = self.log
        assert log is not None
        if up_to >= log.log_end_offset:
            self.flush_pending = False
        if up_to > log.high_watermark:
            log.set_high_watermark(up_to)
            self.wake(0)

    def wake(self, size_bytes: int) -> None:
        """Notify every waiter that ``size_bytes`` more can be read (0: another change)."""
        for waiter in tuple(self.waiters):
            waiter(self, size_bytes)

    @property
    def offline_reason(self) -> str | None:
        """The reason for KAFKA_STORAGE_ERROR: the partition has no log, or its log has failed. None while it
        is online.
        """
        return self._no_log_reason if self.log is None else self.log.local.offline_reason

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def go_online(self, log: Log) -> None:
        """Start to serve a log that could not be created before."""
        self.log = log
        log.set_high_watermark(log.log_end_offset)
        self.wake(0)

    def go_offline(self, reason: str) -> None:
        """Stop serving. Waiters read again and get the error."""
        self.log = None
        self._no_log_reason = reason
        self.wake(0)


def append_rules(values: Mapping[str, object]) -> AppendRules:
    """Return the part of a topic's config that `validate` needs."""
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
