"""Produce at all its versions: appended batches, responses, refused requests."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from klamm.broker.network.response import PendingResponse
from klamm.protocol.errors import ErrorCode, KafkaError, KafkaStorageError
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch, read_header, records, seal
from klamm.protocol.records.message_set import encode_set
from klamm.storage.log.local_log import LocalLog
from tests.support.embedded import NOW_MS, CloseConnection, EmbeddedBroker, batch, decode_reply, encode_frame

BATCH_VERSIONS = range(3, 13)


def stored(broker: EmbeddedBroker, partition: int = 0) -> bytes:
    log = broker.broker.partitions.topics["t"].partitions[partition].log
    assert log is not None
    region = log.read_records(0, max_bytes=1 << 20, max_offset=log.log_end_offset).region
    return b"" if region is None else region.read()


def request(*partitions: tuple[int, bytes | None], topic: str = "t", acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=content) for index, content in partitions]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


@pytest.mark.parametrize("version", BATCH_VERSIONS)
def test_a_batch_is_stored_as_it_was_sent_but_for_offset_and_epoch(broker: EmbeddedBroker, version: int) -> None:
    sent = batch(b"one", b"two")
    broker.produce("t", batch(b"zero"), version=version)
    answer = broker.produce("t", sent, version=version)
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 1, -1)
    second = stored(broker)[len(batch(b"zero")) :]
    header = read_header(second)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert second[8:12] + second[16:] == sent[8:12] + sent[16:]


def test_topics_are_named_by_id_from_v13(broker: EmbeddedBroker) -> None:
    topic_id = broker.broker.image.topics["t"].topic_id
    produce = request((1, batch(b"x")))
    produce.topic_data[0].name, produce.topic_data[0].topic_id = "", topic_id
    response = broker.call(produce, 13)
    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partition_responses[0].error_code == 0
    produce.topic_data[0].topic_id = b"\1" * 16
    response = broker.call(produce, 13)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1)])
def test_message_sets_are_converted_up(broker: EmbeddedBroker, version: int, magic: int) -> None:
    kept = [Record(0, NOW_MS, b"k", b"one", ()), Record(1, NOW_MS, None, b"two", ())]
    answer = broker.produce("t", encode_set(kept, magic), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    content = stored(broker)
    header = read_header(content)
    assert header.magic == 2 and header.record_count == 2
    found = [(record.key, record.value, record.timestamp) for record in records(content, header, 1 << 20)]
    timestamp = NOW_MS if magic else -1
    assert found == [(b"k", b"one", timestamp), (None, b"two", timestamp)]


def test_log_append_time_is_returned_and_stored(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
        broker.clock.advance(5)
        answer = broker.produce("t", batch(b"x", timestamp=1))
        assert answer.log_append_time_ms == NOW_MS + 5
        header = read_header(stored(broker))
        assert header.is_log_append_time and header.max_timestamp == NOW_MS + 5


def test_partitions_succeed_and_fail_each_for_itself(broker: EmbeddedBroker) -> None:
    response = broker.call(request((0, batch(b"x")), (7, batch(b"x")), (1, b"junk")), 9)
    codes = [answer.error_code for answer in response.responses[0].partition_responses]
    assert codes[0] == 0 and codes[1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and codes[2] != 0


def test_a_partition_named_twice_is_appended_once_and_the_last_wins(broker: EmbeddedBroker) -> None:
    response = broker.call(request((0, batch(b"first")), (0, batch(b"last"))), 9)
    assert len(response.responses[0].partition_responses) == 1
    content = stored(broker)
    assert [record.value for record in records(content, read_header(content), 1 << 20)] == [b"last"]


@pytest.mark.parametrize("topic", ["nope", "../../etc", ""])
def test_an_unknown_topic_is_refused_and_never_reaches_the_disk(broker: EmbeddedBroker, topic: str) -> None:
    before = sorted(path.name for path in broker.config.log_dirs[0].iterdir())
    assert broker.produce(topic, batch(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(path.name for path in broker.config.log_dirs[0].iterdir()) == before


def test_acks_0_has_no_answer_and_an_error_closes_the_connection(broker: EmbeddedBroker) -> None:
    assert broker.produce("t", batch(b"x"), acks=0) is None
    assert read_header(stored(broker)).record_count == 1
    with pytest.raises(CloseConnection):
        broker.produce("nope", batch(b"x"), acks=0)


@pytest.mark.parametrize("acks", [2, 5, -2])
def test_other_acks_are_refused(broker: EmbeddedBroker, acks: int) -> None:
    assert broker.produce("t", batch(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert stored(broker) == b""


def test_acks_all_needs_the_replicas_in_sync_but_no_more_than_there_are(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"min.insync.replicas": 2})
        assert broker.produce("t", batch(b"x")).error_code == 0
        broker.broker.partitions.topics["t"].partitions[0].set_replicas(3, 1)
        assert broker.produce("t", batch(b"x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert broker.produce("t", batch(b"x"), acks=1).error_code == 0


def test_a_duplicate_is_answered_with_the_first_offset(broker: EmbeddedBroker) -> None:
    sent = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    first, again = broker.produce("t", sent), broker.produce("t", sent)
    assert (first.error_code, first.base_offset) == (again.error_code, again.base_offset) == (0, 0)
    gap = batch(b"c", producer_id=5, producer_epoch=0, base_sequence=9)
    assert broker.produce("t", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_transactional_batches_without_transaction_are_refused(broker: EmbeddedBroker) -> None:
    sent = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert broker.produce("t", sent).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    produce = request((0, sent))
    produce.transactional_id = "mine"
    answer = broker.call(produce, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS  # nobody has made the coordinator's topic yet
    broker.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["mine"]), 4)
    answer = broker.call(produce, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_bad_record_is_named_from_v8(broker: EmbeddedBroker) -> None:
    broker.create_topic("compacted", config={"cleanup.policy": "compact"})
    keyless = bytes(encode_batch([Record(0, NOW_MS, b"k", b"v", ()), Record(1, NOW_MS, None, b"v", ())]))
    answer = broker.produce("compacted", keyless, version=8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1] and answer.error_message


def test_with_flush_messages_the_ack_waits_for_the_disk(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"flush.messages": 1})
        partition = broker.broker.partitions.topics["t"].partitions[0]
        answers = [broker.start(request((0, batch(b"x"))), 9) for _ in range(3)]
        broker.run(answers[2])
        assert [answer.result().responses[0].partition_responses[0].base_offset for answer in answers] == [0, 1, 2]
        assert partition.log is not None
        assert partition.high_watermark == partition.log.local.recovery_point == 3 and not partition.flush_pending


def test_a_failed_flush_is_never_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaStorageError("the disk is gone")

    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", config={"flush.messages": 1})
        partition = broker.broker.partitions.topics["t"].partitions[0]
        log = partition.online_log()
        monkeypatch.setattr(LocalLog, "flush", fail)
        answer = broker.produce("t", batch(b"x"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert partition.log is None and log.high_watermark == 0
        monkeypatch.undo()
        assert broker.produce("t", batch(b"x"), version=3).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_internal_topics_are_for_the_admin_client_only(broker: EmbeddedBroker) -> None:
    broker.broker.partitions.topics["t"].internal = True
    assert broker.produce("t", batch(b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = broker.call(request((0, batch(b"x"))), 9, client_id="__admin_client")
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_errors_of_sequences_tell_the_log_start_offset(broker: EmbeddedBroker) -> None:
    """An idempotent producer wants to know whether the records that it misses were deleted."""
    broker.produce("t", batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0))
    gap = broker.produce("t", batch(b"a", producer_id=5, producer_epoch=0, base_sequence=9))
    assert (gap.error_code, gap.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    broken = broker.produce("t", batch(b"a")[:-1] + b"?")
    assert (broken.error_code, broken.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_the_log_start_offset_is_returned_with_a_bad_batch_and_not_with_a_bad_request(broker: EmbeddedBroker) -> None:
    good = batch(b"a")
    moved, counted = bytearray(good), bytearray(batch(b"a", b"b"))
    moved[0:8] = b"\0\0\0\0\0\0\0\5"
    counted[57:61] = b"\0\0\0\5"
    seal(counted)
    old = bytearray(good)
    old[16] = 1
    for content, expected in ((moved, 0), (counted, 0), (good + good, -1), (good[:-1], -1), (b"", -1), (old, -1)):
        answer = broker.produce("t", bytes(content))
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, expected)


def test_an_error_leaves_no_garbage_that_holds_the_records(broker: EmbeddedBroker) -> None:
    """A traceback would keep the frames below, and what they have inflated, until the next collection."""
    cut = bytearray(batch(b"x"))
    cut[23:27], cut[57:61] = b"\0\0\0\4", b"\0\0\0\5"  # five records are announced: this error has a context
    seal(cut)
    broker.produce("t", bytes(cut))
    gc.collect()
    gc.disable()
    try:
        for content in (b"junk", bytes(cut)):
            assert broker.produce("t", content).error_code == ErrorCode.INVALID_RECORD
        assert not [kept for kept in gc.get_objects() if isinstance(kept, (KafkaError, IndexError))]
    finally:
        gc.enable()


def test_a_topic_named_twice_is_appended_once_and_the_last_wins(broker: EmbeddedBroker) -> None:
    produce = request((0, batch(b"first")), (1, batch(b"other")))
    produce.topic_data += request((0, batch(b"last"))).topic_data
    (topic,) = broker.call(produce, 9).responses
    assert [(answer.index, answer.base_offset) for answer in topic.partition_responses] == [(0, 0), (1, 0)]
    content = stored(broker)
    assert [record.value for record in records(content, read_header(content), 1 << 20)] == [b"last"]


def test_a_request_that_takes_long_lets_others_have_their_turn(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klamm.broker.apis.produce.TURN_S", -1.0)
    frame = bytearray(encode_frame(request((0, batch(b"a")), (1, batch(b"b")), (9, batch(b"c"))), 9))

    async def dispatch() -> tuple[Any, list[int]]:
        answer = broker._dispatcher(broker.connection, memoryview(frame))  # type: ignore[arg-type]
        frame[:] = bytes(len(frame))  # the connection uses its buffer again
        partitions = broker.broker.partitions.topics["t"].partitions
        before = [partition.high_watermark for partition in partitions]
        assert isinstance(answer, PendingResponse) and not answer.is_wait and answer.lets_pass is None
        return await answer.future, before

    reply, before = broker.run(dispatch())
    assert before == [1, 0]
    answers = decode_reply(reply, 0, 9).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert read_header(stored(broker, 1)).record_count == 1
