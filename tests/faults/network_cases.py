# ruff: noqa: E501 -- one row of the table, one line
"""The network rows of docs/faults.md as a table: row, fact, request, expected answer, and Apache Kafka's if it differs.

A case is a function of a `Broker` (the peer with the topics that `prepare` makes) that gives what a client sees:
CLOSED, SILENT, ANSWERED, an error code, or a tuple of such. The same table runs against Apache Kafka 4.4: `kafka` has
its answer where it differs, NOT_ASKED where it cannot be asked (Kafka 4 has removed the version).

A case can be repeated any number of times; it leaves nothing but records.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from klamm.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from klamm.protocol.messages.init_producer_id import InitProducerIdRequest
from klamm.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from klamm.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import HEADER_BYTES, Record, encode_batch, write_varint
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.message_set import encode_message, encode_set
from tests.faults.wire import ANSWERED, CLOSED, CORRELATION_ID, SILENT, Peer, batch, header, patched, sized

INT_MAX = 2**31 - 1
SAME = object()
NOT_ASKED = object()
TOPIC = "t"
PRODUCE_VERSION = 9
FETCH_VERSION = 11


class Broker(Peer):
    """A peer with the topics of `prepare`, and the requests that the cases are made of."""

    def prepare(self, wait_s: float = 30.0) -> None:
        """Make the topics that the cases use, and see that each is served."""
        specs: dict[str, dict[str, str]] = {
            TOPIC: {},
            "compacted": {"cleanup.policy": "compact"},
            "small": {"segment.bytes": str(1 << 20), "max.message.bytes": str(4 << 20)},
            "zstd": {"compression.type": "zstd"},
            "a.b": {},
            "__consumer_offsets": {"cleanup.policy": "compact"},
        }
        for name, configs in specs.items():
            assert self.create(name, configs=configs) in (0, ErrorCode.TOPIC_ALREADY_EXISTS), name
        end = time.monotonic() + wait_s
        for name in specs.keys() - {"__consumer_offsets"}:
            while (code := self.produce(one(), topic=name)) != 0:
                assert time.monotonic() < end, f"{name}: error {code}"

    # -- one partition, one answer

    def produce(
        self,
        records: bytes | bytearray | None,
        *,
        topic: str = TOPIC,
        partition: int = 0,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
        client_id: bytes = b"test",
        transactional_id: str | None = None,
    ) -> int | str:
        """The error code of the partition."""
        answer = self.produced(
            [PartitionProduceData(index=partition, records=records)],
            topic=topic,
            acks=acks,
            version=version,
            client_id=client_id,
            transactional_id=transactional_id,
        )
        return answer if isinstance(answer, str) else answer[0].error_code

    def produced(
        self,
        data: list[PartitionProduceData],
        *,
        topic: str = TOPIC,
        acks: int = -1,
        version: int = PRODUCE_VERSION,
        client_id: bytes = b"test",
        transactional_id: str | None = None,
    ) -> Any:
        """The partitions of the response, or CLOSED or SILENT."""
        request = ProduceRequest(
            transactional_id=transactional_id if version >= 3 else None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.ask(request, version, client_id=client_id)
        return answer if isinstance(answer, str) else answer.responses[0].partition_responses

    def fetched(self, *, offset: int = 0, topic: str = TOPIC, version: int = FETCH_VERSION, **fields: Any) -> Any:
        """The whole response, with `fields` of the request and of its partition."""
        partition = {name: fields.pop(name) for name in ("partition_max_bytes", "partition") if name in fields}
        wanted = FetchPartition(**{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **partition})
        request = FetchRequest(
            **{
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "topics": [FetchTopic(topic=topic, partitions=[wanted])],
                **fields,
            }
        )
        return self.ask(request, version)

    def fetch(self, **fields: Any) -> int | str:
        """The error code at the top, else that of the partition."""
        answer = self.fetched(**fields)
        if isinstance(answer, str):
            return answer
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    def end_offset(self, topic: str = TOPIC) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsTopic(name=topic, partitions=[partition])]
        answer = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 2)
        return int(answer.topics[0].partitions[0].offset)

    def create(self, name: str, *, partitions: int = 1, factor: int = 1, configs: dict[str, str] | None = None) -> int:
        """The error code."""
        return self.created([new_topic(name, partitions=partitions, factor=factor, configs=configs)])[0]

    def created(self, topics: list[CreatableTopic], *, validate_only: bool = False) -> list[int]:
        """The error codes, sorted: Kafka answers in an order of its own."""
        request = CreateTopicsRequest(topics=topics, timeout_ms=20_000, validate_only=validate_only)
        return sorted(topic.error_code for topic in self.ask(request, 4).topics)

    def metadata(self, body: bytes, version: int = 1, **options: Any) -> str:
        return self.answered(header(3, version, **options) + body)

    def producer(self) -> tuple[int, int]:
        """A new producer id and its epoch."""
        end = time.monotonic() + 10
        while True:
            answer = self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1)
            if answer.error_code != E.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > end:  # Kafka's first block
                assert answer.error_code == 0, answer
                return answer.producer_id, answer.producer_epoch

    def sequence(self, *batches: tuple[int, int]) -> tuple[int | str, ...]:
        """The codes of one-record batches with these (epoch, sequence) of one new producer."""
        producer_id, _ = self.producer()
        return tuple(
            self.produce(one(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
            for epoch, sequence in batches
        )


def now_ms() -> int:
    return int(time.time() * 1000)


def one(value: bytes = b"v", **options: Any) -> bytearray:
    """A good batch of one record."""
    return batch(value, timestamp=options.pop("timestamp", now_ms()), **options)


def two(**options: Any) -> bytearray:
    return batch(b"v", b"w", timestamp=now_ms(), **options)


def new_topic(
    name: str, *, partitions: int = 1, factor: int = 1, configs: dict[str, str] | None = None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def with_body(body: bytes, count: int = 1, **fields: int) -> bytearray:
    """A batch with these bytes as its records."""
    out = one()[:HEADER_BYTES] + body
    return patched(out, length=len(out) - 12, last_offset_delta=count - 1, count=count, **fields)


def record(*, offset_delta: int = 0, headers: int = 0, extra_length: int = 0) -> bytes:
    """One record with a number of headers, or a length, that does not fit."""
    body = bytearray(b"\0\0")
    write_varint(body, offset_delta)
    body += b"\x02k\x02v"
    write_varint(body, headers)
    out = bytearray()
    write_varint(out, len(body) + extra_length)
    return bytes(out + body)


def bomb(size: int) -> bytearray:
    """One record of zeros, compressed a thousand times."""
    body = bytearray(b"\0\0\0\x01")
    write_varint(body, size)
    tail = b"\0"
    head = bytearray()
    write_varint(head, len(body) + size + len(tail))
    zeros = bytes(1 << 20)
    packer = gzip.zlib.compressobj(6, wbits=31)  # type: ignore[attr-defined]
    packed = packer.compress(bytes(head + body))
    for _ in range(size >> 20):
        packed += packer.compress(zeros)
    packed += packer.compress(tail) + packer.flush()
    return with_body(packed, attributes=int(Codec.GZIP))


BOMB_BELOW = bomb(64 << 20)
BOMB_ABOVE = bomb(128 << 20)


@dataclass(frozen=True, slots=True)
class Case:
    """One row or sub-row."""

    row: int
    fact: str
    run: Callable[[Broker], object]
    expect: object
    kafka: object = SAME

    @property
    def name(self) -> str:
        return f"row {self.row}: {self.fact}"


# -- cases that are more than a line


def unknown_api_versions(broker: Broker) -> object:
    answer = broker.payload(header(18, 99, flexible=True) + b"\1\1\0")
    assert isinstance(answer, bytes)
    return struct.unpack_from(">ih", answer) == (CORRELATION_ID, 35), broker.metadata(b"\0\0\0\0")


def bad_client_name(broker: Broker) -> object:
    answer = broker.ask(ApiVersionsRequest(client_software_name="bad name!", client_software_version="1"), 3)
    return answer.error_code, broker.metadata(b"\0\0\0\0")


def invalid_utf8_topic(broker: Broker) -> object:
    body = struct.pack(">ih", 1, 3) + b"a\xff\xfe" + b"\0"
    answer = broker.payload(header(3, 4) + body)
    return "a\ufffd\ufffd".encode() in answer if isinstance(answer, bytes) else answer


def acks_0_then_metadata(broker: Broker, **options: Any) -> object:
    """Return the first answer after a Produce without an answer."""
    records = PartitionProduceData(index=options.get("partition", 0), records=one())
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[records])])
    out = bytearray(header(0, PRODUCE_VERSION))
    ProduceRequest.encode[PRODUCE_VERSION](request, out)  # type: ignore[attr-defined]
    answer = broker.raw(sized(bytes(out)) + sized(header(3, 1) + b"\0\0\0\0"))
    return answer if isinstance(answer, str) else ANSWERED


def twice_the_same_partition(broker: Broker) -> object:
    """(answers, records appended, what stands there)"""
    before = broker.end_offset()
    data = [PartitionProduceData(index=0, records=one(b"first")), PartitionProduceData(index=0, records=one(b"last"))]
    answers = broker.produced(data)
    found = broker.fetched(offset=before).responses[0].partitions[0].records
    return [answer.error_code for answer in answers], broker.end_offset() - before, b"last" in bytes(found)


def one_batch_only(broker: Broker) -> object:
    """max_bytes of 0 at every level gives the first batch whole."""
    found = broker.fetched(max_bytes=0, partition_max_bytes=0).responses[0].partitions[0]
    return found.error_code, len(found.records) == struct.unpack_from(">qi", found.records)[1] + 12


def min_bytes_and_wait(broker: Broker) -> object:
    """An answer comes although there will never be as much, and not before the wait is over."""
    started = time.monotonic()
    answer = broker.fetched(offset=broker.end_offset(), min_bytes=INT_MAX, max_wait_ms=50)
    return answer.error_code, time.monotonic() - started >= 0.04  # timers of uvloop count whole milliseconds


def wrong_session_epoch(broker: Broker) -> object:
    session = broker.fetched(session_id=0, session_epoch=0).session_id
    code = broker.fetched(session_id=session, session_epoch=7).error_code
    closing = broker.fetched(session_id=session, session_epoch=-1, topics=[]).error_code
    return session > 0, code, closing


def duplicate(broker: Broker) -> object:
    """(codes, same offset, records appended)"""
    producer_id, epoch = broker.producer()
    before = broker.end_offset()
    answers = []
    for _ in range(2):
        records = one(producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        answers += broker.produced([PartitionProduceData(index=0, records=records)])
    offsets = {answer.base_offset for answer in answers}
    return [answer.error_code for answer in answers], offsets == {before}, broker.end_offset() - before


def null_key(broker: Broker) -> object:
    """(code, index of the record at fault)"""
    records = encode_batch([Record(0, now_ms(), b"k", b"v"), Record(1, now_ms(), None, b"v")])
    answer = broker.produced([PartitionProduceData(index=0, records=records)], topic="compacted")[0]
    return answer.error_code, [error.batch_index for error in answer.record_errors]


def alter(broker: Broker, key: str, value: str, resource_type: int = 2, name: str = TOPIC) -> int:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    return int(broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 0).responses[0].error_code)


def init_producer_id(broker: Broker, **fields: Any) -> int:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    return int(broker.ask(request, 1).error_code)


def auto_created(broker: Broker, name: str) -> int:
    """The error of a topic that Metadata asks for and may create."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return int(broker.ask(request, 4).topics[0].error_code)


def pipelined(broker: Broker, count: int = 200) -> object:
    """Answers in the order of the requests, each with its own correlation id."""
    request = b"".join(sized(struct.pack(">hhih", 3, 1, n, -1) + b"\0\0\0\0") for n in range(count))
    first = broker.raw(request)
    assert broker._wire is not None
    answers = [first, *(broker._wire.receive() for _ in range(count - 1))]
    return [struct.unpack_from(">i", answer)[0] for answer in answers if isinstance(answer, bytes)] == [*range(count)]


def nested_set() -> bytes:
    """A compressed message in a compressed message."""
    inner = encode_set([Record(0, now_ms(), b"k", b"v")], 1, codec=Codec.GZIP)
    return encode_message(1, 0, now_ms(), None, gzip.compress(inner), int(Codec.GZIP))


GOOD_METADATA = b"\0\0\0\0"  # v1: no topics
NAMES = {
    "empty": "",
    "one dot": ".",
    "two dots": "..",
    "a way out": "../x",
    "a slash": "a/b",
    "250 characters": "x" * 250,
    "not ASCII": "tö",
    "a space": "a b",
    "NUL": "a\0b",
}
COUNTS = {
    "5 with 1": (5, 0),
    "0": (0, -1),
    "-1": (-1, 0),
    "INT_MAX": (INT_MAX, 0),
    "INT_MAX all over": (INT_MAX, INT_MAX - 1),
}

E = ErrorCode
CASES = [
    Case(1, "size -1", lambda b: b.raw(b"\xff\xff\xff\xff"), CLOSED),
    Case(1, "size INT_MAX", lambda b: b.raw(b"\x7f\xff\xff\xff"), CLOSED),
    Case(1, "size above socket.request.max.bytes", lambda b: b.raw(struct.pack(">i", (100 << 20) + 1)), CLOSED),
    Case(2, "size 0", lambda b: b.raw(b"\0\0\0\0"), CLOSED),
    Case(2, "a frame of 3 bytes of junk", lambda b: b.raw(sized(b"abc")), CLOSED),
    Case(2, "3 bytes of junk and the end", lambda b: b.raw(b"abc", half_close=True), CLOSED),
    Case(2, "HTTP GET", lambda b: b.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), CLOSED),
    Case(2, "TLS hello", lambda b: b.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(506)), CLOSED),
    Case(3, "api key 9999", lambda b: b.answered(header(9999, 0)), CLOSED),
    Case(3, "api key -1", lambda b: b.answered(header(-1, 0)), CLOSED),
    Case(3, "Vote, for controllers", lambda b: b.answered(header(52, 0) + bytes(40)), CLOSED),
    Case(3, "StopReplica of old", lambda b: b.answered(header(5, 0) + bytes(40)), CLOSED),
    Case(4, "Metadata v99", lambda b: b.metadata(GOOD_METADATA, 99), CLOSED),
    Case(4, "Metadata v-1", lambda b: b.metadata(GOOD_METADATA, -1), CLOSED),
    Case(5, "ApiVersions v99 answered in v0, stays open", unknown_api_versions, (True, ANSWERED)),
    Case(6, "bad client name, stays open", bad_client_name, (E.INVALID_REQUEST, ANSWERED)),
    Case(7, "trailing bytes", lambda b: b.metadata(GOOD_METADATA + b"junk"), ANSWERED),
    Case(8, "body truncated: Metadata", lambda b: b.metadata(b"\0\0\0\1\0\5ab"), CLOSED),
    Case(8, "body truncated: ApiVersions", lambda b: b.answered(header(18, 3) + b"\5ab"), CLOSED),
    Case(8, "body missing: Produce", lambda b: b.answered(header(0, 9)), CLOSED),
    Case(8, "body missing: Fetch", lambda b: b.answered(header(1, 12)), CLOSED),
    Case(8, "client id cut off", lambda b: b.answered(struct.pack(">hhih", 3, 1, 7, 100) + b"abc"), CLOSED),
    Case(10, "half a frame and the end", lambda b: b.raw(b"\0\0\0\x40half", half_close=True), CLOSED),
    Case(10, "half a size and the end", lambda b: b.raw(b"\0\0", half_close=True), CLOSED),
    Case(11, "array count INT_MAX", lambda b: b.metadata(b"\x7f\xff\xff\xff"), CLOSED),
    Case(11, "compact count INT_MAX", lambda b: b.metadata(b"\xff\xff\xff\xff\x07\0\0\0\0", 9), CLOSED),
    Case(12, "array count -2 is null", lambda b: b.metadata(b"\xff\xff\xff\xfe"), ANSWERED),
    Case(12, "compact count 2**32 - 1 is null or refused", lambda b: b.metadata(b"\xff\xff\xff\xff\x0f\0\0\0\0", 9), CLOSED, ANSWERED),
    Case(13, "varint of 6 bytes", lambda b: b.metadata(b"\xff\xff\xff\xff\xff\x01\0\0\0\0", 9), CLOSED),
    Case(13, "varint of 6 bytes in the header", lambda b: b.answered(header(3, 9)[:-1] + b"\xff\xff\xff\xff\xff\x01"), CLOSED),
    Case(13, "tagged field count INT_MAX", lambda b: b.metadata(b"\1\0\0\xff\xff\xff\xff\x07", 9), CLOSED),
    Case(13, "tagged field longer than the frame", lambda b: b.metadata(b"\1\0\0\1\5\xff\x7f", 9), CLOSED),
    Case(13, "string longer than the frame", lambda b: b.metadata(b"\0\0\0\1\x7f\xffabc"), CLOSED),
    Case(13, "compact string longer than the frame", lambda b: b.answered(header(18, 3) + b"\xff\xff\xff\xff\x07abc\0"), CLOSED),
    Case(13, "null where none may be", lambda b: b.metadata(b"\0\0\0\1\xff\xff"), CLOSED),
    Case(13, "compact null where none may be", lambda b: b.answered(header(18, 3) + b"\0\2a\0"), CLOSED),
    Case(14, "invalid UTF-8 in a topic", invalid_utf8_topic, True),
    Case(14, "invalid UTF-8 in the client id", lambda b: b.metadata(GOOD_METADATA, client_id=b"\xc3\x28\xff"), ANSWERED),
    Case(15, "bad CRC", lambda b: b.produce(patched(one(), crc=1, sealed=False)), E.CORRUPT_MESSAGE),
    Case(16, "magic 9", lambda b: b.produce(patched(one(), magic=9)), E.CORRUPT_MESSAGE),
    Case(16, "magic 1 in v3 and later", lambda b: b.produce(encode_set([Record(0, now_ms(), b"k", b"v")], 1)), E.INVALID_RECORD),
    Case(17, "batch length too long", lambda b: b.produce(patched(one(), length=1000)), E.INVALID_RECORD),
    Case(17, "batch length 13", lambda b: b.produce(patched(one(), length=13)), E.CORRUPT_MESSAGE),
    Case(17, "batch length negative", lambda b: b.produce(patched(one(), length=-5)), E.CORRUPT_MESSAGE),
    Case(18, "empty records", lambda b: b.produce(b""), E.INVALID_RECORD),
    Case(19, "null records", lambda b: b.produce(None), E.INVALID_RECORD, SILENT),
    *(
        Case(20, f"record count {name}", lambda b, c=c, d=d: b.produce(patched(one(), count=c, last_offset_delta=d)), E.INVALID_RECORD)
        for name, (c, d) in COUNTS.items()
    ),
    Case(20, "record count 5 of 5, with 1", lambda b: b.produce(patched(one(), count=5, last_offset_delta=4)), E.INVALID_RECORD),
    Case(20, "record count 1 with 2", lambda b: b.produce(patched(two(), count=1, last_offset_delta=0)), E.INVALID_RECORD),
    Case(20, "record count 2 with last offset delta 5", lambda b: b.produce(patched(two(), last_offset_delta=5)), E.INVALID_RECORD),
    Case(21, "wrong inner offset deltas are refused", lambda b: b.produce(with_body(record(offset_delta=3))), E.INVALID_RECORD, 0),
    Case(22, "record length overruns", lambda b: b.produce(with_body(record(extra_length=40))), E.INVALID_RECORD),
    Case(22, "negative header count", lambda b: b.produce(with_body(record(headers=-3))), E.INVALID_RECORD),
    Case(22, "header count INT_MAX", lambda b: b.produce(with_body(record(headers=INT_MAX))), E.INVALID_RECORD),
    Case(23, "two batches", lambda b: b.produce(one() + one()), E.INVALID_RECORD),
    Case(24, "junk after the batch is dropped", lambda b: b.produce(one() + b"junk"), 0),
    Case(25, "control batch", lambda b: b.produce(one(control=True)), E.INVALID_RECORD),
    Case(25, "control batch of a producer", lambda b: b.produce(one(control=True, producer_id=1, producer_epoch=0, base_sequence=0)), E.INVALID_RECORD),
    Case(26, "codec 7", lambda b: b.produce(patched(one(), attributes=7)), E.UNSUPPORTED_COMPRESSION_TYPE, E.UNKNOWN_SERVER_ERROR),
    *(
        Case(26, f"codec {codec.name} with junk", lambda b, codec=codec: b.produce(patched(one(), attributes=int(codec))), E.INVALID_RECORD, E.UNKNOWN_SERVER_ERROR)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
    ),
    Case(27, "bomb below the limit", lambda b: b.produce(BOMB_BELOW), 0),
    Case(27, "bomb above max.decompressed.message.bytes", lambda b: b.produce(BOMB_ABOVE), E.INVALID_RECORD, 0),
    Case(28, "nested compression", lambda b: b.produce(nested_set(), version=2), E.INVALID_RECORD, NOT_ASKED),
    Case(29, "timestamp of tomorrow", lambda b: b.produce(one(timestamp=now_ms() + 86_400_000)), E.INVALID_TIMESTAMP),
    Case(29, "timestamp LONG_MAX", lambda b: b.produce(one(timestamp=2**63 - 1)), E.INVALID_TIMESTAMP),
    Case(30, "batch above max.message.bytes", lambda b: b.produce(one(bytes(1_572_864))), E.MESSAGE_TOO_LARGE),
    Case(31, "acks=5", lambda b: b.produce(one(), acks=5), E.INVALID_REQUIRED_ACKS),
    Case(32, "acks=0 with an error", lambda b: acks_0_then_metadata(b, partition=99), CLOSED),
    Case(32, "acks=0 has no answer", acks_0_then_metadata, ANSWERED),
    Case(33, "unknown topic", lambda b: b.produce(one(), topic="nowhere"), E.UNKNOWN_TOPIC_OR_PARTITION),
    Case(33, "topic ../../etc", lambda b: b.produce(one(), topic="../../etc"), E.UNKNOWN_TOPIC_OR_PARTITION),
    Case(33, "partition 99", lambda b: b.produce(one(), partition=99), E.UNKNOWN_TOPIC_OR_PARTITION),
    Case(33, "partition -1", lambda b: b.produce(one(), partition=-1), E.UNKNOWN_TOPIC_OR_PARTITION),
    Case(34, "same partition twice, the last wins", twice_the_same_partition, ([0], 1, True)),
    *(Case(35, f"create: name with {what}", lambda b, name=name: b.create(name), E.INVALID_TOPIC_EXCEPTION) for what, name in NAMES.items()),
    *(Case(35, f"auto-create: name with {what}", lambda b, name=name: auto_created(b, name), E.INVALID_TOPIC_EXCEPTION) for what, name in NAMES.items()),
    Case(35, "249 characters are good", lambda b: b.created([new_topic("x" * 249)], validate_only=True), [0]),
    Case(36, "a_b collides with a.b", lambda b: b.create("a_b"), E.INVALID_TOPIC_EXCEPTION),
    Case(37, "names twice", lambda b: b.created([new_topic("n"), new_topic("n")]), [E.INVALID_REQUEST]),
    Case(37, "0 partitions", lambda b: b.create("n", partitions=0), E.INVALID_PARTITIONS),
    Case(37, "a million partitions", lambda b: b.create("n", partitions=1_000_000), E.POLICY_VIOLATION),
    Case(37, "replication factor 9", lambda b: b.create("n", factor=9), E.INVALID_REPLICATION_FACTOR),
    Case(37, "exists", lambda b: b.create(TOPIC), E.TOPIC_ALREADY_EXISTS),
    Case(38, "fetch max_bytes -1", lambda b: b.fetch(max_bytes=-1), E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR),
    Case(38, "partition_max_bytes -1", lambda b: b.fetch(partition_max_bytes=-1), E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR),
    Case(39, "max_bytes 0 gives one batch", one_batch_only, (0, True)),
    Case(39, "min_bytes INT_MAX waits", min_bytes_and_wait, (0, True)),
    Case(40, "offset beyond the end", lambda b: b.fetch(offset=1 << 40), E.OFFSET_OUT_OF_RANGE),
    Case(40, "offset -5", lambda b: b.fetch(offset=-5), E.OFFSET_OUT_OF_RANGE),
    Case(41, "unknown session", lambda b: b.fetch(session_id=4711, session_epoch=1), E.FETCH_SESSION_ID_NOT_FOUND),
    Case(41, "wrong session epoch", wrong_session_epoch, (True, E.INVALID_FETCH_SESSION_EPOCH, 0)),
    Case(41, "session 0, epoch 5", lambda b: b.fetch(session_id=0, session_epoch=5), E.FETCH_SESSION_ID_NOT_FOUND),
    Case(41, "epoch -1 has no session", lambda b: b.fetch(session_id=4711, session_epoch=-1), 0),
    Case(42, "isolation level 9", lambda b: b.fetch(isolation_level=9), E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR),
    Case(43, "duplicate sequence has the first offset", duplicate, ([0, 0], True, 1)),
    Case(44, "sequence gap", lambda b: b.sequence((0, 0), (0, 5)), (0, E.OUT_OF_ORDER_SEQUENCE_NUMBER)),
    Case(44, "new epoch not at 0", lambda b: b.sequence((0, 0), (1, 5)), (0, E.OUT_OF_ORDER_SEQUENCE_NUMBER)),
    Case(45, "old epoch", lambda b: b.sequence((3, 0), (2, 1)), (0, E.INVALID_PRODUCER_EPOCH)),
    Case(46, "producer id with sequence -1", lambda b: b.produce(one(producer_id=1, producer_epoch=0)), E.INVALID_RECORD),
    Case(47, "transactional batch without id", lambda b: b.produce(one(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    Case(47, "transactional batch, partition not verified", lambda b: b.produce(one(transactional=True, producer_id=1, producer_epoch=0, base_sequence=0), transactional_id="x"), E.NOT_ENOUGH_REPLICAS),  # nobody has asked for a coordinator yet
    Case(49, "InitProducerId with an empty id", lambda b: init_producer_id(b, transactional_id=""), E.INVALID_REQUEST),
    Case(51, "create: unknown config", lambda b: b.create("n", configs={"no.such.key": "1"}), E.INVALID_CONFIG),
    Case(51, "create: bad config value", lambda b: b.create("n", configs={"retention.ms": "soon"}), E.INVALID_CONFIG),
    Case(51, "alter: unknown config", lambda b: alter(b, "no.such.key", "1"), E.INVALID_CONFIG),
    Case(51, "alter: bad config value", lambda b: alter(b, "segment.bytes", "-1"), E.INVALID_CONFIG),
    Case(51, "alter: bad broker config value", lambda b: alter(b, "log.retention.ms", "soon", 4, "1"), E.INVALID_REQUEST),
    Case(61, "pipelined requests in order", pipelined, True),
    Case(63, "request and half close", lambda b: b.payload(header(3, 1) + GOOD_METADATA, half_close=True)[:4] == struct.pack(">i", CORRELATION_ID), True),
    Case(65, "produce to an internal topic", lambda b: b.produce(one(), topic="__consumer_offsets"), E.INVALID_TOPIC_EXCEPTION),
    Case(66, "record without key into a compacted topic", null_key, (E.INVALID_RECORD, [1])),
    Case(67, "batch larger than segment.bytes", lambda b: b.produce(one(bytes(1_572_864)), topic="small"), E.RECORD_LIST_TOO_LARGE),
    Case(68, "debug consumer", lambda b: b.fetch(replica_id=-2), 0),
    Case(68, "fetch of a stranger as replica", lambda b: b.fetch(replica_id=5), E.NOT_LEADER_OR_FOLLOWER),
    Case(68, "fetch of a stranger as replica, v15", lambda b: b.fetch(version=15, replica_state=ReplicaState(replica_id=5, replica_epoch=1)), E.UNKNOWN_TOPIC_ID),
    Case(69, "zstd in Produce v6", lambda b: b.produce(one(codec=Codec.ZSTD), version=6), E.UNSUPPORTED_COMPRESSION_TYPE),
    Case(69, "zstd to Fetch v9", lambda b: b.fetch(topic="zstd", version=9), E.UNSUPPORTED_COMPRESSION_TYPE, 0),
]  # fmt: skip
