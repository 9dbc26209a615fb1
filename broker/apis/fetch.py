"""Fetch (1): v0-18. Reads record batches, at once or when enough of them have come.

A partition's records are sent as a region of its segment file (sendfile); the code never looks at a record. A request
that finds less than ``min_bytes`` waits (`DelayedFetch`). A read_committed reader gets the records below the last
stable offset, with the list of aborted transactions. v4 has isolation levels and aborted transactions, v5 the log start
offset, v7 sessions (KIP-227, `fetch_session`), v9 leader epochs, v12 diverging epochs, v13 topic ids.

Limits: ``partition_max_bytes`` within ``max_bytes`` (v3+) within ``fetch.max.bytes``. From v3 on the first batch of the
response is complete however large it is; before v3 records are cut at the limit. v0-1 get message sets of format 0,
v2-3 of format 1: batches are converted down, large ones in a thread. A batch of zstd is not converted, and zstd topics
are refused before v10.
A fetch of many partitions, which may be those of its session, reads them in several turns of the loop.
Replica id -2 is a debugging consumer that reads to the log end; other replicas are not part of a one-node cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from klamm.broker.apis.fetch_partition import NO_RECORDS, failed, gone, note_told
from klamm.broker.fetch.delayed_fetch import DelayedFetch
from klamm.broker.fetch.down_conversion import converted
from klamm.broker.fetch.fetch_session import named
from klamm.broker.memos import fetch_memo
from klamm.broker.memos.fetch_memo import READ_COMMITTED, TOPIC_IDS_FROM, ZSTD_FROM
from klamm.broker.network.file_pieces import in_memory
from klamm.protocol.errors import (
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from klamm.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from klamm.protocol.regions import FileRegion

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.fetch.fetch_session import FetchedPartition, FetchSession
    from klamm.broker.fetch.ready_fetches import SharedReads
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.quotas.charge import Charge
    from klamm.storage.log.log import Log

HARD_LIMIT_UP_TO = 2  # these versions are cut at max_bytes, even inside a message
MAGIC_0_UP_TO = 1
MAGIC_1_UP_TO = 3
DEBUGGING_CONSUMER = -2
CONSUMER = -1
PARTITIONS_A_TURN = 1000
SHARED_BYTES = 16 << 10  # reads up to this size are shared between fetches that waited for the same data

memoize = fetch_memo.memoize

Results = list[tuple["FetchedPartition", PartitionData, int]]  # with the number of records, counted by offsets


def handle(
    broker: Broker, context: RequestContext, request: FetchRequest, make: Callable[..., Fetch] | None = None
) -> FetchResponse | asyncio.Future[FetchResponse]:
    version = context.api_version
    session, incremental, wanted = broker.fetch_sessions.resolve(request, version)
    fetch = (make or Fetch)(broker, request, version, session, wanted, incremental=incremental)
    if context.charge is not None:
        fetch.charge_to(context.charge)
    if len(wanted) > PARTITIONS_A_TURN:
        return DelayedFetch(broker, fetch).answer_in_turns()
    fetch.read()
    if fetch.is_complete or request.max_wait_ms <= 0 or broker.is_stopping:
        if fetch.is_converted:
            return asyncio.ensure_future(fetch.converted_response())
        return fetch.response()
    return DelayedFetch(broker, fetch).wait()


async def handle_large(
    broker: Broker, context: RequestContext, request: FetchRequest, make: Callable[..., Fetch] | None = None
) -> FetchResponse:
    """Handle a request of very many elements: a thread builds the partitions, the rest runs in turns."""
    partitions = await asyncio.get_running_loop().run_in_executor(broker.codecs, named, request)
    session, incremental, wanted = broker.fetch_sessions.resolve(request, context.api_version, partitions)
    fetch = (make or Fetch)(broker, request, context.api_version, session, wanted, incremental=incremental)
    if context.charge is not None:
        fetch.charge_to(context.charge)
    answer = DelayedFetch(broker, fetch).answer_in_turns()
    with context.connection.cancelled_on_close(answer):
        return await answer


def error_response(request: FetchRequest, error: KafkaError, version: int) -> FetchResponse:
    """Return a session error at the top level; before sessions the same error for every partition."""
    if version >= 7:
        return FetchResponse(error_code=int(error.code), responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[failed(partition.partition, error, version) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


class Fetch:
    """One fetch: its wanted partitions and the results so far; `DelayedFetch` makes it wait."""

    __slots__ = (
        "_broker",
        "_incremental",
        "_max_bytes",
        "_replica_id",
        "_results",
        "_session",
        "_settled",
        "_version",
        "_wanted",
        "charge",
        "is_complete",
        "is_converted",
        "partitions",
        "request",
        "size_bytes",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        version: int,
        session: FetchSession | None,
        wanted: Collection[FetchedPartition],
        *,
        incremental: bool,
    ) -> None:
        self._broker = broker
        self.request = request
        self._version = version
        self._session = session
        self._wanted = wanted
        self._incremental = incremental
        if request.max_bytes < 0:
            raise InvalidRequest(f"max_bytes={request.max_bytes} is negative")
        if not 0 <= request.isolation_level <= READ_COMMITTED:
            raise InvalidRequest(f"isolation_level={request.isolation_level} is neither 0 nor 1")
        self._max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self._replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        self._results: Results = []
        self.partitions: list[Partition] = []
        self.size_bytes = 0
        self._settled = False
        self.is_complete = False
        self.is_converted = version <= MAGIC_1_UP_TO
        self.charge: Charge | None = None

    def takes_turns(self) -> bool:
        """Return whether reading all partitions at once would hold the loop for too long."""
        return len(self._wanted) > PARTITIONS_A_TURN

    @property
    def is_committed(self) -> bool:
        """Whether records of open transactions are held back."""
        return self.request.isolation_level == READ_COMMITTED and self._replica_id == CONSUMER

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, found: SharedReads | None = None) -> None:
        """Read every wanted partition within the limits, and set ``is_complete``. Reads in `found` are reused."""
        self._begin()
        self._read_some(self._wanted, found)
        self._end()

    async def read_in_turns(self) -> None:
        self._begin()
        partitions = tuple(self._wanted)
        for start in range(0, len(partitions), PARTITIONS_A_TURN):
            await self._broker.turns.next()
            self._read_some(partitions[start : start + PARTITIONS_A_TURN], None)
        self._end()

    def _begin(self) -> None:
        self._results = []
        self.partitions = []
        self.size_bytes = 0
        self._settled = False

    def _end(self) -> None:
        self.is_complete = self._settled or self.size_bytes >= self.request.min_bytes or not self._results

    def _read_some(self, some: Iterable[FetchedPartition], found: SharedReads | None) -> None:
        results, partitions = self._results, self.partitions
        size, settled = self.size_bytes, self._settled
        remaining = self._max_bytes - size
        for wanted in some:
            try:
                partition = self._find(wanted)
                partitions.append(partition)
                data, count = self._read_one(partition, wanted, remaining, found, first=size == 0)
            except KafkaError as error:
                settled = True
                data, count = failed(wanted.partition, error, self._version), 0
                metrics = self._broker.topic_metrics(wanted.topic, wanted.topic_id)
                if metrics is not None:
                    metrics.failed_fetch += 1
            else:
                records = data.records
                if records:
                    size += len(records)
                    remaining -= len(records)
                elif data.diverging_epoch.epoch >= 0:
                    settled = True
            results.append((wanted, data, count))
        self.size_bytes = size
        self._settled = settled

    def _find(self, wanted: FetchedPartition) -> Partition:
        manager = self._broker.partitions
        if self._version >= TOPIC_IDS_FROM:
            topic = manager.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise gone(wanted, manager)
            wanted.name = topic.name
        else:
            topic = manager.topics.get(wanted.topic)
            if topic is None:
                raise UnknownTopicOrPartition(f"no topic {wanted.topic!r}")
        if not 0 <= wanted.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {wanted.partition}")
        return topic.partitions[wanted.partition]

    def _read_one(
        self, partition: Partition, wanted: FetchedPartition, remaining: int, found: SharedReads | None, *, first: bool
    ) -> tuple[PartitionData, int]:
        if wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.max_bytes < 0:
            raise InvalidRequest(f"{partition.name}: partition_max_bytes={wanted.max_bytes} is negative")
        version = self._version
        if version < ZSTD_FROM and partition.rules.compression == "zstd":
            raise UnsupportedCompressionType(f"{partition.name} is compressed with zstd, which Fetch v10 introduced")
        committed = self.request.isolation_level == READ_COMMITTED
        if self._replica_id not in (CONSUMER, DEBUGGING_CONSUMER):
            raise NotLeaderOrFollower(f"{partition.name}: broker {self._replica_id} holds no replica of it")
        log = partition.online_log()
        if self._replica_id == DEBUGGING_CONSUMER:
            up_to = log.log_end_offset
        else:
            up_to = log.last_stable_offset if committed else log.high_watermark
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.leader_epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
            if epoch < 0:
                raise OffsetOutOfRange(f"{partition.name}: where epoch {wanted.last_fetched_epoch} ends is not known")
            if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                data = self._data(partition, log, committed=committed)
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data, 0
        limit = min(wanted.max_bytes, remaining)
        key = None
        if found is not None and version > MAGIC_1_UP_TO:
            ends = (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.local.log_end_offset)
            key = (partition, ends, wanted.fetch_offset, up_to, limit, first, committed)
            if (known := found.get(key)) is not None:
                return known
        data = self._data(partition, log, committed=committed)
        if wanted.fetch_offset == up_to and up_to == log.local.log_end_offset:
            return data, 0
        read = partition.fetch_records(
            wanted.fetch_offset,
            max_bytes=limit,
            min_one=first,  # v0-2 are cut after the conversion
            up_to=up_to,
        )
        if read.region is None or read.truncated:  # less than a batch is useless, and the Java client fails on it
            return data, 0
        data.records = read.region
        if committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.local.segments.aborted(wanted.fetch_offset, read.next_offset)
            ]
        count = max(0, read.next_offset - wanted.fetch_offset)
        if found is not None and key is not None:
            if read.size <= SHARED_BYTES:
                data.records = in_memory(read.region)
            found[key] = data, count
        return data, count

    def _data(self, partition: Partition, log: Log, *, committed: bool) -> PartitionData:
        return PartitionData(
            partition_index=partition.index,
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=NO_RECORDS,
        )

    # -- responses ----------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """Return the response with the results of `read`."""
        response = self._empty_response()
        self._add_results(response.responses, self._results)
        return response

    async def response_in_turns(self) -> FetchResponse:
        if self.is_converted:
            return await self.converted_response()
        response = self._empty_response()
        for start in range(0, len(self._results), PARTITIONS_A_TURN):
            await self._broker.turns.next()
            self._add_results(response.responses, self._results[start : start + PARTITIONS_A_TURN])
        return response

    def _empty_response(self) -> FetchResponse:
        session = self._session
        return FetchResponse(error_code=0, session_id=session.id if session is not None else 0, responses=[])

    def _add_results(self, topics: list[FetchableTopicResponse], results: Results) -> None:
        session = self._session
        current = topics[-1] if topics else None
        for wanted, data, count in results:
            if data.records:
                metrics = self._broker.topic_metrics(wanted.topic, wanted.topic_id)
                if metrics is not None:
                    metrics.bytes_out += len(data.records)
                    metrics.messages_out += count
                    metrics.fetch_requests += 1
            if session is not None:
                changed = note_told(wanted, data)
                if data.records:
                    session.served((wanted.topic, wanted.topic_id, wanted.partition))
                if self._incremental and not changed:
                    continue
            if current is None or current.topic != wanted.topic or current.topic_id != wanted.topic_id:
                current = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
                topics.append(current)
            current.partitions.append(data)

    def charge_to(self, charge: Charge) -> None:
        """Charge the fetch to the quota of its client."""
        self.charge = charge
        charge.take_back = self._take_back

    def _take_back(self) -> int:
        """Undo the effects of `response`: an empty response is sent instead. Return the id of its session."""
        for wanted, data, count in self._results:
            metrics = self._broker.topic_metrics(wanted.topic, wanted.topic_id)
            if data.records and metrics is not None:
                metrics.bytes_out -= len(data.records)
                metrics.messages_out -= count
                metrics.fetch_requests -= 1
            wanted.high_watermark = -1  # so that the next response reports everything
        if self._incremental and self._session is not None:
            return self._session.id
        if self._session is not None:
            self._broker.fetch_sessions.forget(self._session)
        return 0

    async def converted_response(self) -> FetchResponse:
        """Return the response for a client that supports message sets only."""
        magic = 0 if self._version <= MAGIC_0_UP_TO else 1
        for wanted, data, _ in self._results:
            region = data.records
            if not isinstance(region, FileRegion):
                continue
            try:
                records = await converted(region, magic, wanted.fetch_offset)
            except KafkaError as error:
                data.error_code = failed(wanted.partition, error, self._version).error_code
                data.records = NO_RECORDS
            else:
                limit = min(wanted.max_bytes, self._max_bytes)
                data.records = records[:limit] if self._version <= HARD_LIMIT_UP_TO else records
        return self.response()
