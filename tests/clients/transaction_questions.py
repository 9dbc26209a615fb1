"""Questions about transactions, in both versions of the protocol; for `test_transaction_reference.py`.

Each gives (name, answer). Where Apache Kafka finishes something in the background it answers CONCURRENT_TRANSACTIONS
for a while: `settled` asks again until it does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from klamm.client.blocking import NodeClient
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

Question = tuple[str, Any]
TOPIC: Final = "t"
PATIENCE_S: Final = 20.0
READ_COMMITTED: Final = 1
UNDER_WAY: Final = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Client:
    """Short ways to ask."""

    def __init__(self, node: NodeClient) -> None:
        self.node = node

    def settled(self, request: Any, version: int) -> Any:
        """The answer when it is not CONCURRENT_TRANSACTIONS any more."""
        end = time.monotonic() + PATIENCE_S
        while True:
            answer = self.node.request(request, version)
            if not UNDER_WAY.intersection(_codes(answer)) or time.monotonic() > end:
                return answer
            time.sleep(0.02)

    def init(self, name: str | None, version: int, who: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=who[0], producer_epoch=who[1]
        )
        return self.settled(request, version)

    def started(self, name: str, version: int) -> tuple[int, int]:
        answer = self.init(name, version)
        return answer.producer_id, answer.producer_epoch

    def add(self, name: str, who: tuple[int, int], version: int, *partitions: int, topic: str = TOPIC) -> Any:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=topics,
            )
        else:
            row = AddPartitionsToTxnTransaction(
                transactional_id=name, producer_id=who[0], producer_epoch=who[1], topics=topics
            )
            request = AddPartitionsToTxnRequest(transactions=[row])
        return self.settled(request, version)

    def verify(self, name: str, who: tuple[int, int], version: int, *partitions: int, topic: str = TOPIC) -> Any:
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        row = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], verify_only=True, topics=topics
        )
        answer = self.settled(AddPartitionsToTxnRequest(transactions=[row]), version)
        for found in answer.results_by_transaction:
            for results in found.topic_results:
                results.results_by_partition.sort(key=lambda result: result.partition_index)
        return answer

    def end(self, name: str, who: tuple[int, int], version: int, *, commit: bool) -> Any:
        request = EndTxnRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit)
        return self.settled(request, version)

    def produce(
        self,
        name: str | None,
        who: tuple[int, int],
        version: int,
        *,
        sequence: int = 0,
        partition: int = 0,
        **more: Any,
    ) -> Any:
        batch = encode_batch(
            [Record(0, int(time.time() * 1000), b"k", b"v", ())],
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=sequence,
            transactional=True,
            **more,
        )
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
        return self.settled(request, version)

    def add_offsets(self, name: str, who: tuple[int, int], version: int, group: str) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=group
        )
        return self.settled(request, version)

    def commit_offsets(
        self, name: str, who: tuple[int, int], version: int, group: str, offset: int, **more: Any
    ) -> Any:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=group,
            producer_id=who[0],
            producer_epoch=who[1],
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

    def markers(self, who: tuple[int, int], version: int, *, commit: bool, epoch: int = 0, **more: Any) -> Any:
        row = WritableTxnMarker(
            producer_id=who[0],
            producer_epoch=who[1],
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


def _codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return {code for item in value for code in _codes(item)}
    found = set()
    for field in getattr(type(value), "__slots__", ()):
        inner = getattr(value, field)
        found |= {inner} if field.endswith("error_code") else _codes(inner)
    return found


def questions(node: NodeClient) -> Iterator[Question]:
    """All of them, in their order."""
    client = Client(node)
    yield from _starting(client)
    yield from _version_1(client)
    yield from _version_2(client)
    yield from _offsets(client)
    yield from _markers(client)
    yield from _looking(client)


def _starting(client: Client) -> Iterator[Question]:
    for version in range(6):
        yield f"init v{version} empty", client.init("", version)
        yield f"init v{version} timeout 0", client.init("x", version, timeout_ms=0)
        yield f"init v{version} timeout -1", client.init("x", version, timeout_ms=-1)
        yield f"init v{version} timeout too long", client.init("x", version, timeout_ms=900_001)
        yield f"init v{version}", client.init(f"new {version}", version)
        yield f"init v{version} again", client.init(f"new {version}", version)
    for version in (3, 4, 5):
        first = client.started("again", version)
        yield f"init v{version} of the current one", client.init("again", version, first)
        yield f"init v{version} again of the current one", client.init("again", version, first)
        yield f"init v{version} of one fenced", client.init("again", version, (first[0], first[1] - 1))
        yield f"init v{version} of one to come", client.init("again", version, (first[0], first[1] + 9))
        yield f"init v{version} of another id", client.init("again", version, (first[0] + 1_000_000, first[1]))
        yield f"init v{version} of an unknown id", client.init(f"un {version}", version, (12_345_678, 4))
        yield f"init v{version} id without epoch", client.init("again", version, (first[0], -1))


def _version_1(client: Client) -> Iterator[Question]:
    """With the requests that clients before 4.0 send."""
    nobody = (12_345_678, 0)
    for version in range(4):
        yield f"add v{version} unknown", client.add("nothing", nobody, version, 0)
        yield f"add v{version} empty id", client.add("", nobody, version, 0)
        who = client.started("one", 4)
        yield f"add v{version} other id", client.add("one", nobody, version, 0)
        yield f"add v{version} old epoch", client.add("one", (who[0], who[1] - 1), version, 0)
        yield f"add v{version} unknown partition", client.add("one", who, version, 0, 9)
        yield f"add v{version} unknown topic", client.add("one", who, version, 0, topic="none")
    for version in (4, 5):
        yield f"verify v{version} nothing open", client.verify("one", who, version, 0)
        yield f"verify v{version} unknown", client.verify("nothing", nobody, version, 0)
        yield f"verify v{version} old epoch", client.verify("one", (who[0], who[1] - 1), version, 0)
    for version in (3, 8, 11):
        yield f"produce v{version} unverified", client.produce("one", who, version)
        yield f"produce v{version} without id", client.produce(None, who, version)
        yield f"produce v{version} unknown", client.produce("nothing", nobody, version)
    for version in range(5):
        for commit in (True, False):
            yield f"end v{version} {commit} of nothing", client.end("one", who, version, commit=commit)
            yield f"end v{version} {commit} unknown", client.end("nothing", nobody, version, commit=commit)
            yield f"end v{version} {commit} other id", client.end("one", nobody, version, commit=commit)
            yield f"end v{version} {commit} old epoch", client.end("one", (who[0], who[1] - 1), version, commit=commit)
            yield f"end v{version} {commit} empty id", client.end("", who, version, commit=commit)
    for version, commit in ((0, True), (2, False), (4, True), (4, False)):
        sequence = 0
        client.started("two", 4)
        who = client.started("two", 4)
        name = f"v{version} {commit}"
        yield f"add {name}", client.add("two", who, 3, 0)
        yield f"add again {name}", client.add("two", who, 3, 0)
        yield f"verify {name}", client.verify("two", who, 5, 0, 1)
        yield f"produce {name}", client.produce("two", who, 11, sequence=sequence)
        yield f"produce duplicate {name}", client.produce("two", who, 11, sequence=sequence)
        yield f"produce gap {name}", client.produce("two", who, 11, sequence=sequence + 5)
        yield f"produce other partition {name}", client.produce("two", who, 11, partition=1)
        yield f"produce old epoch {name}", client.produce("two", (who[0], who[1] - 1), 11)
        yield f"describe {name}", client.describe("two", "nothing", "")
        yield f"ends {name}", _lag(client)
        yield f"end {name}", client.end("two", who, version, commit=commit)
        yield f"end again {name}", client.end("two", who, version, commit=commit)
        yield f"end otherwise {name}", client.end("two", who, version, commit=not commit)
        client.stable()
        yield f"describe after {name}", client.describe("two")
        yield f"add the next {name}", client.add("two", who, 3, 0)
        yield f"produce the next {name}", client.produce("two", who, 11, sequence=sequence + 1)
        client.end("two", who, version, commit=True)
        client.stable()
    # A second producer takes the place of one in the middle of a transaction.
    who = client.started("three", 4)
    client.add("three", who, 3, 0)
    client.produce("three", who, 11)
    second = client.init("three", 4)
    yield "init fences", second
    yield "produce of the fenced", client.produce("three", who, 11, sequence=1)
    yield "end of the fenced", client.end("three", who, 4, commit=True)
    yield "end of the fenced v1", client.end("three", who, 1, commit=True)
    yield "add of the fenced", client.add("three", who, 3, 0)
    yield "add of the fenced v1", client.add("three", who, 1, 0)
    client.stable()
    yield "fetch committed", client.fetch(READ_COMMITTED)
    yield "fetch", client.fetch(0)


def _version_2(client: Client) -> Iterator[Question]:
    """With the requests that clients from 4.0 on send: partitions add themselves, and every end bumps the epoch."""
    who = client.started("four", 5)
    for commit in (True, False):
        yield f"end v5 {commit} of nothing", client.end("four", who, 5, commit=commit)
    who = client.started("four", 5)
    for turn, commit in enumerate((True, False, True)):
        name = f"v5 {commit} {turn}"
        yield f"produce {name}", client.produce("four", who, 12)
        yield f"produce next {name}", client.produce("four", who, 12, sequence=1)
        yield f"produce old epoch {name}", client.produce("four", (who[0], who[1] - 1), 12)
        yield f"describe {name}", client.describe("four")
        ended = client.end("four", who, 5, commit=commit)
        yield f"end {name}", ended
        yield f"end again {name}", client.end("four", who, 5, commit=commit)
        yield f"end otherwise {name}", client.end("four", who, 5, commit=not commit)
        client.stable()
        yield f"produce late {name}", client.produce("four", who, 12, sequence=2)
        who = (ended.producer_id, ended.producer_epoch)
        yield f"describe after {name}", client.describe("four")
        aborted = client.end("four", who, 5, commit=False)
        yield f"abort of nothing {name}", aborted
        yield f"abort of nothing again {name}", client.end("four", who, 5, commit=False)
        who = (aborted.producer_id, aborted.producer_epoch)
        yield f"commit of nothing {name}", client.end("four", who, 5, commit=True)
    client.produce("four", who, 12)
    yield "init v5 fences", client.init("four", 5)
    yield "produce of the fenced v12", client.produce("four", who, 12, sequence=1)
    yield "end of the fenced v5", client.end("four", who, 5, commit=True)
    client.stable()
    who = client.started("five", 5)
    client.produce("five", who, 12)
    yield "init v5 of itself in a transaction", client.init("five", 5, who)
    client.stable()
    yield "fetch committed v2", client.fetch(READ_COMMITTED)
    yield "produce v12 unknown", client.produce("nothing", (12_345_678, 0), 12)
    yield "produce v12 of a later epoch", client.produce("five", (who[0], who[1] + 20), 12)
    # One that changes its version in the middle
    who = client.started("six", 5)
    yield "add for version 2", client.add("six", who, 3, 0)
    yield "produce v12 after add", client.produce("six", who, 12)
    yield "end v4 after v12", client.end("six", who, 4, commit=True)
    yield "end v4 after v12 again", client.end("six", who, 4, commit=True)
    client.stable()
    yield "describe after the change", client.describe("six")


def _offsets(client: Client) -> Iterator[Question]:
    nobody = (12_345_678, 0)
    for version in range(5):
        yield f"add offsets v{version} unknown", client.add_offsets("nothing", nobody, version, "g")
        yield f"add offsets v{version} empty", client.add_offsets("", nobody, version, "g")
        who = client.started("seven", 4)
        yield f"add offsets v{version} old", client.add_offsets("seven", (who[0], who[1] - 1), version, "g")
        yield f"add offsets v{version} empty group", client.add_offsets("seven", who, version, "")
    for version in range(5):
        group = f"group {version}"
        who = client.started("seven", 4)
        yield f"commit offsets v{version} unverified", client.commit_offsets("seven", who, version, group, 3)
        yield f"add offsets v{version}", client.add_offsets("seven", who, min(version, 4), group)
        yield f"commit offsets v{version}", client.commit_offsets("seven", who, version, group, 3)
        yield f"commit offsets v{version} old", client.commit_offsets("seven", (who[0], who[1] - 1), version, group, 3)
        yield f"fetch offsets v{version} open", client.offsets(group, stable=False)
        yield f"fetch stable offsets v{version} open", client.offsets(group, stable=True)
        client.end("seven", who, 4, commit=version != 3)
        yield f"fetch stable offsets v{version}", _stable_offsets(client, group)
        yield f"fetch offsets v{version}", client.offsets(group, stable=False)
    member = {"member_id": "x", "generation_id_or_member_epoch": 1}
    who = client.started("seven", 4)
    client.add_offsets("seven", who, 3, "group 0")
    for version in (3, 4):
        yield (
            f"commit offsets v{version} of nobody",
            client.commit_offsets("seven", who, version, "group 0", 5, **member),
        )
        member["member_id"] = ""
        yield (
            f"commit offsets v{version} with generation",
            client.commit_offsets("seven", who, version, "group 0", 5, **member),
        )
        member["member_id"] = "x"
    yield "commit offsets empty group", client.commit_offsets("seven", who, 4, "", 5)
    client.end("seven", who, 4, commit=True)
    who = client.started("eight", 5)
    yield "commit offsets v5", client.commit_offsets("eight", who, 5, "group 8", 4)
    yield "fetch stable offsets v5 open", client.offsets("group 8", stable=True)
    yield "describe with offsets", _partition_count(client.describe("eight"))
    yield "end v5 with offsets", client.end("eight", who, 5, commit=True)
    yield "fetch stable offsets v5", _stable_offsets(client, "group 8")


def _stable_offsets(client: Client, group: str) -> Any:
    end = time.monotonic() + PATIENCE_S
    while True:
        answer = client.offsets(group, stable=True)
        if ErrorCode.UNSTABLE_OFFSET_COMMIT not in _codes(answer) or time.monotonic() > end:
            return answer
        time.sleep(0.02)


def _partition_count(answer: Any) -> Any:
    """The number of the group's partition is the same in both; the rest of the description is compared, too."""
    return answer


def _markers(client: Client) -> Iterator[Question]:
    for version in (1, 2):
        name = f"nine {version}"
        client.started(name, 4)
        who = client.started(name, 4)
        client.add(name, who, 3, 0)
        client.produce(name, who, 11)
        options = {"transaction_version": 0} if version == 1 else {"transaction_version": 2}
        yield f"marker v{version} old epoch", client.markers((who[0], who[1] - 1), version, commit=True, **options)
        yield f"marker v{version} same epoch", client.markers(who, version, commit=False, **options)
        yield f"ends after marker v{version}", _lag(client)
        yield f"marker v{version} next epoch", client.markers((who[0], who[1] + 1), version, commit=False, **options)
        yield f"marker v{version} again", client.markers((who[0], who[1] + 1), version, commit=False, **options)
        yield (
            f"marker v{version} unknown producer",
            client.markers((77_777_777 + version, 0), version, commit=True, **options),
        )
        yield (
            f"marker v{version} old coordinator",
            client.markers((who[0], who[1] + 2), version, commit=True, epoch=-1, **options),
        )


def _looking(client: Client) -> Iterator[Question]:
    client.stable()
    yield "describe", client.describe("one", "two", "four", "nothing", "")
    yield "list", client.list()
    yield "list Empty", client.list(state_filters=["Empty"])
    yield "list states", client.list(state_filters=["CompleteCommit", "Nonsense", "CompleteAbort"])
    yield "list producers", client.list(producer_id_filters=[12_345_678])
    yield "list long ones", client.list(duration_filter=1 << 40)
    yield "list by pattern", client.list(transactional_id_pattern="t.*")
    yield "list by empty pattern", client.list(transactional_id_pattern="")
    yield "list by bad pattern", client.list(transactional_id_pattern="(")
    yield "producers", client.producers()


def _lag(client: Client) -> int:
    """How far the last stable offset is behind."""
    high_watermark, last_stable = client.ends()
    return high_watermark - last_stable
