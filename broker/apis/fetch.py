"""Fetch (1): v0-18. Read record batches, at once or when enough of them have come.

A partition's records go out as a region of its segment file (sendfile); nothing here looks at a record. A request
that finds less than ``min_bytes`` waits: it registers with its partitions, each append tells it how much has come,
and it answers when that is enough or after ``max_wait_ms``. A read_committed reader gets what is below the last stable
offset, with the aborted transactions in it, and what comes counts when that offset moves. v4 tells isolation and
aborted transactions, v5 the log start offset, v7 has sessions (KIP-227, `fetch_session`), v9 leader epochs, v12
diverging epochs, v13 topic ids.

Limits: ``partition_max_bytes`` within ``max_bytes`` (v3+) within ``fetch.max.bytes``; from v3 the first batch of the
response comes whole however large it is, before v3 records are cut at the limit. v0-1 get message sets of format 0,
v2-3 of format 1: batches are converted down, large ones in a thread. A batch of zstd is not converted, and zstd topics
are refused before v10.
A fetch of many partitions, which may be those of its session, reads them in several turns of the loop.
Replica id -2 is a debugging consumer that reads to the log end; other replicas are not part of a one-node cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from klamm.broker.fetch.fetch_session import named
from klamm.broker.memos import fetch_again
from klamm.broker.memos.fetch_again import READ_COMMITTED, TOPIC_IDS_FROM, ZSTD_FROM
from klamm.broker.network.file_pieces import FilePiece, ShortFile
from klamm.broker.network.promise import Promise
from klamm.protocol.errors import (
    ErrorCode,
    InconsistentTopicId,
    InvalidRequest,
    KafkaError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicId,
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
from klamm.protocol.records.message_set import down_convert
from klamm.protocol.regions import FileRegion

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.fetch.fetch_session import FetchedPartition, FetchSession
    from klamm.broker.fetch.fetch_together import Found
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import PartitionManager

HARD_LIMIT_UP_TO = 2  # these versions are cut at max_bytes, even inside a message
MAGIC_0_UP_TO = 1
MAGIC_1_UP_TO = 3
STORAGE_ERROR_FROM = 6
DEBUGGING_CONSUMER = -2
CONSUMER = -1
MAX_WAIT_LIMIT_MS = 0x7FFFFFFF
CONVERT_IN_THREAD_BYTES = 64 << 10
PARTITIONS_A_TURN = 1000
SHARED_BYTES = 16 << 10  # what many have waited for is read once up to here
NO_RECORDS = b""

remember = fetch_again.remember

Results = list[tuple["FetchedPartition", PartitionData, int]]  # with the number of records, counted by offsets


def handle(
    broker: Broker, context: RequestContext, request: FetchRequest
) -> FetchResponse | asyncio.Future[FetchResponse]:
    version = context.api_version
    session, incremental, wanted = broker.fetch_sessions.resolve(request, version)
    fetch = Fetch(broker, request, version, session, wanted, incremental=incremental)
    if len(wanted) > PARTITIONS_A_TURN:
        return fetch.answer_in_turns()
    fetch.read()
    if fetch.is_complete or request.max_wait_ms <= 0 or broker.is_stopping:
        if version <= MAGIC_1_UP_TO:
            return asyncio.ensure_future(fetch.converted_response())
        return fetch.response()
    return fetch.wait()


async def handle_large(broker: Broker, context: RequestContext, request: FetchRequest) -> FetchResponse:
    """A request of very many elements: take it apart in a thread, the rest in turns."""
    partitions = await asyncio.get_running_loop().run_in_executor(broker.codecs, named, request)
    session, incremental, wanted = broker.fetch_sessions.resolve(request, context.api_version, partitions)
    answer = Fetch(broker, request, context.api_version, session, wanted, incremental=incremental).answer_in_turns()
    with context.connection.cancelled_on_close(answer):
        return await answer


def error_response(request: FetchRequest, error: KafkaError, version: int) -> FetchResponse:
    """A session error stands alone at the top; before sessions it is given for every partition."""
    if version >= 7:
        return FetchResponse(error_code=int(error.code), responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_failed(partition.partition, error, version) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


class Fetch:
    """One fetch on its way: what it wants, what it has found, and whether it waits."""

    __slots__ = (
        "_broker",
        "_future",
        "_held_back",
        "_incremental",
        "_is_finishing",
        "_max_bytes",
        "_partitions",
        "_ready",
        "_replica_id",
        "_request",
        "_results",
        "_session",
        "_settled",
        "_size",
        "_timer",
        "_version",
        "_wanted",
        "is_complete",
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
        self._request = request
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
        self._partitions: list[Partition] = []
        self._size = 0
        self._settled = False
        self._timer: asyncio.TimerHandle | None = None
        self._ready = False
        self._is_finishing = False
        self.is_complete = False

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, found: Found | None = None) -> None:
        """Read every wanted partition within the limits; sets ``is_complete``. What others have `found` is not read."""
        self._begin()
        self._read_some(self._wanted, found)
        self._end()

    async def _read_in_turns(self) -> None:
        self._begin()
        partitions = tuple(self._wanted)
        for start in range(0, len(partitions), PARTITIONS_A_TURN):
            await self._broker.turns.next()
            self._read_some(partitions[start : start + PARTITIONS_A_TURN], None)
        self._end()

    def _begin(self) -> None:
        self._results = []
        self._partitions = []
        self._size = 0
        self._settled = False

    def _end(self) -> None:
        self.is_complete = self._settled or self._size >= self._request.min_bytes or not self._results

    def _read_some(self, some: Iterable[FetchedPartition], found: Found | None) -> None:
        results, partitions = self._results, self._partitions
        size, settled = self._size, self._settled
        remaining = self._max_bytes - size
        for wanted in some:
            try:
                partition = self._find(wanted)
                partitions.append(partition)
                data, count = self._read_one(partition, wanted, remaining, found, first=size == 0)
            except KafkaError as error:
                settled = True
                data, count = _failed(wanted.partition, error, self._version), 0
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
        self._size = size
        self._settled = settled

    def _find(self, wanted: FetchedPartition) -> Partition:
        manager = self._broker.partitions
        if self._version >= TOPIC_IDS_FROM:
            topic = manager.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise _gone(wanted, manager)
            wanted.name = topic.name
        else:
            topic = manager.topics.get(wanted.topic)
            if topic is None:
                raise UnknownTopicOrPartition(f"no topic {wanted.topic!r}")
        if not 0 <= wanted.partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"{topic.name} has no partition {wanted.partition}")
        return topic.partitions[wanted.partition]

    def _read_one(
        self, partition: Partition, wanted: FetchedPartition, remaining: int, found: Found | None, *, first: bool
    ) -> tuple[PartitionData, int]:
        if wanted.current_leader_epoch >= 0:
            partition.check_leader_epoch(wanted.current_leader_epoch)
        if wanted.max_bytes < 0:
            raise InvalidRequest(f"{partition.name}: partition_max_bytes={wanted.max_bytes} is negative")
        version = self._version
        if version < ZSTD_FROM and partition.rules.compression == "zstd":
            raise UnsupportedCompressionType(f"{partition.name} is compressed with zstd, which Fetch v10 introduced")
        committed = self._request.isolation_level == READ_COMMITTED
        if self._replica_id == CONSUMER:
            up_to = partition.last_stable_offset if committed else partition.high_watermark
        elif self._replica_id == DEBUGGING_CONSUMER:
            up_to = partition.log_end_offset
        else:
            raise NotLeaderOrFollower(f"{partition.name}: broker {self._replica_id} holds no replica of it")
        log = partition.online_log()
        if wanted.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if epoch < 0:
                raise OffsetOutOfRange(f"{partition.name}: where epoch {wanted.last_fetched_epoch} ends is not known")
            if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
                data = self._data(partition, committed=committed)
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                return data, 0
        limit = min(wanted.max_bytes, remaining)
        key = None
        if found is not None and version > MAGIC_1_UP_TO:
            ends = (log.log_start_offset, partition.last_stable_offset, partition.high_watermark, log.log_end_offset)
            key = (partition, ends, wanted.fetch_offset, up_to, limit, first, committed)
            if (known := found.get(key)) is not None:
                return known
        data = self._data(partition, committed=committed)
        if wanted.fetch_offset == up_to and up_to == log.log_end_offset:
            return data, 0
        read = partition.read(
            wanted.fetch_offset,
            max_bytes=limit,
            min_one=first,  # what is cut (v0-2) is cut after the conversion
            up_to=up_to,
        )
        if read.region is None or read.truncated:  # less than a batch helps nobody, and the Java client gives up on it
            return data, 0
        data.records = read.region
        if committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in log.aborted_transactions(wanted.fetch_offset, read.next_offset)
            ]
        count = max(0, read.next_offset - wanted.fetch_offset)
        if found is not None and key is not None:
            if read.size <= SHARED_BYTES:
                data.records = _in_memory(read.region)
            found[key] = data, count
        return data, count

    def _data(self, partition: Partition, *, committed: bool) -> PartitionData:
        return PartitionData(
            partition_index=partition.index,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=NO_RECORDS,
        )

    # -- waiting ------------------------------------------------------------------------------------------------

    def wait(self) -> asyncio.Future[FetchResponse]:
        """Answer when ``min_bytes`` have come, something changed, or ``max_wait_ms`` are over."""
        self._future: Promise[FetchResponse] = Promise(loop=asyncio.get_running_loop())
        self._future.add_done_callback(self._on_done)
        self._start_waiting()
        return self._future

    def _start_waiting(self) -> None:
        committed = self._request.isolation_level == READ_COMMITTED and self._replica_id == CONSUMER
        self._held_back = {p: (p.last_stable_offset, 0) for p in self._partitions} if committed else {}
        for partition in self._partitions:
            partition.waiters.add(self._on_append)
        wait_ms = min(self._request.max_wait_ms, MAX_WAIT_LIMIT_MS)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.finish)

    def answer_in_turns(self) -> asyncio.Future[FetchResponse]:
        """Read many partitions, and answer or wait: the whole way of a fetch that would keep the loop for too long."""
        self._future = Promise(loop=asyncio.get_running_loop())
        self._future.add_done_callback(self._on_done)
        asyncio.ensure_future(self._begin_in_turns()).add_done_callback(self._hand_over)
        return self._future

    async def _begin_in_turns(self) -> FetchResponse | None:
        await self._read_in_turns()
        if self.is_complete or self._request.max_wait_ms <= 0 or self._broker.is_stopping:
            return await self._response_in_turns()
        if not self._future.done():
            self._start_waiting()
        return None

    async def _finish_in_turns(self) -> FetchResponse:
        await self._read_in_turns()
        return await self._response_in_turns()

    def _on_append(self, partition: Partition, size_bytes: int) -> None:
        """Called by a partition: ``size_bytes`` more can be read; 0 says that it changed in another way."""
        if size_bytes and self._held_back:
            size_bytes = self._now_stable(partition, size_bytes)
            if not size_bytes:
                return
        self._size += size_bytes
        if not self._ready and (size_bytes == 0 or self._size >= self._request.min_bytes):
            self._ready = True
            self._broker.woken_fetches.add(self)

    def _now_stable(self, partition: Partition, size_bytes: int) -> int:
        """How much of what was appended since the last stable offset moved can be read by now."""
        stable, held_back = self._held_back[partition]
        held_back += size_bytes
        if partition.last_stable_offset == stable:
            self._held_back[partition] = stable, held_back
            return 0
        self._held_back[partition] = partition.last_stable_offset, 0
        return held_back

    def finish(self, found: Found | None = None) -> None:
        """Read once more and answer; whoever comes first, the timer or an append, is the only one."""
        if self._is_finishing or self._future.done():
            return
        self._is_finishing = True
        self._stop_waiting()
        if len(self._wanted) > PARTITIONS_A_TURN:
            asyncio.ensure_future(self._finish_in_turns()).add_done_callback(self._hand_over)
            return
        try:
            self.read(found)
            if self._version > MAGIC_1_UP_TO:
                self._future.set_result(self.response())
            else:
                asyncio.ensure_future(self.converted_response()).add_done_callback(self._hand_over)
        except Exception as error:
            self._future.set_exception(error)

    def _hand_over(self, task: asyncio.Future[FetchResponse] | asyncio.Future[FetchResponse | None]) -> None:
        error = task.exception()
        if self._future.done():
            return
        if error is not None:
            self._future.set_exception(error)
        elif (response := task.result()) is not None:
            self._future.set_result(response)

    def _on_done(self, future: asyncio.Future[FetchResponse]) -> None:
        if future.cancelled():
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._partitions:
            partition.waiters.discard(self._on_append)

    # -- answering ----------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        """The response with what `read` found."""
        response = self._empty_response()
        self._add_results(response.responses, self._results)
        return response

    async def _response_in_turns(self) -> FetchResponse:
        if self._version <= MAGIC_1_UP_TO:
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
                changed = _remember(wanted, data)
                if data.records:
                    session.served((wanted.topic, wanted.topic_id, wanted.partition))
                if self._incremental and not changed:
                    continue
            if current is None or current.topic != wanted.topic or current.topic_id != wanted.topic_id:
                current = FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[])
                topics.append(current)
            current.partitions.append(data)

    async def converted_response(self) -> FetchResponse:
        """The response for a client that knows message sets only."""
        magic = 0 if self._version <= MAGIC_0_UP_TO else 1
        for wanted, data, _ in self._results:
            region = data.records
            if not isinstance(region, FileRegion):
                continue
            try:
                if region.size > CONVERT_IN_THREAD_BYTES:
                    converted = await asyncio.to_thread(_convert, region, magic, wanted.fetch_offset)
                else:
                    converted = _convert(region, magic, wanted.fetch_offset)
            except KafkaError as error:
                failed = _failed(wanted.partition, error, self._version)
                data.error_code, data.records = failed.error_code, NO_RECORDS
            else:
                limit = min(wanted.max_bytes, self._max_bytes)
                data.records = converted[:limit] if self._version <= HARD_LIMIT_UP_TO else converted
        return self.response()


def _in_memory(region: FileRegion) -> FileRegion | bytearray:
    """Its bytes, if they can be had without blocking."""
    data = bytearray(region.size)
    with suppress(OSError, ShortFile):  # whoever sends it will be told
        if FilePiece(region).copy_into(data):
            return data
    return region


def _convert(region: FileRegion, magic: int, first_offset: int) -> bytes:
    return down_convert(region.read(), magic, first_offset=first_offset)


def _gone(wanted: FetchedPartition, manager: PartitionManager) -> KafkaError:
    """What a reader is told whose topic is not there any more. A session knows the name that the topic had."""
    if wanted.name is None:
        return UnknownTopicId("no topic has this id")
    now = manager.topics.get(wanted.name)
    if now is None or not 0 <= wanted.partition < len(now.partitions):
        return UnknownTopicOrPartition(f"{wanted.name}-{wanted.partition} was deleted")
    return InconsistentTopicId(f"{wanted.name} is another topic since this fetch session began")


def _failed(index: int, error: KafkaError, version: int) -> PartitionData:
    code = error.code
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return PartitionData(
        partition_index=index, error_code=int(code), high_watermark=-1, aborted_transactions=None, records=NO_RECORDS
    )


def _remember(wanted: FetchedPartition, data: PartitionData) -> bool:
    """Note what the session has been told; true when this partition belongs into an incremental response."""
    changed = bool(data.records) or data.error_code != 0 or data.diverging_epoch.epoch >= 0
    if data.error_code:
        wanted.high_watermark = -1  # so that the recovery of the partition is told, too
        return True
    if wanted.high_watermark != data.high_watermark or wanted.log_start_offset != data.log_start_offset:
        wanted.high_watermark = data.high_watermark
        wanted.log_start_offset = data.log_start_offset
        changed = True
    return changed
