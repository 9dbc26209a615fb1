"""WriteTxnMarkers, DescribeProducers, and what a read_committed reader sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import ErrorCode, InvalidTxnState, KafkaError
from klamm.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from klamm.protocol.records.batch import batches, records
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch

UNCOMMITTED, COMMITTED = 0, 1


def partition_of(broker: EmbeddedBroker, index: int = 0) -> Partition:
    partition = broker.broker.partitions.get_partition("t", index)
    assert partition is not None
    return partition


def transact(
    broker: EmbeddedBroker, producer_id: int, epoch: int, sequence: int, *values: bytes, begins_at_zero: bool = False
) -> int:
    """Append a batch to t-0 as the coordinator lets it in; its base offset."""
    partition = partition_of(broker)
    guard = partition.begin_verification(producer_id, epoch, sequence, begins_at_zero=begins_at_zero, now_ms=NOW_MS)
    sent = batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    return partition.append_records(
        memoryview(bytearray(sent)), produce_version=11, now_ms=NOW_MS, transactional_id="x", guard=guard
    ).base_offset


def mark(
    broker: EmbeddedBroker,
    producer_id: int,
    epoch: int,
    *,
    commit: bool,
    coordinator: int = 0,
    version: int = 1,
    tv: int = 0,
) -> int:
    answer = broker.call(markers(producer_id, epoch, commit=commit, coordinator=coordinator, tv=tv), version)
    code: int = answer.markers[0].topics[0].partitions[0].error_code
    return code


def markers(
    producer_id: int, epoch: int, *, commit: bool, coordinator: int = 0, tv: int = 0, indexes: tuple[int, ...] = (0,)
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(indexes))],
                coordinator_epoch=coordinator,
                transaction_version=tv,
            )
        ]
    )


def fetch_request(offset: int, isolation: int, *, min_bytes: int = 0, wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


def fetch(broker: EmbeddedBroker, offset: int, isolation: int = COMMITTED, version: int = 11) -> Any:
    return broker.call(fetch_request(offset, isolation), version).responses[0].partitions[0]


def offsets_in(answer: Any) -> list[int]:
    data = bytes(answer.records or b"")
    return [record.offset for at, head in batches(data) for record in records(data, head, 1 << 20, at)]


def latest(broker: EmbeddedBroker, isolation: int, version: int) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])],
    )
    offset: int = broker.call(request, version).topics[0].partitions[0].offset
    return offset


def described(broker: EmbeddedBroker, topic: str = "t", index: int = 0) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    return broker.call(request, 0).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(4, 19))
def test_read_committed_stops_at_open_transactions_and_gets_the_aborted_ones(
    broker: EmbeddedBroker, version: int
) -> None:
    transact(broker, 7, 0, 0, b"a", b"b")
    broker.produce("t", batch(b"c"))
    transact(broker, 8, 0, 0, b"d")
    if version >= 13:
        request = fetch_request(0, COMMITTED)
        request.topics[0].topic_id = partition_of(broker).topic_id
        answer = broker.call(request, version).responses[0].partitions[0]
    else:
        answer = fetch(broker, 0, version=version)
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 0)
    assert offsets_in(answer) == [] and answer.aborted_transactions == []


def test_aborted_and_committed(broker: EmbeddedBroker) -> None:
    transact(broker, 7, 0, 0, b"a", b"b")
    broker.produce("t", batch(b"c"))
    transact(broker, 8, 0, 0, b"d")
    assert mark(broker, 7, 0, commit=False) == 0
    answer = fetch(broker, 0)
    assert (answer.last_stable_offset, offsets_in(answer)) == (3, [0, 1, 2])
    assert [(t.producer_id, t.first_offset) for t in answer.aborted_transactions] == [(7, 0)]
    assert fetch(broker, 0, UNCOMMITTED).aborted_transactions is None
    assert offsets_in(fetch(broker, 0, UNCOMMITTED)) == [0, 1, 2, 3, 4]
    assert mark(broker, 8, 0, commit=True) == 0
    answer = fetch(broker, 3)
    assert (answer.last_stable_offset, offsets_in(answer)) == (6, [3, 4, 5])
    assert [t.producer_id for t in answer.aborted_transactions] == [7]  # its marker is here, and harmless
    assert fetch(broker, 5).aborted_transactions == []


@pytest.mark.parametrize("version", range(2, 12))
def test_the_latest_offset_of_a_read_committed_reader(broker: EmbeddedBroker, version: int) -> None:
    broker.produce("t", batch(b"c"))
    transact(broker, 7, 0, 0, b"a", b"b")
    assert (latest(broker, COMMITTED, version), latest(broker, UNCOMMITTED, version)) == (1, 3)
    mark(broker, 7, 0, commit=False)
    assert (latest(broker, COMMITTED, version), latest(broker, UNCOMMITTED, version)) == (4, 4)


def test_a_long_poll_of_a_read_committed_reader_ends_with_the_transaction(broker: EmbeddedBroker) -> None:
    transact(broker, 7, 0, 0, b"a")
    waiting = broker.start(fetch_request(0, COMMITTED, min_bytes=1, wait_ms=20_000), 11)
    others = broker.start(fetch_request(1, UNCOMMITTED, min_bytes=1, wait_ms=20_000), 11)
    broker.produce("t", batch(b"not in it"))
    assert offsets_in(broker.run(others).responses[0].partitions[0]) == [1]
    transact(broker, 7, 0, 1, b"b")
    assert not waiting.done()
    mark(broker, 7, 0, commit=True)
    assert offsets_in(broker.run(waiting).responses[0].partitions[0]) == [0, 1, 2, 3]


def test_a_long_poll_waits_for_enough_bytes_that_are_stable(broker: EmbeddedBroker) -> None:
    transact(broker, 7, 0, 0, b"a")
    waiting = broker.start(fetch_request(0, COMMITTED, min_bytes=600, wait_ms=20_000), 11)
    mark(broker, 7, 0, commit=True)
    assert not waiting.done()
    broker.produce("t", batch(b"v" * 600))
    assert offsets_in(broker.run(waiting).responses[0].partitions[0]) == [0, 1, 2]


def test_a_transaction_begins_with_the_guard_of_its_verification_only(broker: EmbeddedBroker) -> None:
    partition = partition_of(broker)
    sent = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)

    def append(guard: Any) -> None:
        partition.append_records(
            memoryview(bytearray(sent)), produce_version=11, now_ms=NOW_MS, transactional_id="x", guard=guard
        )

    with pytest.raises(InvalidTxnState):
        append(None)
    late = partition.begin_verification(7, 0, 0, begins_at_zero=False, now_ms=NOW_MS)
    mark(broker, 7, 0, commit=False)  # the transaction that was verified has ended meanwhile
    with pytest.raises(InvalidTxnState):
        append(late)
    now = partition.begin_verification(7, 0, 0, begins_at_zero=False, now_ms=NOW_MS)
    assert now is not late
    with pytest.raises(InvalidTxnState):
        append(late)
    append(now)
    assert partition.begin_verification(7, 0, 1, begins_at_zero=False, now_ms=NOW_MS) is None
    append(None)  # a duplicate: answered with its offset
    assert partition.log_end_offset == 2


def test_the_next_epoch_of_a_producer_does_not_join_the_open_transaction_of_the_last_one(
    broker: EmbeddedBroker,
) -> None:
    transact(broker, 7, 0, 0, b"a")
    partition = partition_of(broker)
    early = batch(b"b", producer_id=7, producer_epoch=1, base_sequence=0, transactional=True)
    with pytest.raises(InvalidTxnState):
        partition.append_records(memoryview(bytearray(early)), produce_version=12, now_ms=NOW_MS, transactional_id="x")
    assert partition.begin_verification(7, 1, 0, begins_at_zero=True, now_ms=NOW_MS) is not None
    assert mark(broker, 7, 1, commit=True, version=2, tv=2) == ErrorCode.NONE
    assert partition.last_stable_offset == partition.log_end_offset == 2


def test_markers_are_fenced_by_epochs(broker: EmbeddedBroker) -> None:
    transact(broker, 7, 3, 0, b"a")
    assert mark(broker, 7, 2, commit=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(broker, 7, 3, commit=True, version=2, tv=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(broker, 7, 3, commit=True, coordinator=5) == 0
    assert mark(broker, 7, 3, commit=True, coordinator=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(broker, 7, 3, commit=True, coordinator=5, version=2, tv=2) == 0  # sent again: nothing is open
    assert mark(broker, 7, 4, commit=False, coordinator=5, version=2, tv=2) == 0
    assert partition_of(broker).log_end_offset == 4
    with pytest.raises(KafkaError) as refused:
        transact(broker, 7, 3, 1, b"late")
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("epoch", [32765, 32766, 32767])
def test_a_transaction_in_one_of_the_last_epochs_ends(broker: EmbeddedBroker, epoch: int) -> None:
    transact(broker, 7, epoch, 0, b"a")
    assert latest(broker, COMMITTED, 5) == 0
    assert mark(broker, 7, min(epoch + 1, 32767), commit=True, version=2, tv=2) == 0
    assert latest(broker, COMMITTED, 5) == 2


def test_records_outside_of_an_open_transaction_are_refused(broker: EmbeddedBroker) -> None:
    transact(broker, 7, 0, 0, b"a")
    outside = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    assert broker.produce("t", outside).error_code == ErrorCode.INVALID_TXN_STATE
    assert partition_of(broker).log_end_offset == 1


@pytest.mark.parametrize("version", range(3))
def test_each_partition_is_answered(broker: EmbeddedBroker, version: int) -> None:
    request = markers(7, 0, commit=True, indexes=(0, 1, 2))
    request.markers += markers(8, 0, commit=False).markers + markers(7, 1, commit=True, indexes=(1,)).markers
    answer = broker.call(request, version)
    found = {
        result.producer_id: {
            part.partition_index: part.error_code for topic in result.topics for part in topic.partitions
        }
        for result in answer.markers
    }
    missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert found == {7: {0: 0, 1: 0, 2: missing}, 8: {0: 0}}
    assert [partition_of(broker, index).log_end_offset for index in (0, 1)] == [2, 2]


def test_no_markers_no_answers(broker: EmbeddedBroker) -> None:
    assert broker.call(WriteTxnMarkersRequest(markers=[]), 1).markers == []


def test_markers_wait_for_the_flush_that_flush_messages_asks_for(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"flush.messages": 1})
        transact(broker, 7, 0, 0, b"a")
        assert partition_of(broker).last_stable_offset == 0
        assert mark(broker, 7, 0, commit=False) == 0
        partition = partition_of(broker)
        assert partition.log is not None
        assert (partition.log.local.flushed_offset, partition.last_stable_offset) == (2, 2)


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2)
        transact(broker, 7, 0, 0, b"a", b"b")
        transact(broker, 8, 0, 0, b"c")
        mark(broker, 7, 0, commit=False, coordinator=2)
    with EmbeddedBroker(tmp_path) as broker:
        yield broker


def test_after_a_restart_it_is_all_still_known(restarted: EmbeddedBroker) -> None:
    answer = fetch(restarted, 0)
    assert (answer.high_watermark, answer.last_stable_offset, offsets_in(answer)) == (4, 2, [0, 1])
    assert [(t.producer_id, t.first_offset) for t in answer.aborted_transactions] == [(7, 0)]
    assert [
        (p.producer_id, p.producer_epoch, p.last_sequence, p.coordinator_epoch, p.current_txn_start_offset)
        for p in described(restarted).active_producers
    ] == [(7, 0, 1, 2, -1), (8, 0, 0, -1, 2)]


def test_describe_producers(broker: EmbeddedBroker) -> None:
    assert described(broker).active_producers == []
    broker.produce("t", batch(b"a", producer_id=5, producer_epoch=2, base_sequence=0, timestamp=NOW_MS - 3))
    (producer,) = described(broker).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 0)
    assert (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset) == (
        NOW_MS - 3,
        -1,
        -1,
    )
    mark(broker, 5, 3, commit=True, coordinator=1)
    (producer,) = described(broker).active_producers
    assert (producer.producer_epoch, producer.last_sequence, producer.coordinator_epoch) == (3, -1, 1)
    assert described(broker, "u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(broker, "t", 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(broker, "a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
