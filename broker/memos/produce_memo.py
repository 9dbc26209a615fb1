"""Produce requests that repeat an earlier one of their connection, with other records.

A producer of small batches sends the same bytes around each of them, except for the correlation id. Such a request need
not be decoded, nor its response be encoded: the request fields are known, and the response differs in its offsets only.
Each request checks that the topic is still the same and the partition can be appended to.

A memo is for one batch for one partition, acks=1 or all, without transaction and without waiting for a flush. For any
other request `ProduceMemo.answer` returns None without effect, and the request takes the normal way
(`apis/produce.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

from klamm.broker.apis.dispatcher import as_kafka_error
from klamm.broker.apis.produce_partition import TOPIC_IDS_FROM, refused, writable
from klamm.broker.network.response import Response, plain_response
from klamm.broker.quotas.sensor import NO_SENSOR
from klamm.protocol.apis import ApiKey, request_class, response_class
from klamm.protocol.errors import KafkaError
from klamm.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.protocol.records.validate import NotAtOnce
from klamm.protocol.wire import Malformed, read_uvarint

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.network.connection import Connection
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import HostedTopic
    from klamm.broker.quotas.client_quotas import Meter

TAGS_FROM = 9

REQUEST_HEAD = struct.Struct(">ii")  # api key and version in one, correlation id; the bytes after it are compared
CORRELATION_ID = struct.Struct(">i")
RESPONSE_HEAD = struct.Struct(">iix")  # size of the rest, correlation id, no tags
SIZE_BYTES = 4
OFFSETS = struct.Struct(">qqq")  # base_offset, log_append_time_ms, log_start_offset
NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request; they follow the records
NO_RECORDS = b"\1" + NO_TAGS

PRODUCE = int(ApiKey.PRODUCE)
ENCODE_REQUEST, ENCODE_RESPONSE = request_class(PRODUCE).encode, response_class(PRODUCE).encode

MAX_PARTITION_MEMOS = 64  # of one connection
MAX_MEMOIZED = 1000  # over its whole life: requests that always differ are not worth it


def memoize(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    frame: memoryview,
    body: int,
) -> None:
    """Store a memo of a request of this kind in its connection. The request's body begins at position `body` of the
    frame.
    """
    topics = request.topic_data
    version = context.api_version
    if version < TAGS_FROM or request.transactional_id is not None or request.acks not in (-1, 1):
        return
    if len(topics) != 1 or len(topics[0].partition_data) != 1:
        return
    memo = context.connection.memo
    memoized_count = 0 if memo is None else memo.memoized_count
    if response.responses[0].partition_responses[0].error_code or memoized_count >= MAX_MEMOIZED:
        return
    head = _until_records(request, version)
    end = body + len(head)
    if frame[body:end] != head:
        return  # the client encodes it in another way; the supposed records may be something else
    (key, _) = REQUEST_HEAD.unpack_from(frame)
    meter = context.charge.meter if context.charge is not None else None
    if not isinstance(memo, ProduceMemo) or not memo.fits(key, end, meter):
        if meter is None:
            memo = ProduceMemo(broker, key, end, memoized_count)
        else:
            memo = CountedProduce(broker, key, end, memoized_count, meter)
        context.connection.memo = memo
    memo.add(frame, context, request)


class PartitionMemo:
    """The bytes before the records of one partition, and the response, with its offsets at `offsets_position`."""

    __slots__ = (
        "acks",
        "answer",
        "client_id",
        "index",
        "name",
        "offsets_position",
        "partition",
        "topic",
        "topic_id",
        "topic_key",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.topic_key = topic.topic_id if context.api_version >= TOPIC_IDS_FROM else topic.name
        self.index = topic.partition_data[0].index
        self.acks = request.acks
        self.client_id = context.client_id
        self.answer, other = [
            self.encoded(
                PartitionProduceResponse(index=self.index, error_code=0, base_offset=offset), context.api_version, 0
            )
            for offset in (0, -1)
        ]
        self.offsets_position = next(i for i, byte in enumerate(other) if byte != self.answer[i])
        self.topic: HostedTopic | None = None  # the topic of `partition`, as long as it exists
        self.partition: Partition

    def find(self, topic: HostedTopic, version: int) -> bool:
        """Look `partition` up. Return whether it may be written to."""
        try:
            self.partition = writable(topic, self.index, version, self.client_id, self.acks)
        except KafkaError:
            return False
        self.topic = topic
        return True

    def encoded(self, answer: PartitionProduceResponse, version: int, correlation_id: int) -> bytearray:
        topic = TopicProduceResponse(name=self.name, topic_id=self.topic_id, partition_responses=[answer])
        head = bytearray(RESPONSE_HEAD.size)
        ENCODE_RESPONSE[version](ProduceResponse(responses=[topic]), head)
        RESPONSE_HEAD.pack_into(head, 0, len(head) - SIZE_BYTES, correlation_id)
        return head


class ProduceMemo:
    """The requests of one connection with the same version and position of the records."""

    __slots__ = ("_by_head", "_clock", "_end", "_key", "_metrics", "_topics", "_version", "memoized_count")

    def __init__(self, broker: Broker, key: int, end: int, memoized_count: int) -> None:
        self._clock = broker.clock
        self._metrics = broker.metrics.api(PRODUCE)
        self._key = key
        self._version = version = key & 0xFFFF
        by_id = version >= TOPIC_IDS_FROM
        self._topics: Mapping[Any, HostedTopic]
        self._topics = broker.partitions.topics_by_id if by_id else broker.partitions.topics
        self._end = end  # of the known bytes; the size of the records follows
        self._by_head: dict[bytes, PartitionMemo] = {}
        self.memoized_count = memoized_count

    def fits(self, key: int, end: int, meter: Meter | None) -> bool:
        return meter is None and (key, end) == (self._key, self._end)

    def add(self, frame: memoryview, context: RequestContext, request: ProduceRequest) -> None:
        head = frame[REQUEST_HEAD.size : self._end].tobytes()
        if head in self._by_head:  # the memo fits; another reason prevented its use
            return
        self.memoized_count += 1
        if len(self._by_head) == MAX_PARTITION_MEMOS:
            self._by_head.clear()
        self._by_head[head] = PartitionMemo(context, request)

    def answer(self, connection: Connection, frame: memoryview, started: float) -> Response | None:
        """Return the response if the request repeats a known one and can be served at once; else None,
        without effect.
        """
        frame_size = len(frame)
        end = self._end
        if frame_size <= end + 1:
            return None
        key, correlation_id = REQUEST_HEAD.unpack_from(frame)
        if key != self._key or (memo := self._by_head.get(frame[REQUEST_HEAD.size : end].tobytes())) is None:
            return None
        size, start = frame[end], end + 1
        if size > 0x7F:
            high, start = frame[start], start + 1
            size += (high - 1) << 7
            if high > 0x7F:
                try:
                    size, start = read_uvarint(frame, end)
                except (Malformed, IndexError):
                    return None
        stop = start + size - 1
        if not size or stop + 3 != frame_size or frame[stop] or frame[stop + 1] or frame[stop + 2]:
            return None  # tags follow the records
        version = self._version
        topic = self._topics.get(memo.topic_key)
        if topic is None or (topic is not memo.topic and not memo.find(topic, version)):
            return None
        partition = memo.partition
        if partition.lacks_replicas and memo.acks == -1:
            return None
        log = partition.log
        if log is None or partition.flush_pending or partition.has_flush_rule:
            return None
        try:
            result = partition.append_records(frame[start:stop], produce_version=version, now_ms=self._clock.wall_ms())
        except NotAtOnce:
            return None
        except Exception as error:
            # Its traceback would keep this frame, and with it the records, until the next garbage collection.
            problem = as_kafka_error(error, "Produce", version, connection).without_frames()
            head = memo.encoded(refused(problem, memo.index, version, topic, partition), version, correlation_id)
        else:
            partition.metrics.produce_requests += 1
            head = memo.answer[:]
            CORRELATION_ID.pack_into(head, SIZE_BYTES, correlation_id)
            OFFSETS.pack_into(
                head, memo.offsets_position, result.base_offset, result.log_append_time_ms, log.log_start_offset
            )
        self._metrics.answered(version, perf_counter() - started, 0, frame_size, len(head))
        return plain_response(head)


class CountedProduce(ProduceMemo):
    """A memo for a client with quotas: the certainly permitted amount is counted down (`Sensor.left`). Near the
    bound every request goes the way of all others."""

    __slots__ = ("_bytes", "_meter", "_time")

    def __init__(self, broker: Broker, key: int, end: int, memoized_count: int, meter: Meter) -> None:
        super().__init__(broker, key, end, memoized_count)
        self._meter = meter
        self._bytes = meter.produce
        self._time = None if meter.request is NO_SENSOR else meter.request

    def fits(self, key: int, end: int, meter: Meter | None) -> bool:
        return meter is self._meter and (key, end) == (self._key, self._end)

    def answer(self, connection: Connection, frame: memoryview, started: float) -> Response | None:
        produced, spent, size = self._bytes, self._time, len(frame)
        if size > produced.left or started >= produced.until:
            return None
        if spent is not None and (spent.left <= 0 or started >= spent.until):
            return None
        response = ProduceMemo.answer(self, connection, frame, started)
        if response is not None:
            produced.left -= size
            produced.used_s = started
            if spent is not None:
                spent.left -= perf_counter() - started
                spent.used_s = started
        return response


def _until_records(request: ProduceRequest, version: int) -> bytearray:
    """Encode the request in the usual way, up to the size of the records."""
    topic = request.topic_data[0]
    data = [PartitionProduceData(index=topic.partition_data[0].index, records=b"")]
    bare = ProduceRequest(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
    )
    encoded: bytearray = ENCODE_REQUEST[version](bare, bytearray())
    assert encoded.endswith(NO_RECORDS)
    return encoded[: -len(NO_RECORDS)]
