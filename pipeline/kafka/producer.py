"""A producer of whole batches, idempotent or transactional, over `klamm.client`.

    with Producer(cluster, transactional_id="mirror.flights-0") as producer:      # fences earlier users of the id
        producer.begin()
        producer.send(TopicPartition("flights", 0), batch)                         # bytearray, rewritten in place
        producer.send_offsets("mirror", {TopicPartition("flights", 0): 4711})      # in the same transaction
        producer.commit()

A batch comes from `encoding.encode_batches`, or was read from a log. It must have all its offsets, no control records
and no log append time. `send` writes producer id, epoch and sequence into it, sets or clears the transactional bit and
recomputes the checksum. The buffer belongs to the producer until `flush`, `commit` or `abort` returns.

`delivery` sends the batches. When a leader moves, or a connection breaks, unanswered batches are sent again in order,
for the cluster's `timeout_s` after the last success; the broker drops those it has already. Any other error ends the
transaction: `NotWritten`, or `ProducerFenced` when another producer has taken over. After such an error call only
`abort` and `close`.

With transaction.version 2 (finalized at the broker; KIP-890) the first write adds a partition to the transaction, and
each transaction has an epoch of its own. Older brokers need AddPartitionsToTxn and AddOffsetsToTxn.

If the process is killed, the next producer with the same id aborts the open transaction, or the coordinator does after
`transaction_timeout_s`. When `commit` raises, the outcome may be unknown: read the offsets of the group again
(`require_stable`) after the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from klamm import __version__
from klamm.pipeline.errors import ClusterError, ProducerFenced
from klamm.pipeline.kafka.cluster import Cluster, by_topic, error_code
from klamm.pipeline.kafka.coordinator import Coordinator, KeyType
from klamm.pipeline.kafka.delivery import Appended, Batch, Delivery, check
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.end_txn import EndTxnRequest
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

TRANSACTION_TIMEOUT_S: Final = 60.0
TRANSACTION_VERSION: Final = "transaction.version"
IMPLICIT: Final = 2
"""The first transaction.version with which a write adds its partition or group to the transaction."""
IMPLICIT_PRODUCE: Final = 12
IMPLICIT_OFFSETS: Final = 5
IMPLICIT_END: Final = 5
LEAST_PRODUCE: Final = 3
PRODUCERS_ADD_PARTITIONS_UP_TO: Final = 3
STABLE_INIT: Final = 5


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """All that another process needs to end a transaction; the versions are those of EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    least_version: int
    most_version: int


class Producer:
    """An idempotent or transactional producer. Not for use by several threads at once."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    ) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.transaction_timeout_s = transaction_timeout_s
        self._delivery = Delivery(cluster, transactional_id)
        self._coordinator = (
            Coordinator(cluster, transactional_id, KeyType.TRANSACTION) if transactional_id is not None else None
        )
        self._implicit = False
        self._in_transaction = False
        self._joined: set[TopicPartition | str] = set()

    @property
    def unanswered(self) -> int:
        """Return the number of unanswered batches."""
        return self._delivery.unanswered

    # -- life

    def start(self) -> None:
        """Get a producer id. A transactional producer fences its predecessors and ends their open transaction."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=int(self.transaction_timeout_s * 1000)
        )
        if self._coordinator is None:
            response = self._asked(request)
            self._delivery.versions = (LEAST_PRODUCE, IMPLICIT_PRODUCE)
        else:
            self._implicit = self._transaction_version() >= IMPLICIT
            self._delivery.versions = (
                (IMPLICIT_PRODUCE, IMPLICIT_PRODUCE) if self._implicit else (LEAST_PRODUCE, IMPLICIT_PRODUCE - 1)
            )
            response = self._coordinator.request(request, _own_code, most=STABLE_INIT)
        self._check(response.error_code, "no producer id")
        self._delivery.become(response.producer_id, response.producer_epoch)

    def close(self) -> None:
        """Close the connections. An open transaction is left to its timeout, or to the next producer."""
        self._delivery.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Abort an open transaction, if possible; without a transaction, wait for the answers."""
        try:
            if self._in_transaction:
                if not isinstance(error, ProducerFenced):
                    self.abort()
            elif error is None:
                self.flush()
        except ClusterError:
            if error is None:
                raise
        finally:
            self.close()

    # -- batches

    def send(self, partition: TopicPartition, batch: Batch, appended: Appended | None = None) -> None:
        """Send one batch; wait while too many are in flight. Raises NotWritten for this or any earlier one."""
        assert self._in_transaction or self.transactional_id is None, "begin() comes first"
        if self._in_transaction:
            self.join([partition])
        self._delivery.send(partition, batch, appended, transactional=self._in_transaction)

    def flush(self) -> None:
        """Wait until all batches are in the log. Raises NotWritten."""
        self._delivery.flush()

    # -- transactions

    def begin(self) -> None:
        assert self.transactional_id is not None and not self._in_transaction
        self._in_transaction = True

    def join(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction. Brokers that need a request for it handle many at once faster."""
        new = [one for one in partitions if one not in self._joined]
        if new and not self._implicit:
            assert self._coordinator is not None
            topics = [
                AddPartitionsToTxnTopic(name=topic, partitions=[one.partition for one in items])
                for topic, items in by_topic(new).items()
            ]
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id or "",
                v3_and_below_producer_id=self._delivery.producer_id,
                v3_and_below_producer_epoch=self._delivery.producer_epoch,
                v3_and_below_topics=topics,
            )
            response = self._coordinator.request(request, _partition_codes, most=PRODUCERS_ADD_PARTITIONS_UP_TO)
            for topic in response.results_by_topic_v3_and_below:
                for item in topic.results_by_partition:
                    self._check(item.partition_error_code, f"{topic.name}-{item.partition_index}")
        self._joined.update(new)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit a group's offsets with the transaction. The group needs no members."""
        assert self._in_transaction and self._coordinator is not None
        if not self._implicit and group not in self._joined:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id or "",
                producer_id=self._delivery.producer_id,
                producer_epoch=self._delivery.producer_epoch,
                group_id=group,
            )
            self._check(self._coordinator.request(adding, _own_code).error_code, f"group {group}")
        self._joined.add(group)
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=one.partition, committed_offset=offsets[one], committed_metadata=metadata
                    )
                    for one in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id or "",
            group_id=group,
            producer_id=self._delivery.producer_id,
            producer_epoch=self._delivery.producer_epoch,
            topics=topics,
        )
        group_coordinator = Coordinator(self.cluster, group, KeyType.GROUP)
        least, most = self._versions(IMPLICIT_OFFSETS)
        response = group_coordinator.request(request, _offset_codes, least=least, most=most)
        for code in _offset_codes(response):
            self._check(code, f"offsets of group {group}")

    def commit(self) -> None:
        """Wait for all answers, and commit the transaction."""
        self.flush()
        self._end(committed=True)

    def leave_open(self) -> OpenTransaction | None:
        """Wait for all answers, and leave the end of the transaction to `two_phase_commit`; return None if it is empty.

        Do not use the producer after this. A later one with the same id would abort the transaction.
        """
        self.flush()
        assert self._in_transaction and self.transactional_id is not None
        self._in_transaction = False
        if not self._joined:
            return None
        delivery = self._delivery
        return OpenTransaction(
            self.transactional_id, delivery.producer_id, delivery.producer_epoch, *self._versions(IMPLICIT_END)
        )

    def abort(self) -> None:
        """Drop the unanswered batches, and abort the transaction."""
        dropped = self._delivery.drop()
        self._end(committed=False)
        if dropped:
            self.start()  # it is unknown which sequences the brokers have seen

    def _end(self, *, committed: bool) -> None:
        assert self._in_transaction and self._coordinator is not None
        if self._joined:
            request = EndTxnRequest(
                transactional_id=self.transactional_id or "",
                producer_id=self._delivery.producer_id,
                producer_epoch=self._delivery.producer_epoch,
                committed=committed,
            )
            least, most = self._versions(IMPLICIT_END)
            response = self._coordinator.request(request, _own_code, least=least, most=most)
            self._check(response.error_code, "the end of the transaction")
            if self._implicit and response.producer_id >= 0:
                self._delivery.become(response.producer_id, response.producer_epoch)
        self._joined.clear()
        self._in_transaction = False

    # -- versions and codes

    def _asked(self, request: InitProducerIdRequest) -> Any:
        """Get a producer id without a transactional id, from any broker."""
        retries = self.cluster.retries()
        while True:
            response = self.cluster.ask(request)
            code = error_code(response.error_code)
            if not code.retriable:
                return response
            retries.again(f"no producer id: {code.name}, {code.default_message}")

    def _transaction_version(self) -> int:
        features = self.cluster.ask(
            ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        )
        return next(
            (item.max_version_level for item in features.finalized_features if item.name == TRANSACTION_VERSION), 0
        )

    def _versions(self, implicit_since: int) -> tuple[int, int]:
        """Return the lowest and highest version to use. From `implicit_since` on, a write joins the transaction."""
        return (implicit_since, implicit_since) if self._implicit else (0, implicit_since - 1)

    def _check(self, code: int, what: str) -> None:
        check(code, what, self.transactional_id)


def _own_code(response: Any) -> Iterable[int]:
    return [response.error_code]


def _offset_codes(response: Any) -> list[int]:
    return [item.error_code for topic in response.topics for item in topic.partitions]


def _partition_codes(response: Any) -> list[int]:
    return [
        item.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for item in topic.results_by_partition
    ]
