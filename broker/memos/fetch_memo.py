"""Fetch requests that repeat an earlier one of their connection at another offset.

A reader of one partition sends the same bytes again and again, except for the correlation id and the offset. Such a
request need not be decoded, nor its response be encoded: the request fields are known, and the response differs in a
few numbers only. The partition is read each time.

A memo is for one partition without a session, with records to send at once. For any other request `FetchMemo.answer`
returns None without effect, and the request takes the normal way (`apis/fetch.py`).
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from klamm.broker.network.response import Response
from klamm.broker.quotas.sensor import NO_SENSOR
from klamm.protocol.apis import ApiKey, request_class, response_class
from klamm.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from klamm.protocol.wire import put_uvarint

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.network.connection import Connection
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.quotas.client_quotas import Meter

LOG_START_FROM = 5
SESSIONS_FROM = 7
ZSTD_FROM = 10
TAGS_FROM = 12
TOPIC_IDS_FROM = 13

REQUEST_HEAD = struct.Struct(">ii")  # api key and version in one, correlation id; the bytes after it are compared
RESPONSE_HEAD = struct.Struct(">ii")  # size of the rest, correlation id
SIZE_BYTES = 4
OFFSET = struct.Struct(">q")
OFFSETS = struct.Struct(">qqq")  # high watermark, last stable offset, log start offset
RECORDS_SIZE = struct.Struct(">i")
READ_COMMITTED = 1

FETCH = int(ApiKey.FETCH)
ENCODE_REQUEST, ENCODE_RESPONSE = request_class(FETCH).encode, response_class(FETCH).encode

MAX_MEMOIZED = 100  # of one connection over its whole life: requests that always differ are not worth it
MAX_FRAME_BYTES = 4096  # is kept as long as the connection


def memoize(
    broker: Broker,
    context: RequestContext,
    request: FetchRequest,
    response: FetchResponse,
    frame: memoryview,
    body: int,
) -> None:
    """Store a memo of a request of this kind in its connection. The request's body begins at position `body` of the
    frame.
    """
    topics, version = request.topics, context.api_version
    if version < LOG_START_FROM or len(topics) != 1 or len(topics[0].partitions) != 1 or response.session_id:
        return
    if len(frame) > MAX_FRAME_BYTES:
        return
    if version >= SESSIONS_FROM and (request.session_id or request.session_epoch != -1):
        return
    if not response.responses or not response.responses[0].partitions[0].records:
        return
    row = topics[0].partitions[0]
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    if replica_id != -1 or row.last_fetched_epoch >= 0:
        return
    connection = context.connection
    memo = connection.memo
    memoized_count = 0 if memo is None else memo.memoized_count
    if memoized_count >= MAX_MEMOIZED:
        return
    whole = frame.tobytes()
    meter = context.charge.meter if context.charge is not None else None
    if (
        isinstance(memo, FetchMemo) and memo.meter is meter and memo.matches(whole)
    ):  # the memo fits; another reason prevented its use
        return
    if whole[body:] != ENCODE_REQUEST[version](request, bytearray()):
        return  # the client encodes it in another way
    at = body + _offset_position(request, version)
    kind = FetchMemo if meter is None else CountedFetch
    connection.memo = memo = kind(broker, request, version, whole, at, memoized_count + 1)
    memo.meter = meter


def _offset_position(request: FetchRequest, version: int) -> int:
    """Return the position of the offset in the encoded body."""
    encode, row = ENCODE_REQUEST[version], request.topics[0].partitions[0]
    asked, row.fetch_offset = row.fetch_offset, 0
    body = encode(request, bytearray())
    row.fetch_offset = -1
    other = encode(request, bytearray())
    row.fetch_offset = asked
    return next(i for i, byte in enumerate(other) if byte != body[i])


class FetchMemo:
    """The request of one connection, and its response."""

    __slots__ = (
        "_api_key_and_version",
        "_at",
        "_broker",
        "_committed",
        "_head",
        "_index",
        "_leader_epoch",
        "_max_bytes",
        "_metrics",
        "_min_bytes",
        "_name",
        "_offsets_at",
        "_prefix",
        "_size",
        "_suffix",
        "_tail",
        "_topic_id",
        "_version",
        "memoized_count",
        "meter",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        version: int,
        frame: bytes,
        offset_position: int,
        memoized_count: int,
    ) -> None:
        topic = request.topics[0]
        row = topic.partitions[0]
        self._broker = broker
        self._metrics = broker.metrics.api(FETCH)
        self._version = version
        self._size = len(frame)
        (self._api_key_and_version, _) = REQUEST_HEAD.unpack_from(frame)
        self._at = offset_position
        self._head = frame[REQUEST_HEAD.size : offset_position]
        self._tail = frame[offset_position + OFFSET.size :]
        self._name, self._topic_id, self._index = topic.topic, topic.topic_id, row.partition
        self._leader_epoch = row.current_leader_epoch
        self._min_bytes = request.min_bytes
        self._max_bytes = min(row.partition_max_bytes, request.max_bytes)
        self._committed = request.isolation_level == READ_COMMITTED
        self._prefix, self._suffix = self._encoded(0)
        other, _ = self._encoded(-1)
        self._offsets_at = next(i for i, byte in enumerate(other) if byte != self._prefix[i])
        self.memoized_count = memoized_count
        self.meter: Meter | None = None

    def _encoded(self, offset: int) -> tuple[bytearray, bytes]:
        """Encode the response: the part before the size of the records, and the part after the records."""
        records = b"records"
        data = PartitionData(
            partition_index=self._index,
            error_code=0,
            high_watermark=offset,
            last_stable_offset=offset,
            log_start_offset=offset,
            aborted_transactions=[] if self._committed else None,
            records=records,
        )
        topic = FetchableTopicResponse(topic=self._name, topic_id=self._topic_id, partitions=[data])
        head = bytearray(RESPONSE_HEAD.size + (self._version >= TAGS_FROM))
        ENCODE_RESPONSE[self._version](FetchResponse(responses=[topic]), head)
        at = head.rindex(records)
        prefix = head[: at - (1 if self._version >= TAGS_FROM else RECORDS_SIZE.size)]
        return prefix, bytes(head[at + len(records) :])

    def answer(self, connection: Connection, frame: memoryview, started: float) -> Response | None:
        """Return the response if the request repeats the memo's and can be served at once; else None,
        without effect.
        """
        if len(frame) != self._size:
            return None
        whole = frame.tobytes()
        if not self.matches(whole) or (partition := self._partition()) is None or (log := partition.log) is None:
            return None
        _, correlation_id = REQUEST_HEAD.unpack_from(whole)
        (offset,) = OFFSET.unpack_from(whole, self._at)
        stable = log.last_stable_offset
        try:
            found = partition.fetch_records(
                offset,
                max_bytes=min(self._max_bytes, self._broker.fetch_max_bytes),
                min_one=True,
                up_to=stable if self._committed else log.high_watermark,
            )
            region = found.region
            if region is None or found.truncated or region.size < self._min_bytes:
                return None
            if self._committed and log.local.segments.aborted(offset, found.next_offset):
                return None
        except Exception:  # the normal way raises it again and makes a response of it
            return None
        response = self._prefix[:]
        size = region.size
        if self._version >= TAGS_FROM:
            put_uvarint(response, size + 1)
        else:
            response += RECORDS_SIZE.pack(size)
        records_at = len(response)
        response += self._suffix
        total = len(response) + size
        RESPONSE_HEAD.pack_into(response, 0, total - SIZE_BYTES, correlation_id)
        OFFSETS.pack_into(response, self._offsets_at, log.high_watermark, stable, log.log_start_offset)
        metrics = partition.metrics
        metrics.bytes_out += size
        metrics.messages_out += max(0, found.next_offset - offset)
        metrics.fetch_requests += 1
        self._metrics.answered(self._version, time.perf_counter() - started, 0, self._size, total)
        return Response(response, [(records_at, region)])

    def matches(self, frame: bytes) -> bool:
        """Return whether the frame is the same, except for the correlation id and the offset."""
        at = self._at
        return (
            len(frame) == self._size
            and REQUEST_HEAD.unpack_from(frame)[0] == self._api_key_and_version
            and frame[REQUEST_HEAD.size : at] == self._head
            and frame[at + OFFSET.size :] == self._tail
        )

    def _partition(self) -> Partition | None:
        """Return the partition; None if it cannot be read without further checks."""
        partitions = self._broker.partitions
        by_id = self._version >= TOPIC_IDS_FROM
        topic = partitions.topics_by_id.get(self._topic_id) if by_id else partitions.topics.get(self._name)
        if topic is None or not 0 <= self._index < len(topic.partitions):
            return None
        partition = topic.partitions[self._index]
        if 0 <= self._leader_epoch != partition.leader_epoch:
            return None
        if self._version < ZSTD_FROM and partition.rules.compression == "zstd":
            return None
        return partition


class CountedFetch(FetchMemo):
    """A memo for a client with quotas: the certainly permitted amount is counted down (`Sensor.left`). Near the
    bound every request goes the way of all others."""

    __slots__ = ()

    def answer(self, connection: Connection, frame: memoryview, started: float) -> Response | None:
        assert self.meter is not None
        fetched, spent = self.meter.fetch, self.meter.request
        if fetched.left < self._max_bytes or started >= fetched.until or spent.left <= 0 or started >= spent.until:
            return None
        response = FetchMemo.answer(self, connection, frame, started)
        if response is not None:
            assert response.regions is not None
            fetched.left -= len(response.head) - RESPONSE_HEAD.size + response.regions[0][1].size
            fetched.used_s = started
            if spent is not NO_SENSOR:
                spent.left -= time.perf_counter() - started
                spent.used_s = started
        return response
