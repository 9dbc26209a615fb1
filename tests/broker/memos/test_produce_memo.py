"""Produce that repeats an earlier request: the answers of a broker that remembers are those of one that does not."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.broker.apis import produce
from klamm.broker.memos import produce_memo
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from klamm.protocol.messages.delete_topics import DeleteTopicsRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import seal
from tests.support.embedded import CloseConnection, EmbeddedBroker, batch, encode_frame

FIRST_VERSION = 9
VERSIONS = range(FIRST_VERSION, 14)


class Twins:
    """Two brokers that get the same; one forgets each time what it has seen of the connection."""

    def __init__(self, path: Path) -> None:
        self.remembering = EmbeddedBroker(path / "remembering")
        self.forgetful = EmbeddedBroker(path / "forgetful")

    def __enter__(self) -> Self:
        for broker in (self.remembering, self.forgetful):
            broker.__enter__()
            broker.create_topic("t", partitions=3)
        return self

    def __exit__(self, *_: object) -> None:
        for broker in (self.remembering, self.forgetful):
            broker.__exit__()

    def send(self, frame: bytes) -> object:
        """What both answer."""
        self.forgetful.connection.memo = None
        found, expected = outcome(self.remembering, frame), outcome(self.forgetful, frame)
        assert found == expected, frame.hex()
        return found

    def stored(self) -> list[bytes]:
        return [stored(self.remembering), stored(self.forgetful)]


def outcome(broker: EmbeddedBroker, frame: bytes) -> object:
    try:
        reply = broker.dispatch(frame)
    except CloseConnection as error:
        return error.reason
    return None if reply is None else bytes(reply.head)


def stored(broker: EmbeddedBroker) -> bytes:
    data = b""
    for partition in broker.broker.partitions.topics["t"].partitions:
        log = partition.log
        assert log is not None
        region = log.read_records(0, max_bytes=1 << 24, max_offset=log.log_end_offset).region
        data += b"" if region is None else region.read()
    return data


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with Twins(tmp_path_factory.mktemp("twins")) as both:
        yield both


def request(
    records: bytes | None, *, index: int = 0, topic: str = "t", topic_id: bytes = bytes(16), acks: int = -1
) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records)]
    named = TopicProduceData(name="" if any(topic_id) else topic, topic_id=topic_id, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[named])


def frame(
    records: bytes | None,
    *,
    version: int = FIRST_VERSION,
    correlation_id: int = 7,
    client_id: str = "c",
    **fields: object,
) -> bytes:
    made = bytearray(encode_frame(request(records, **fields), version, client_id))  # type: ignore[arg-type]
    struct.pack_into(">i", made, 4, correlation_id)
    return bytes(made)


def is_decoded(broker: EmbeddedBroker, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a request goes the way of all others."""
    made = []
    with monkeypatch.context() as patch:
        original = produce.ProduceOperation
        patch.setattr(produce, "ProduceOperation", lambda *arguments: made.append(1) or original(*arguments))
        broker.dispatch(sent)
    return bool(made)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_repeated_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        fields = {"version": version, "acks": acks}
        topic_id = broker.create_topic("t")
        if version >= 13:
            fields["topic_id"] = topic_id
        assert is_decoded(broker, frame(batch(b"x"), **fields), monkeypatch)
        for number, size in enumerate((1, 50, 100, 20_000, 200_000)):
            sent = frame(batch(b"x" * size), correlation_id=number, **fields)
            assert not is_decoded(broker, sent, monkeypatch)
        log = broker.broker.partitions.topics["t"].partitions[0].log
        assert log is not None and log.log_end_offset == 6
        assert broker.broker.partitions.topics["t"].metrics.produce_requests == 6


@pytest.mark.parametrize("version", range(FIRST_VERSION, 13))
def test_answers_are_the_same(twins: Twins, version: int) -> None:
    for correlation_id in (1, -5, 2**31 - 1):
        for index in (0, 1, 2, 3, -1):
            for size in (1, 50, 100, 20_000):
                twins.send(frame(batch(b"x" * size), version=version, index=index, correlation_id=correlation_id))
    assert twins.stored()[0] == twins.stored()[1]


def bad_batches() -> list[bytes | None]:
    good = batch(b"x")
    other_crc, other_magic, other_offset = bytearray(good), bytearray(good), bytearray(good)
    other_crc[-1] ^= 1
    other_magic[16] = 1
    other_offset[7] = 5
    sequence = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=77)
    transactional = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    wrong_count = bytearray(good)
    wrong_count[60] = 2
    seal(wrong_count)
    bad = [other_crc, other_magic, other_offset, wrong_count]
    return [None, b"", good[:30], good + good, *map(bytes, bad), transactional, sequence, sequence, good + b"junk"]


def test_bad_batches_are_answered_the_same(twins: Twins) -> None:
    twins.send(frame(batch(b"x")))
    for _ in range(2):
        for records in bad_batches():
            twins.send(frame(records))
            twins.send(frame(batch(b"x")))
    sequenced = batch(b"x", producer_id=6, producer_epoch=0, base_sequence=0)
    assert twins.send(frame(sequenced)) == twins.send(frame(sequenced)), "a duplicate"
    twins.send(frame(batch(b"x", producer_id=6, producer_epoch=0, base_sequence=9)))
    assert twins.stored()[0] == twins.stored()[1]


@settings(max_examples=300)
@given(st.data())
def test_mutated_requests_are_answered_the_same(twins: Twins, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        fields = {"index": data.draw(st.integers(0, 2)), "version": data.draw(st.sampled_from([9, 10, 12]))}
        sent = bytearray(frame(batch(b"x" * data.draw(st.sampled_from([1, 60, 200]))), **fields))
        for _ in range(data.draw(st.integers(0, 2))):
            position = data.draw(st.integers(8, 60) | st.integers(len(sent) - 5, len(sent) - 1))
            sent[position] = data.draw(st.integers(0, 255))
        cut = data.draw(st.sampled_from([0, 0, 0, 0, 1, 3, 40]))
        tail = data.draw(st.sampled_from([b"", b"", b"\0", b"\1\0\0"]))
        twins.send(bytes(sent[: len(sent) - cut]) + tail)
    assert len(twins.stored()[0]) == len(twins.stored()[1])


@pytest.mark.parametrize("tail", ["020000 0000", "01050100", "000000 00", "0000", "000000000000"])
def test_tags_after_the_records(twins: Twins, tail: str) -> None:
    for _ in range(3):
        plain = frame(batch(b"x"))
        twins.send(plain)
        twins.send(plain[:-1] + bytes.fromhex(tail))


def test_an_unusual_way_of_writing_is_not_learned(tmp_path: Path) -> None:
    """The name's size in two bytes: what `memoize` would write itself is something else."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        plain = frame(batch(b"x"))
        at = plain.index(b"\x02t")
        answer = broker.dispatch(plain[:at] + b"\x82\x00t" + plain[at + 2 :])
        assert answer is not None and broker.connection.memo is None
        broker.dispatch(plain)
        assert broker.connection.memo is not None


def test_what_changes_meanwhile_is_seen(twins: Twins) -> None:
    sent = frame(batch(b"x"), topic="later")
    twins.send(sent)  # no such topic
    for broker in (twins.remembering, twins.forgetful):
        broker.create_topic("later", config={"max.message.bytes": 2000})
    twins.send(sent)
    twins.send(sent)
    twins.send(frame(batch(b"x" * 2000), topic="later"))  # too large
    for broker in (twins.remembering, twins.forgetful):
        partition = broker.broker.partitions.topics["later"].partitions[0]
        partition.min_insync_replicas = 2
        partition.set_replicas(2, 1)
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        partition = broker.broker.partitions.topics["later"].partitions[0]
        partition.set_replicas(1, 1)
        assert partition.log is not None
        partition.log.local.offline_reason = "a test"
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        partition = broker.broker.partitions.topics["later"].partitions[0]
        assert partition.log is not None
        partition.log.local.offline_reason = None
        broker.call(DeleteTopicsRequest(topic_names=["later"], timeout_ms=1000), 5)
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        broker.create_topic("later")
    twins.send(sent)
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        partition = broker.broker.partitions.topics["later"].partitions[0]
        assert partition.log_end_offset == 2
        partition.set_replicas(2, 1)
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        partition = broker.broker.partitions.topics["later"].partitions[0]
        assert partition.log_end_offset == 3  # one replica is enough
        config = AlterableConfig(name="min.insync.replicas", value="2")
        resource = AlterConfigsResource(resource_type=2, resource_name="later", configs=[config])
        broker.call(AlterConfigsRequest(resources=[resource]), 1)
    twins.send(sent)
    for broker in (twins.remembering, twins.forgetful):
        assert broker.broker.partitions.topics["later"].partitions[0].log_end_offset == 3


def test_a_bug_is_answered_and_logged(
    twins: Twins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    twins.send(frame(batch(b"x")))
    with monkeypatch.context() as patch:
        patch.setattr("klamm.broker.partitions.partition.validate", lambda *_, **__: 1 / 0)
        twins.send(frame(batch(b"x")))
    assert caplog.text.count("Produce v9 from") == 2


def test_an_error_leaves_no_garbage_that_holds_the_records(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        good, bad = frame(batch(b"x")), frame(batch(b"x")[:-1] + b"?")
        for sent in (good, bad):
            broker.dispatch(sent)
        gc.collect()
        gc.disable()
        try:
            broker.dispatch(bad)
            assert not [kept for kept in gc.get_objects() if isinstance(kept, KafkaError)]
        finally:
            gc.enable()


def test_no_memo_is_used_while_a_flush_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t")
        broker.create_topic("flushed", config={"flush.messages": 1})
        broker.dispatch(frame(batch(b"x"), topic="flushed"))
        assert broker.connection.memo is None
        broker.dispatch(frame(batch(b"x")))
        partition = broker.broker.partitions.topics["t"].partitions[0]
        partition.flush_pending = True
        assert is_decoded(broker, frame(batch(b"x")), monkeypatch)
        partition.flush_pending = False
        assert not is_decoded(broker, frame(batch(b"x")), monkeypatch)


def test_no_more_than_so_many_are_kept_and_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_memo, "MAX_PARTITION_MEMOS", 3)
    monkeypatch.setattr(produce_memo, "MAX_MEMOIZED", 9)
    order = list(range(8)) * 2
    random.Random(1).shuffle(order)
    with EmbeddedBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=8)
        for index in order:
            broker.dispatch(frame(batch(b"x"), index=index))
            memo = broker.connection.memo
            assert memo is not None and len(memo._by_head) <= 3
        broker.dispatch(frame(batch(b"x"), client_id="another"))
        memo = broker.connection.memo
        assert memo is not None and memo.memoized_count == 9
        log_ends = [partition.log_end_offset for partition in broker.broker.partitions.topics["t"].partitions]
        assert sum(log_ends) == len(order) + 1
