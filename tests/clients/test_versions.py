"""Produce, Fetch, ListOffsets and Metadata at each version: old clients and new ones read each other's records.

Message sets are written and read by kafka-python's own code (but for lz4 in magic 0, which it no longer knows).
The same tests run against Apache Kafka where it still has the version: that keeps them honest.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Final

import pytest

from klamm.client.blocking import NodeClient
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import Record, batches, encode_batch
from klamm.protocol.records.compression import Codec
from tests.clients import raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker_process import BrokerProcess

with warnings.catch_warnings():  # kafka-python reads its resources in a deprecated way
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

PRODUCE: Final = range(14)
FETCH: Final = range(19)
LIST_OFFSETS: Final = range(12)
METADATA: Final = range(14)
APACHE_FROM: Final = {"produce": 3, "fetch": 4, "list_offsets": 1, "metadata": 0}

BATCHES_FROM: Final = 3  # Produce
ZSTD_PRODUCED_FROM: Final = 7
ZSTD_FETCHED_FROM: Final = 4  # 10, if it is the codec of the topic's config
HEADERS_FETCHED_FROM: Final = 4
TIMESTAMPS_FETCHED_FROM: Final = 2

RECORDS: Final = [
    Record(0, 5000, b"key", b"value " * 20, (("h", b"1"), ("h", None))),
    Record(1, 3000, None, b"value " * 20),
    Record(2, 4000, b"key", None),
    Record(3, 9000, None, None),
    Record(4, 8000, b"", b""),
    Record(5, 7000, "ä".encode(), "ö".encode() * 100),
]
MIDDLE: Final = 3
names = itertools.count(1)

APACHE: Final = [pytest.mark.campaign, pytest.mark.java]


def each_version(api: str, versions: range) -> pytest.MarkDecorator:
    """Klamm at all versions, and Apache Kafka at those it still has."""
    ours = [("klamm", version) for version in versions]
    theirs = [pytest.param("apache", version, marks=APACHE) for version in versions[APACHE_FROM[api] :]]
    return pytest.mark.parametrize(("server", "version"), [*ours, *theirs], indirect=["server"])


@pytest.fixture
def server(request: pytest.FixtureRequest) -> BrokerProcess | ApacheKafka:
    found = request.getfixturevalue("broker" if request.param == "klamm" else "apache")
    assert isinstance(found, BrokerProcess | ApacheKafka)
    return found


@pytest.fixture
def server_node(server: BrokerProcess | ApacheKafka) -> Iterator[NodeClient]:
    with NodeClient("127.0.0.1", server.port) as client:
        yield client


@pytest.fixture
def topic(server_node: NodeClient) -> str:
    name = f"versions-{next(names)}"
    raw.create(server_node, name, config={"retention.ms": "-1"})  # the records are of 1970
    return name


def lowest(server: BrokerProcess | ApacheKafka, api: str) -> int:
    return APACHE_FROM[api] if isinstance(server, ApacheKafka) else 0


def encoded(version: int, codec: Codec) -> bytes | bytearray:
    """RECORDS as a client of that Produce version sends them."""
    if version >= BATCHES_FROM:
        return encode_batch(RECORDS, codec=codec)
    magic = 1 if version == 2 else 0
    if codec == Codec.ZSTD:  # never was in message sets: one that says so all the same
        return message_set.encode_message(magic, 0, 1, None, b"?", codec)
    if codec == Codec.LZ4 and magic == 0:
        return message_set.encode_set(RECORDS, magic, codec=codec)
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for record in RECORDS:
        assert builder.append(record.offset, record.timestamp, record.key, record.value) is not None
    return bytes(builder.build())


def decoded(data: bytes, version: int) -> list[Record]:
    """What a client of that Fetch version reads."""
    magic = 0 if version < 2 else 1 if version < HEADERS_FETCHED_FROM else 2
    assert {data[position + 16] for position in entry_positions(data)} <= {magic}
    if magic == 0 and any(data[position + 17] & 7 == Codec.LZ4 for position in entry_positions(data)):
        return list(message_set.records(data, 1 << 20))
    records = MemoryRecords(data)
    found = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            found.append(Record(record.offset, timestamp, record.key, record.value, tuple(record.headers)))
    return found


def entry_positions(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        yield position
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")


def expected(produce: int, fetch: int) -> list[Record]:
    """RECORDS without what either version cannot carry."""
    return [
        record._replace(
            timestamp=record.timestamp if produce >= 2 and fetch >= TIMESTAMPS_FETCHED_FROM else -1,
            headers=record.headers if produce >= BATCHES_FROM and fetch >= HEADERS_FETCHED_FROM else (),
        )
        for record in RECORDS
    ]


@each_version("produce", PRODUCE)
@pytest.mark.parametrize("codec", Codec)
def test_every_fetch_version_reads_what_a_produce_version_wrote(
    version: int, codec: Codec, server: BrokerProcess | ApacheKafka, server_node: NodeClient, topic: str
) -> None:
    answer = raw.produce(server_node, topic, encoded(version, codec), version)
    if codec == Codec.ZSTD and version < ZSTD_PRODUCED_FROM:
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert answer.log_append_time_ms == -1
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    for fetch_version in FETCH[lowest(server, "fetch") :]:
        answer = raw.fetch_answer(server_node, topic, version=fetch_version)
        if codec == Codec.ZSTD and fetch_version < ZSTD_FETCHED_FROM:
            assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            continue
        assert (answer.error_code, answer.high_watermark) == (0, len(RECORDS)), fetch_version
        assert decoded(bytes(answer.records), fetch_version) == expected(version, fetch_version), fetch_version
        later = decoded(raw.fetch(server_node, topic, offset=MIDDLE, version=fetch_version), fetch_version)
        wanted = [record for record in expected(version, fetch_version) if record.offset >= MIDDLE]
        assert [record for record in later if record.offset >= MIDDLE] == wanted, fetch_version
        assert raw.fetch(server_node, topic, offset=len(RECORDS), version=fetch_version) == b""
        beyond = raw.fetch_answer(server_node, topic, offset=len(RECORDS) + 1, version=fetch_version)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, fetch_version


@pytest.mark.parametrize("version", FETCH)
def test_a_topic_of_zstd_is_refused_to_clients_that_do_not_know_it(version: int, node: NodeClient) -> None:
    """Apache Kafka did the same up to 3.9; 4.x lets clients find out by themselves."""
    name = f"versions-{next(names)}"
    raw.create(node, name, config={"compression.type": "zstd"})
    assert raw.produce(node, name, encoded(3, Codec.NONE), 3).error_code == 0
    code = raw.fetch_answer(node, name, version=version).error_code
    assert code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else 0)


@each_version("produce", PRODUCE)
def test_log_append_time_is_returned_and_stored(
    version: int, server: BrokerProcess | ApacheKafka, server_node: NodeClient
) -> None:
    name = f"versions-{next(names)}"
    raw.create(server_node, name, config={"message.timestamp.type": "LogAppendTime"})
    answer = raw.produce(server_node, name, encoded(version, Codec.GZIP), version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    data = raw.fetch(server_node, name)
    times = {record.timestamp for record in decoded(data, 12)}
    assert len(times) == 1
    if version >= 2:
        assert times == {answer.log_append_time_ms}
    for fetch_version in FETCH[max(TIMESTAMPS_FETCHED_FROM, lowest(server, "fetch")) :]:
        found = decoded(raw.fetch(server_node, name, version=fetch_version), fetch_version)
        assert {record.timestamp for record in found} == times, fetch_version


@each_version("fetch", FETCH)
def test_limits_and_waits_of_each_fetch_version(
    version: int, server: BrokerProcess | ApacheKafka, server_node: NodeClient, topic: str
) -> None:
    """The first batch is whole from v3 on, however small the limit; before, records are cut at it."""
    for _ in range(3):
        raw.produce(server_node, topic, encoded(3, Codec.NONE), 3)
    whole = raw.fetch(server_node, topic, version=version)
    one = raw.fetch_answer(server_node, topic, version=version, max_bytes=100).records
    if version >= 3:
        first = decoded(bytes(one), version)
        assert first == decoded(whole, version)[: len(RECORDS)]
    else:
        assert bytes(one) == whole[:100]
    rest = raw.fetch_answer(server_node, topic, offset=18, version=version, max_wait_ms=50, min_bytes=1)
    assert (rest.error_code, len(rest.records)) == (0, 0)


@each_version("list_offsets", LIST_OFFSETS)
def test_list_offsets_at_each_version(
    version: int, server: BrokerProcess | ApacheKafka, server_node: NodeClient, topic: str
) -> None:
    empty = f"versions-{next(names)}"
    raw.create(server_node, empty)
    raw.produce(server_node, topic, encoded(3, Codec.NONE), 3)  # timestamps 5000 3000 4000 9000 8000 7000

    def ask(timestamp: int, name: str = topic) -> Any:
        answer = raw.list_offsets(server_node, name, timestamp, version)
        if version == 0:
            assert answer.error_code == 0
            return answer.old_style_offsets
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        assert answer.leader_epoch == (-1 if version < 4 or answer.offset == -1 else 0)
        return answer.offset, answer.timestamp

    if version == 0:
        assert ask(-1) == [6]
        assert ask(-2) == [0]
        assert raw.list_offsets(server_node, topic, -1, 0, count=5).old_style_offsets == [6, 0]
        assert ask(-1, empty) == [0]
        return
    assert ask(-1) == (6, -1)
    assert ask(-2) == (0, -1)
    assert ask(0) == (0, 5000)
    assert ask(5000) == (0, 5000)
    assert ask(5001) == (3, 9000)
    assert ask(9000) == (3, 9000)
    assert ask(9001) == (-1, -1)
    assert ask(-3) == ((3, 9000) if version >= 7 else "UNSUPPORTED_VERSION")
    assert ask(-4) == ((0, -1) if version >= 8 else "UNSUPPORTED_VERSION")
    assert ask(-5) == ((-1, -1) if version >= 9 else "UNSUPPORTED_VERSION")
    assert ask(-6) == ((-1, -1) if version >= 11 else "UNSUPPORTED_VERSION")
    assert ask(-1, empty) == (0, -1)
    assert ask(-2, empty) == (0, -1)
    assert ask(0, empty) == (-1, -1)
    assert ask(-1, "versions-none") == "UNKNOWN_TOPIC_OR_PARTITION"


@each_version("metadata", METADATA)
def test_metadata_at_each_version(
    version: int, server: BrokerProcess | ApacheKafka, server_node: NodeClient, topic: str
) -> None:
    identity = raw.topic_id(server_node, topic)

    def ask(topics: list[MetadataRequestTopic] | None, *, create: bool = False) -> Any:
        request = MetadataRequest(topics=topics)
        if version >= 4:
            request.allow_auto_topic_creation = create
        return server_node.request(request, version)

    response = ask([MetadataRequestTopic(name=topic)])
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(1, "127.0.0.1", server.port)]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert (response.cluster_id is not None) == (version >= 2)
    (found,) = response.topics
    assert (found.error_code, found.name, found.is_internal) == (0, topic, False)
    assert found.topic_id == (identity if version >= 10 else bytes(16))
    (partition,) = found.partitions
    assert (partition.error_code, partition.partition_index, partition.leader_id) == (0, 0, 1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert partition.leader_epoch == (0 if version >= 7 else -1)

    everything = ask([] if version == 0 else None)
    assert topic in {entry.name for entry in everything.topics}
    if version >= 1:
        assert ask([]).topics == []
    if version >= 12:
        (by_id,) = ask([MetadataRequestTopic(name=None, topic_id=identity)]).topics
        assert (by_id.error_code, by_id.name) == (0, topic)
        unknown = bytes(range(16))
        (by_id,) = ask([MetadataRequestTopic(name=None, topic_id=unknown)]).topics
        assert (by_id.error_code, by_id.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, unknown)

    (refused,) = ask([MetadataRequestTopic(name="not/allowed")], create=True).topics
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    missing = f"versions-{next(names)}"
    if version >= 4:
        (absent,) = ask([MetadataRequestTopic(name=missing)]).topics
        assert (absent.error_code, absent.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    if isinstance(server, BrokerProcess):  # Apache Kafka answers before the topic is there
        (created,) = ask([MetadataRequestTopic(name=missing)], create=True).topics
        assert (created.error_code, len(created.partitions)) == (0, 1)


@pytest.mark.parametrize("server", ["klamm", pytest.param("apache", marks=APACHE)], indirect=True)
def test_batches_are_stored_as_they_came(
    server: BrokerProcess | ApacheKafka, server_node: NodeClient, topic: str
) -> None:
    """Byte for byte, but for base offset and leader epoch."""
    for number, codec in enumerate(Codec):
        sent = encode_batch(RECORDS, codec=codec)
        assert raw.produce(server_node, topic, sent, 13).base_offset == number * len(RECORDS)
        data = raw.fetch(server_node, topic, offset=number * len(RECORDS))
        ((position, header),) = batches(data)
        assert (header.base_offset, header.leader_epoch, position) == (number * len(RECORDS), 0, 0)
        assert data[8:12] + data[16:] == sent[8:12] + sent[16:]
