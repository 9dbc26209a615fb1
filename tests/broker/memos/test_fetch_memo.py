"""Fetch that repeats an earlier request: the answers to a connection that is known are those to one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.broker.memos.fetch_memo import MAX_FRAME_BYTES, MAX_MEMOIZED, FetchMemo
from klamm.broker.memos.produce_memo import ProduceMemo
from klamm.broker.partitions.partition import Partition
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.embedded import NOW_MS, CloseConnection, EmbeddedBroker, batch, encode_frame

VERSIONS = range(4, 19)
BATCHES = 40


def partition_of(broker: EmbeddedBroker) -> Partition:
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None
    return partition


def fill(broker: EmbeddedBroker) -> None:
    """Batches of many sizes, every tenth of a transaction; the last transaction stays open."""
    partition = partition_of(broker)
    for number in range(BATCHES):
        value = bytes(number * 50)
        if number % 10:
            partition.append_records(memoryview(bytearray(batch(value, value))), produce_version=11, now_ms=NOW_MS)
            continue
        sent = batch(value, producer_id=7, producer_epoch=number, base_sequence=0, transactional=True)
        guard = partition.begin_verification(7, number, 0, begins_at_zero=False, now_ms=NOW_MS)
        partition.append_records(
            memoryview(bytearray(sent)), produce_version=11, now_ms=NOW_MS, transactional_id="x", guard=guard
        )
        if number < BATCHES - 10:
            partition.append_marker(
                7, number, is_commit=number == 10, coordinator_epoch=0, transaction_version=0, now_ms=NOW_MS
            )


class Reader:
    """Asks as a connection that is known, and as one that is not."""

    def __init__(self, broker: EmbeddedBroker, topic_id: bytes) -> None:
        self.broker = broker
        self.topic_id = topic_id

    def frame(self, version: int, offset: int, **other: Any) -> bytes:
        """`other` are fields of the partition, or of the request."""
        row = FetchPartition(partition=other.pop("partition", 0), fetch_offset=offset)
        row.partition_max_bytes = other.pop("partition_max_bytes", 1 << 20)
        row.current_leader_epoch = other.pop("current_leader_epoch", -1)
        client_id = other.pop("client_id", "test")
        topic = FetchTopic(topic="t", topic_id=self.topic_id, partitions=[row])
        request = FetchRequest(topics=[topic], max_wait_ms=0, replica_state=ReplicaState(), **other)
        return bytes(encode_frame(request, version, client_id))

    def ask(self, frame: bytes) -> tuple[object, bool]:
        """Return the response that both get, and whether the request was known."""
        connection = self.broker.connection
        before = connection.memo
        found = self._response(frame)
        was_known = before is not None and before is connection.memo and self._answers(frame)
        memo, connection.memo = connection.memo, None
        assert self._response(frame) == found, frame.hex()
        connection.memo = memo
        return found, was_known

    def _answers(self, frame: bytes) -> bool:
        memo = self.broker.connection.memo
        assert memo is not None
        return memo.answer(self.broker.connection, memoryview(frame), 0.0) is not None  # type: ignore[arg-type]

    def _response(self, frame: bytes) -> object:
        try:
            reply = self.broker.dispatch(frame)
        except CloseConnection as error:
            return error.reason
        assert reply is not None
        regions = [(at, region.position, region.read()) for at, region in reply.regions or ()]
        return bytes(reply.head), regions


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        topic_id = broker.create_topic("t", partitions=2)
        fill(broker)
        yield Reader(broker, topic_id)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Reader]:
    with EmbeddedBroker(tmp_path) as broker:
        topic_id = broker.create_topic("t", partitions=2)
        fill(broker)
        yield Reader(broker, topic_id)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("isolation", [0, 1])
def test_another_offset_is_known(reader: Reader, version: int, isolation: int) -> None:
    reader.broker.connection.memo = None
    memo = {}
    for offset in range(0, partition_of(reader.broker).log_end_offset, 3):
        size = 300 + 50 * offset
        frame = reader.frame(version, offset, isolation_level=isolation)
        _, memo[offset] = reader.ask(frame)
        reader.ask(reader.frame(version, offset, isolation_level=isolation, partition_max_bytes=size))
        reader.ask(frame)
        _, memo[offset] = reader.ask(frame)
    assert any(memo.values()) == (version >= 5)
    if version >= 5 and not isolation:
        assert all(memo.values())


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_whatever_is_asked_is_answered_as_if_unknown(reader: Reader, data: st.DataObject) -> None:
    """A little is changed from request to request, so that most are known."""
    fields: dict[str, Any] = {"version": data.draw(st.sampled_from(VERSIONS)), "offset": 0}
    choices = st.one_of(
        st.tuples(st.just("offset"), st.integers(-2, 80)),
        st.tuples(st.just("offset"), st.integers(0, 75)),
        st.tuples(st.just("version"), st.sampled_from(VERSIONS)),
        st.tuples(st.just("partition"), st.sampled_from([0, 0, 0, 1, 2, -1])),
        st.tuples(st.just("partition_max_bytes"), st.sampled_from([0, 1, 100, 3000, 1 << 20])),
        st.tuples(st.just("max_bytes"), st.sampled_from([0, 1000, 1 << 20])),
        st.tuples(st.just("min_bytes"), st.sampled_from([0, 1, 5000, 1 << 30])),
        st.tuples(st.just("isolation_level"), st.sampled_from([0, 1])),
        st.tuples(st.just("current_leader_epoch"), st.sampled_from([-1, 0, 1])),
        st.tuples(st.just("client_id"), st.sampled_from(["test", "tset", None])),
    )
    for name, value in data.draw(st.lists(choices, min_size=1, max_size=12)):
        fields[name] = value
        asked = {key: item for key, item in fields.items() if key not in ("version", "offset")}
        frame = reader.frame(fields["version"], fields["offset"], **asked)
        memo = reader.broker.connection.memo
        if isinstance(memo, FetchMemo):
            memo.memoized_count = 1
        reader.ask(frame)


def test_bytes_that_are_no_such_request(reader: Reader) -> None:
    frame = reader.frame(12, 3)
    reader.ask(frame)
    for at in range(len(frame)):
        for change in (0x01, 0x80):
            changed = bytearray(frame)
            changed[at] ^= change
            if at not in (4, 5, 6, 7):  # the correlation id, which stands in the answer
                reader.ask(bytes(changed))
        reader.ask(frame[:at])
    reader.ask(frame + b"\0")


def test_what_is_appended_deleted_and_gone(fresh: Reader) -> None:
    partition = partition_of(fresh.broker)
    end = partition.log_end_offset
    frame, at_end = fresh.frame(12, 0), fresh.frame(12, end)
    fresh.ask(frame)
    assert fresh.ask(frame)[1] and not fresh.ask(at_end)[1]
    partition.append_records(memoryview(bytearray(batch(b"new"))), produce_version=11, now_ms=NOW_MS)
    assert fresh.ask(at_end)[1]
    rows = [DeleteRecordsPartition(partition_index=0, offset=end)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)], timeout_ms=1000)
    assert fresh.broker.call(request, 2).topics[0].partitions[0].error_code == 0
    assert not fresh.ask(frame)[1] and fresh.ask(at_end)[1]
    partition.go_offline("broken")
    assert not fresh.ask(at_end)[1]
    deleted = fresh.broker.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    assert not fresh.ask(at_end)[1]


def test_the_counters_count_both(fresh: Reader) -> None:
    metrics = partition_of(fresh.broker).metrics

    def counted(offset: int) -> tuple[int, int, int]:
        before = metrics.bytes_out, metrics.messages_out, metrics.fetch_requests
        fresh.broker.dispatch(fresh.frame(12, offset, partition_max_bytes=3000))
        return (
            metrics.bytes_out - before[0],
            metrics.messages_out - before[1],
            metrics.fetch_requests - before[2],
        )

    first = counted(9)
    assert isinstance(fresh.broker.connection.memo, FetchMemo)
    assert counted(9) == first and first[1] > 0


def test_what_changes_all_the_time_is_not_learned_for_ever(fresh: Reader) -> None:
    for number in range(MAX_MEMOIZED + 50):
        fresh.broker.dispatch(fresh.frame(12, 0, partition_max_bytes=5000 + number))
    memo = fresh.broker.connection.memo
    assert isinstance(memo, FetchMemo) and memo.memoized_count == MAX_MEMOIZED


def test_what_is_known_but_in_the_way_is_not_learned_again(fresh: Reader) -> None:
    for _ in range(5):
        fresh.broker.dispatch(fresh.frame(12, 0, isolation_level=1))  # there is an aborted transaction to tell of
    memo = fresh.broker.connection.memo
    assert memo is not None and memo.memoized_count == 1


def test_a_connection_that_also_produces_does_not_learn_for_ever(fresh: Reader) -> None:
    data = [PartitionProduceData(index=1, records=batch(b"x"))]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", topic_id=fresh.topic_id, partition_data=data)]
    )
    produce = bytes(encode_frame(request, 12, "test"))
    for _ in range(MAX_MEMOIZED):
        fresh.broker.dispatch(produce)
        fresh.broker.dispatch(fresh.frame(12, 0))
    memo = fresh.broker.connection.memo
    assert isinstance(memo, ProduceMemo) and memo.memoized_count == MAX_MEMOIZED + 1


def test_a_bug_is_answered_as_without_a_memo(fresh: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    frame = fresh.frame(12, 0)
    fresh.ask(frame)
    monkeypatch.setattr(Partition, "fetch_records", broken)
    _, was_known = fresh.ask(frame)
    assert not was_known


def test_a_frame_that_is_much_larger_than_usual_is_not_kept(fresh: Reader) -> None:
    fresh.broker.dispatch(fresh.frame(12, 0, rack_id="r" * MAX_FRAME_BYTES))
    assert fresh.broker.connection.memo is None
