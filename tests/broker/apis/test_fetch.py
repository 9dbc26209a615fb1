"""Fetch at all its versions: limits, waiting, sessions, old formats."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.controller.topics import TopicKey
from klamm.broker.network.file_pieces import FilePiece
from klamm.broker.network.response import PendingResponse
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import Record, batches, encode_batch, records
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch, encode_frame

MAX = 1 << 20
BATCH_VERSIONS = range(4, 19)


def request(
    broker: EmbeddedBroker,
    version: int,
    *offsets: int,
    max_bytes: int = MAX,
    partition_max_bytes: int = MAX,
    **options: Any,
) -> FetchRequest:
    """Partition i from the i-th offset on."""
    topic_id = broker.broker.image.topics["t"].topic_id
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in enumerate(offsets)
    ]
    topic = FetchTopic(partitions=partitions)
    if version >= 13:
        topic.topic_id = topic_id
    else:
        topic.topic = "t"
    options = {"max_wait_ms": 0, "min_bytes": 1, **options}
    return FetchRequest(max_bytes=max_bytes, topics=[topic] if offsets else [], forgotten_topics_data=[], **options)


def values(data: Any) -> list[bytes | None]:
    return [
        record.value
        for position, header in batches(data.records)
        for record in records(data.records, header, MAX, position)
    ]


def partitions(response: Any) -> dict[int, Any]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_what_was_produced_is_fetched_byte_for_byte(broker: EmbeddedBroker, version: int) -> None:
    sent = batch(b"one", b"two")
    broker.produce("t", sent)
    broker.produce("t", batch(b"three"))
    data = partitions(broker.call(request(broker, version, 0), version))[0]
    assert (data.error_code, data.high_watermark) == (0, 3)
    assert bytes(data.records)[16 : len(sent)] == sent[16:]
    assert values(data) == [b"one", b"two", b"three"]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_versions_get_message_sets(broker: EmbeddedBroker, version: int, magic: int) -> None:
    broker.produce("t", batch(b"one", b"two"))
    broker.produce("t", batch(b"three"))
    data = partitions(broker.call(request(broker, version, 1), version))[0]
    found = list(message_set.messages(data.records))
    assert [(message.offset, message.value, message.magic) for message in found] == [
        (1, b"two", magic),
        (2, b"three", magic),
    ]


def test_before_v3_records_are_cut_at_the_limit(broker: EmbeddedBroker) -> None:
    broker.produce("t", batch(b"x" * 1000))
    data = partitions(broker.call(request(broker, 2, 0, partition_max_bytes=100), 2))[0]
    assert len(data.records) == 100


def test_the_first_batch_comes_whole_and_limits_hold_for_the_rest(broker: EmbeddedBroker) -> None:
    large = batch(b"x" * 1000)
    for partition in (0, 1):
        broker.produce("t", large, partition=partition)
    found = partitions(broker.call(request(broker, 11, 0, 0, max_bytes=100), 11))
    assert [len(found[0].records), len(found[1].records)] == [len(large), 0]
    found = partitions(broker.call(request(broker, 11, 0, 0, partition_max_bytes=100), 11))
    assert len(found[0].records) == len(large) and len(found[1].records) <= 100


@pytest.mark.parametrize("offset", [-5, 3])
def test_an_offset_outside_of_the_log_is_out_of_range(broker: EmbeddedBroker, offset: int) -> None:
    broker.produce("t", batch(b"x"))
    data = partitions(broker.call(request(broker, 11, offset), 11))[0]
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_negative_limits_are_not_unlimited(broker: EmbeddedBroker) -> None:
    response = broker.call(request(broker, 11, 0, max_bytes=-1), 11)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    data = partitions(broker.call(request(broker, 11, 0, partition_max_bytes=-1), 11))[0]
    assert data.error_code == ErrorCode.INVALID_REQUEST
    data = partitions(broker.call(request(broker, 5, 0, isolation_level=9), 5))[0]
    assert data.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_partitions_topics_and_ids(broker: EmbeddedBroker) -> None:
    fetch = request(broker, 12, 0, 0, 0)
    fetch.topics[0].topic = "nope"
    assert partitions(broker.call(fetch, 12))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = partitions(broker.call(request(broker, 12, 0, 0, 0), 12))
    assert found[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fetch = request(broker, 13, 0)
    fetch.topics[0].topic_id = b"\1" * 16
    assert partitions(broker.call(fetch, 13))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_leader_epochs_are_checked(broker: EmbeddedBroker) -> None:
    for epoch, expected in ((0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        fetch = request(broker, 12, 0)
        fetch.topics[0].partitions[0].current_leader_epoch = epoch
        assert partitions(broker.call(fetch, 12))[0].error_code == expected
    broker.broker.partitions.topics["t"].partitions[0].leader_epoch = 4
    assert partitions(broker.call(fetch, 12))[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_diverging_epoch_is_reported(broker: EmbeddedBroker) -> None:
    broker.produce("t", batch(b"x"))
    broker.broker.partitions.topics["t"].partitions[0].leader_epoch = 4
    broker.produce("t", batch(b"y"))
    fetch = request(broker, 12, 2)
    fetch.topics[0].partitions[0].last_fetched_epoch = 2
    data = partitions(broker.call(fetch, 12))[0]
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, data.error_code) == (0, 1, 0)


def test_an_epoch_that_is_not_known_is_out_of_range(broker: EmbeddedBroker) -> None:
    broker.produce("t", batch(b"x"))
    fetch = request(broker, 12, 1)
    fetch.topics[0].partitions[0].last_fetched_epoch = 3
    data = partitions(broker.call(fetch, 12))[0]
    assert (data.error_code, data.aborted_transactions) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


def test_replicas(broker: EmbeddedBroker) -> None:
    broker.produce("t", batch(b"x"))
    for version in (11, 15):
        for replica, expected in ((-2, 0), (7, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
            fetch = request(broker, version, 0)
            if version >= 15:
                fetch.replica_state = ReplicaState(replica_id=replica)
            else:
                fetch.replica_id = replica
            assert partitions(broker.call(fetch, version))[0].error_code == expected


def test_a_fetch_waits_until_records_come(broker: EmbeddedBroker) -> None:
    waiting = broker.start(request(broker, 11, 0, 0, max_wait_ms=20_000), 11)
    broker.run(asyncio.sleep(0.01))
    assert not waiting.done()
    broker.produce("t", batch(b"x"), partition=1)
    found = partitions(broker.run(waiting))
    assert values(found[1]) == [b"x"] and not found[0].records
    assert not broker.broker.partitions.topics["t"].partitions[0].waiters


def test_a_fetch_waits_for_min_bytes(broker: EmbeddedBroker) -> None:
    one = batch(b"x" * 100)
    waiting = broker.start(request(broker, 11, 0, max_wait_ms=20_000, min_bytes=2 * len(one)), 11)
    broker.produce("t", one)
    broker.run(asyncio.sleep(0.01))
    assert not waiting.done()
    broker.produce("t", one)
    assert len(values(partitions(broker.run(waiting))[0])) == 2


def test_equal_waiting_requests_are_answered_together_and_read_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.produce("t", batch(b"old"))
    reads: list[int] = []
    copy = FilePiece.copy_into
    monkeypatch.setattr(FilePiece, "copy_into", lambda piece, room: reads.append(piece.size) or copy(piece, room))

    def start(version: int, offset: int = 1, **options: Any) -> asyncio.Future[Any]:
        return broker.start(request(broker, version, offset, **{"max_wait_ms": 10_000, **options}), version)

    same = [start(version) for version in (4, 11, 12, 13, 17) for _ in range(3)]
    committed = [start(12, isolation_level=1) for _ in range(2)]
    with_session = [start(12, session_id=0, session_epoch=0) for _ in range(2)]
    small = start(12, partition_max_bytes=1)
    ancient = [start(version) for version in (1, 3)]
    patient = start(12, min_bytes=10_000)
    broker.produce("t", batch(b"new", b"er"))
    for waiting in (*same, *committed, *with_session, small):
        data = partitions(broker.run(waiting))[0]
        assert (data.error_code, data.high_watermark, values(data)) == (0, 3, [b"new", b"er"])
    for waiting in ancient:
        messages = message_set.messages(partitions(broker.run(waiting))[0].records)
        assert [message.value for message in messages] == [b"new", b"er"]
    assert not patient.done()
    assert len(set(reads)) == 1
    assert len(reads) == 3  # for each limit and isolation level
    broker.produce("t", batch(bytes(11_000)))
    assert len(values(partitions(broker.run(patient))[0])) == 3


def test_waiting_fetches_read_only_what_is_in_memory(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilePiece, "copy_into", lambda *_: False)
    waiting = [broker.start(request(broker, 12, 0, max_wait_ms=10_000), 12) for _ in range(3)]
    broker.produce("t", batch(b"x"))
    for each in waiting:
        assert values(partitions(broker.run(each))[0]) == [b"x"]


def test_a_fetch_that_nobody_waits_for_any_more_leaves_nothing(broker: EmbeddedBroker) -> None:
    waiters = broker.broker.partitions.topics["t"].partitions[0].waiters

    async def go() -> None:
        frame = encode_frame(request(broker, 12, 0, max_wait_ms=10_000), 12)
        answer = broker._dispatcher(broker.connection, memoryview(frame))  # type: ignore[arg-type]
        assert len(waiters) == 1
        assert isinstance(answer, PendingResponse) and answer.is_wait and answer.lets_pass is None
        answer.future.cancel()
        assert not waiters

    broker.run(go())
    broker.produce("t", batch(b"x"))


def test_a_fetch_gives_up_after_max_wait(broker: EmbeddedBroker) -> None:
    found = partitions(broker.call(request(broker, 11, 0, max_wait_ms=10, min_bytes=1 << 30), 11))
    assert found[0].error_code == 0 and not found[0].records
    assert not broker.broker.partitions.topics["t"].partitions[0].waiters


def test_a_waiting_old_client_gets_its_format(broker: EmbeddedBroker) -> None:
    waiting = broker.start(request(broker, 2, 0, max_wait_ms=20_000), 2)
    broker.produce("t", batch(b"x"))
    found = list(message_set.messages(partitions(broker.run(waiting))[0].records))
    assert [message.magic for message in found] == [1]


def test_a_deleted_topic_wakes_its_readers(broker: EmbeddedBroker) -> None:
    waiting = broker.start(request(broker, 11, 0, max_wait_ms=20_000), 11)
    broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
    assert partitions(broker.run(waiting))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_incremental_response_tells_only_what_changed(broker: EmbeddedBroker) -> None:
    opened = broker.call(request(broker, 12, 0, 0, session_epoch=0), 12)
    assert opened.session_id > 0 and set(partitions(opened)) == {0, 1}
    quiet = broker.call(request(broker, 12, session_id=opened.session_id, session_epoch=1), 12)
    assert quiet.session_id == opened.session_id and partitions(quiet) == {}
    broker.produce("t", batch(b"x"), partition=1)
    changed = broker.call(request(broker, 12, session_id=opened.session_id, session_epoch=2), 12)
    assert set(partitions(changed)) == {1} and values(partitions(changed)[1]) == [b"x"]


@pytest.mark.parametrize("named", [True, False], ids=["named again", "not named"])
def test_a_session_by_id_tells_a_deleted_topic_from_one_made_again(broker: EmbeddedBroker, named: bool) -> None:
    full = request(broker, 13, 0, session_epoch=0)
    opened = broker.call(full, 13)
    topics = full.topics if named else []

    def code(epoch: int, session: int = opened.session_id) -> int:
        more = FetchRequest(
            max_wait_ms=0, session_id=session, session_epoch=epoch, topics=topics if session else full.topics
        )
        found: int = partitions(broker.call(more, 13))[0].error_code
        return found

    broker.run(broker.broker.controller.delete_topics([TopicKey(name="t")]))
    assert code(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create_topic("t", partitions=1)
    assert code(2) == code(3) == ErrorCode.INCONSISTENT_TOPIC_ID
    assert code(0, session=0) == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_error_stands_alone(broker: EmbeddedBroker) -> None:
    response = broker.call(request(broker, 12, 0, session_id=5, session_epoch=3), 12)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not response.responses


def test_zstd_needs_v10(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"compression.type": "zstd"})
        broker.produce("t", batch(b"x"))
        for version, expected in ((9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, 0)):
            assert partitions(broker.call(request(broker, version, 0), version))[0].error_code == expected


def test_read_committed_names_no_aborted_transactions(broker: EmbeddedBroker) -> None:
    broker.produce("t", batch(b"x"))
    data = partitions(broker.call(request(broker, 11, 0, isolation_level=1), 11))[0]
    assert data.aborted_transactions == [] and data.last_stable_offset == 1
    assert partitions(broker.call(request(broker, 11, 0), 11))[0].aborted_transactions is None


def test_records_with_headers_survive_the_conversion_without_them(broker: EmbeddedBroker) -> None:
    sent = bytes(encode_batch([Record(0, NOW_MS, b"k", b"v", (("h", b"1"),))]))
    broker.produce("t", sent)
    found = list(message_set.messages(partitions(broker.call(request(broker, 3, 0), 3))[0].records))
    assert [(message.key, message.value) for message in found] == [(b"k", b"v")]


def test_nobody_waits_while_the_broker_stops(broker: EmbeddedBroker) -> None:
    waiting = broker.start(request(broker, 11, 0, max_wait_ms=20_000, min_bytes=1 << 30), 11)
    assert not waiting.done()
    broker.loop.call_soon(broker.broker.complete_delayed_fetches)
    assert partitions(broker.run(waiting))[0].error_code == 0
    late = broker.start(request(broker, 11, 0, max_wait_ms=20_000, min_bytes=1 << 30), 11)
    assert partitions(broker.run(late))[0].error_code == 0


@pytest.mark.parametrize("max_bytes", [1, 250, 1000, MAX])
def test_bytes_and_messages_out_are_counted_as_they_leave(broker: EmbeddedBroker, max_bytes: int) -> None:
    for _ in range(10):
        broker.produce("t", batch(b"x", b"y", b"z"))
    metrics = broker.broker.partitions.topics["t"].metrics
    offset = sent = 0
    while offset < 30:
        data = partitions(broker.call(request(broker, 11, offset, partition_max_bytes=max_bytes), 11))[0]
        sent += len(data.records)
        offset += len(values(data))
        assert metrics.messages_out == offset
    assert metrics.bytes_out == sent
    assert partitions(broker.call(request(broker, 11, 99), 11))[0].error_code and metrics.failed_fetch == 1


@pytest.mark.parametrize("version", [3, 4, 11])
def test_a_batch_that_does_not_fit_is_left_for_the_next_fetch(broker: EmbeddedBroker, version: int) -> None:
    for partition in (0, 1):
        broker.produce("t", batch(b"x" * 1000), partition=partition)
    found = partitions(broker.call(request(broker, version, 0, 0, partition_max_bytes=500), version))
    assert found[0].records and not found[1].records
    found = partitions(broker.call(request(broker, version, 0, 0, max_bytes=1500), version))
    assert found[0].records and not found[1].records


def test_an_append_during_a_conversion_does_not_change_the_answer(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.broker.fetch.down_conversion.CONVERT_IN_THREAD_BYTES", 0)
    broker.produce("t", batch(b"x" * 100_000))
    waiting = broker.start(request(broker, 3, 0, max_wait_ms=5, min_bytes=1 << 20), 3)
    for _ in range(20):
        broker.produce("t", batch(b"y"))
        broker.run(asyncio.sleep(0.001))
    found = list(message_set.messages(partitions(broker.run(waiting))[0].records))
    assert found and {message.magic for message in found} == {1}
