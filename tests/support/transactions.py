"""A producer of transactions, request by request: the requests of a client library, without its checks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from klamm.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from klamm.protocol.messages.describe_producers import DescribeProducersRequest
from klamm.protocol.messages.describe_producers import TopicRequest as ProducersOfTopic
from klamm.protocol.messages.describe_transactions import DescribeTransactionsRequest
from klamm.protocol.messages.end_txn import EndTxnRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.list_transactions import ListTransactionsRequest
from klamm.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from klamm.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.protocol.records.batch import Record, encode_batch

TOPIC: Final = "t"
PATIENCE_S: Final = 20.0
READ_COMMITTED: Final = 1
UNDER_WAY: Final = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Node(Protocol):
    """Anything that answers requests."""

    def request(self, request: Any, version: int) -> Any: ...


class Client:
    """A client with one method for each request of transactions."""

    def __init__(self, node: Node, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self.node = node
        self._now_ms = now_ms

    def settled(self, request: Any, version: int) -> Any:
        """The answer when it is not CONCURRENT_TRANSACTIONS any more."""
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self.node.request(request, version)
            if not UNDER_WAY.intersection(codes(answer)) or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def init(
        self, name: str | None, version: int, identity: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        return self.settled(request, version)

    def started(self, name: str, version: int) -> tuple[int, int]:
        answer = self.init(name, version)
        return answer.producer_id, answer.producer_epoch

    def fence(self, name: str) -> Any:
        """The answer to a second producer, when the transaction of the first one is aborted."""
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self.node.request(request, 4)
        self.complete(name)
        return answer

    def add(self, name: str, identity: tuple[int, int], version: int, *partitions: int, topic: str = TOPIC) -> Any:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=identity[0],
                v3_and_below_producer_epoch=identity[1],
                v3_and_below_topics=topics,
            )
        else:
            row = AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[row])
        return self.settled(request, version)

    def verify(self, name: str, identity: tuple[int, int], version: int, *partitions: int, topic: str = TOPIC) -> Any:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        row = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], verify_only=True, topics=topics
        )
        answer = self.settled(AddPartitionsToTxnRequest(transactions=[row]), version)
        for found in answer.results_by_transaction:
            for results in found.topic_results:
                results.results_by_partition.sort(key=lambda result: result.partition_index)
        return answer

    def end(self, name: str, identity: tuple[int, int], version: int, *, commit: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=commit
        )
        return self.settled(request, version)

    def produce(
        self,
        name: str | None,
        identity: tuple[int, int],
        version: int,
        *,
        sequence: int = 0,
        partition: int = 0,
        **more: Any,
    ) -> Any:
        batch = encode_batch(
            [Record(0, self._now_ms(), b"k", b"v", ())],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            transactional=True,
            **more,
        )
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
        return self.settled(request, version)

    def add_offsets(self, name: str, identity: tuple[int, int], version: int, group: str) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], group_id=group
        )
        return self.settled(request, version)

    def commit_offsets(
        self, name: str, identity: tuple[int, int], version: int, group: str, offset: int, **more: Any
    ) -> Any:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=identity[0],
            producer_epoch=identity[1],
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[row])],
            **more,
        )
        return self.settled(request, version)

    def offsets(self, group: str, *, stable: bool) -> Any:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        asked = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
        )
        return self.node.request(asked, 9)

    def stable_offsets(self, group: str) -> Any:
        """The committed offset of partition 0 once no transaction is open that has committed one."""
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self.offsets(group, stable=True)
            if ErrorCode.UNSTABLE_OFFSET_COMMIT not in codes(answer) or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def complete(self, name: str) -> str:
        """The state of a transaction once it is complete."""
        end = time.monotonic() + PATIENCE_S
        while True:
            state: str = self.describe(name).transaction_states[0].transaction_state
            if state.startswith("Complete") or time.monotonic() > end:
                return state
            time.sleep(0.02)

    def ends(self) -> tuple[int, int]:
        """High watermark and last stable offset of partition 0."""
        found = []
        for level in (0, READ_COMMITTED):
            rows = [ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
            answer = self.node.request(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=rows), 7)
            found.append(answer.topics[0].partitions[0].offset)
        return found[0], found[1]

    def stable(self) -> None:
        """Wait until no transaction of partition 0 is open."""
        end = time.monotonic() + PATIENCE_S
        while len(set(self.ends())) > 1:
            assert time.monotonic() < end, self.ends()
            time.sleep(0.02)

    def fetch(self, level: int) -> Any:
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=level,
            topics=[FetchTopic(topic=TOPIC, partitions=[row])],
        )
        answer = self.node.request(request, 12)
        part = answer.responses[0].partitions[0]
        part.records = None
        return part

    def markers(self, identity: tuple[int, int], version: int, *, commit: bool, epoch: int = 0, **more: Any) -> Any:
        row = WritableTxnMarker(
            producer_id=identity[0],
            producer_epoch=identity[1],
            transaction_result=commit,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 9])],
            coordinator_epoch=epoch,
            **more,
        )
        return self.node.request(WriteTxnMarkersRequest(markers=[row]), version)

    def describe(self, *names: str) -> Any:
        return self.node.request(DescribeTransactionsRequest(transactional_ids=list(names)), 0)

    def list(self, version: int = 2, **filters: Any) -> Any:
        answer = self.node.request(ListTransactionsRequest(**filters), version)
        answer.transaction_states.sort(key=lambda row: row.transactional_id)
        return answer

    def producers(self) -> Any:
        topics = [
            ProducersOfTopic(name=TOPIC, partition_indexes=[0, 9]),
            ProducersOfTopic(name="none", partition_indexes=[0]),
        ]
        answer = self.node.request(DescribeProducersRequest(topics=topics), 0)
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.active_producers.sort(key=lambda row: row.producer_id)
        return answer


def codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return {code for item in value for code in codes(item)}
    found = set()
    for field in getattr(type(value), "__slots__", ()):
        inner = getattr(value, field)
        found |= {inner} if field.endswith("error_code") else codes(inner)
    return found
