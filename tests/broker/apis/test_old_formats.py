"""Partitions that hold messages of the formats 0 and 1: Fetch and ListOffsets at all their versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from klamm.protocol.errors import ErrorCode
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import Record, batches, records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_set
from klamm.storage.copies.follower import append_assigned
from tests.broker.apis.test_fetch import MAX, partitions, request
from tests.broker.apis.test_list_offsets import ask
from tests.storage.test_old_kafka import expected, unpack
from tests.support.embedded import NOW_MS, EmbeddedBroker, batch

ROWS = [Record(offset, NOW_MS + offset, b"k%d" % offset, b"v") for offset in range(6)]
TIMELESS = [record._replace(timestamp=-1) for record in ROWS]


def store(broker: EmbeddedBroker, *sets: bytes) -> None:
    partition = broker.broker.partitions.get_partition("t", 0)
    assert partition is not None
    log = partition.online_log()
    append_assigned(log, b"".join(sets))
    log.set_high_watermark(log.log_end_offset)


def fetched(broker: EmbeddedBroker, version: int, offset: int) -> bytes:
    data = partitions(broker.call(request(broker, version, offset), version))[0]
    assert data.error_code == 0
    return bytes(data.records)


def read(data: bytes) -> list[Record]:
    return [record for at, head in batches(data) for record in records(data, head, MAX, at)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", range(4, 19))
def test_new_clients_get_what_is_stored(broker: EmbeddedBroker, version: int, magic: int) -> None:
    """Apache Kafka 4.4 sends it so, too: all its clients still read these formats."""
    first, second = encode_set(ROWS[:3], magic, codec=Codec.GZIP), encode_set(ROWS[3:], magic)
    store(broker, first, second)
    assert fetched(broker, version, 0) == first + second
    assert fetched(broker, version, 2) == first + second
    assert fetched(broker, version, 3) == second


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_clients_get_a_format_that_they_know(
    broker: EmbeddedBroker, version: int, magic: int, stored: int, codec: Codec
) -> None:
    store(broker, encode_set(ROWS[:3], stored, codec=codec), encode_set(ROWS[3:], stored, codec=codec))
    broker.produce("t", batch(b"new"))
    data = fetched(broker, version, 0)
    assert {message.magic for message in message_set.messages(data)} <= {*range(magic + 1)}
    expected = TIMELESS if min(stored, magic) == 0 else ROWS
    found = read(data)
    assert found[:6] == expected
    assert [(record.offset, record.value) for record in found[6:]] == [(6, b"new")]


def test_a_search_by_time_where_the_format_has_none_is_unsupported(broker: EmbeddedBroker) -> None:  # row 70
    store(broker, encode_set(TIMELESS, 0))
    for version in range(1, 12):
        answer = ask(broker, version, NOW_MS)
        assert (answer.error_code, answer.offset) == (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1)
        assert [ask(broker, version, timestamp).offset for timestamp in (-2, -1)] == [0, 6]
    assert ask(broker, 7, -3).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    broker.produce("t", batch(b"x"))
    assert (ask(broker, 1, NOW_MS).offset, ask(broker, 7, -3).offset) == (6, 6)


def test_a_search_by_time_in_format_1(broker: EmbeddedBroker) -> None:
    store(broker, encode_set(ROWS[:3], 1, codec=Codec.SNAPPY), encode_set(ROWS[3:], 1))
    assert [ask(broker, 1, NOW_MS + step).offset for step in range(6)] == list(range(6))
    assert ask(broker, 7, -3).offset == 5


@pytest.mark.parametrize("topic", ["m0", "m1", "m1a", "c1"])
def test_a_directory_of_kafka_0_10_is_taken_over_and_served(topic: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    unpack("0.10.2.2", topic, data).rename(data / "t-0")
    (data / "meta.properties").write_text("#\n#Sat Nov 21 16:05:14 UTC 2026\nbroker.id=1\nversion=0\n")
    (data / ".kafka_cleanshutdown").touch()
    produced = expected("0.10.2.2", topic)
    with EmbeddedBroker(tmp_path) as broker:
        found: list[Record] = []
        while data_read := fetched(broker, 11, found[-1].offset + 1 if found else 0):
            found += [record for record in read(data_read) if not found or record.offset > found[-1].offset]
        assert found[-1] == produced[-1]
        assert found == [produced[record.offset] for record in found]
        if topic.startswith("m"):
            assert len(found) == len(produced)
