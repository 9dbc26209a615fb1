"""Produce (0): v0-13. Appends one batch to each named partition, and acknowledges it.

v0-2 carry message sets of the formats 0 and 1, which `validate` converts up; v3 one batch of format 2; v5 has the log
start offset, v8 the records at fault, v10 the current leader, v13 names topics by id. The append happens at once,
straight from the connection's read buffer; only the wait for a flush (``flush.messages``) is asynchronous, so that the
next pipelined Produce can be appended meanwhile.

acks=0 has no response: an error closes the connection, which is the only sign for such a producer. A partition that
occurs twice in one request is appended once, with the last batch (as in Kafka). Before a transactional batch the
transaction coordinator is asked, unless the producer has a transaction open in the partition; from v12 on the batch
itself adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from klamm.broker.apis.pieces import PIECE_ELEMENTS
from klamm.broker.apis.produce_partition import TOPIC_IDS_FROM, code_for, failure, refused, writable
from klamm.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from klamm.broker.memos import produce_memo
from klamm.broker.network.response import CloseConnection
from klamm.protocol.errors import ErrorCode, InvalidRequiredAcks, KafkaError
from klamm.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from klamm.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from klamm.protocol.records.validate import NotAtOnce, ValidBatch, validate

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.partitions.partition import Partition
    from klamm.broker.partitions.partition_manager import HostedTopic
    from klamm.storage.log.transaction_verification import VerificationGuard

memoize = produce_memo.memoize

COORDINATOR_ERRORS = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
MAGIC_WITH_PRODUCERS = 2
ABORTABLE_FROM = 11
TURN_S = 0.01  # how long the partitions of a request may hold the loop
ADDS_PARTITIONS_FROM = 12  # version 2 of the transaction protocol


def handle(
    broker: Broker, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | asyncio.Future[ProduceResponse] | Coroutine[Any, Any, ProduceResponse | None] | None:
    operation = ProduceOperation(broker, context, request)
    waits = operation.add_or_verify() if request.transactional_id is not None else ()
    if not waits and operation.append():
        return operation.outcome()
    operation.keep_rest()
    return operation.finish_later(waits)


async def handle_large(broker: Broker, context: RequestContext, request: ProduceRequest) -> ProduceResponse | None:
    """Handle a request of very many partitions: a thread builds the entries, the rest runs in turns."""
    loop = asyncio.get_running_loop()
    operation = await loop.run_in_executor(broker.codecs, ProduceOperation, broker, context, request)
    waits = await operation.add_or_verify_in_turns() if request.transactional_id is not None else ()
    return await operation.finish_later(waits)


class Entry:
    """A batch for one partition, and the list that its result goes to.

    `verified` is the answer of the transaction coordinator, `validated` the result of validation in a thread.
    """

    __slots__ = ("answers", "data", "topic", "validated", "verified")

    def __init__(
        self, answers: list[PartitionProduceResponse], topic: TopicProduceData, data: PartitionProduceData
    ) -> None:
        self.answers = answers
        self.topic = topic
        self.data = data
        self.verified: VerificationGuard | KafkaError | None = None
        self.validated: ValidBatch | KafkaError | None = None


class ProduceOperation:
    """One Produce request: the batches left to append, and the results so far.

    A request that takes longer than a turn of the loop continues in later turns, with a copy of its records. A batch
    that takes long by itself (one that inflates a thousandfold) is validated in a thread. No later request of its
    connection goes ahead of it.
    """

    __slots__ = (
        "_broker",
        "_context",
        "_first_error",
        "_is_slow",
        "_request",
        "_responses",
        "_rest",
        "_unflushed",
    )

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._responses: list[TopicProduceResponse] = []
        self._first_error: KafkaError | None = None
        self._unflushed: list[tuple[Partition, PartitionProduceResponse]] = []
        self._rest = [
            Entry(self._answers_for(topic), topic, data)
            for topic in distinct(request.topic_data)
            for data in topic.partition_data
        ]
        self._rest.reverse()
        self._is_slow = False  # the next entry takes long to validate

    def _answers_for(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        if (
            self._responses
            and self._responses[-1].name == topic.name
            and self._responses[-1].topic_id == topic.topic_id
        ):
            return self._responses[-1].partition_responses
        response = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[])
        self._responses.append(response)
        return response.partition_responses

    def add_or_verify(self) -> Sequence[asyncio.Future[None]]:
        """Ask the transaction coordinator about transactional batches. Return the futures to await before
        any append.
        """
        return self._add_or_verify(self._rest)

    async def add_or_verify_in_turns(self) -> Sequence[asyncio.Future[None]]:
        """Do the same for very many batches, in turns."""
        waits: list[asyncio.Future[None]] = []
        for start in range(0, len(self._rest), PIECE_ELEMENTS):
            await self._broker.turns.next()
            waits += self._add_or_verify(self._rest[start : start + PIECE_ELEMENTS])
        return waits

    def _add_or_verify(self, rest: Sequence[Entry]) -> list[asyncio.Future[None]]:
        manager, context = self._broker.partitions, self._context
        by_id = context.api_version >= TOPIC_IDS_FROM
        waits: list[asyncio.Future[None]] = []
        for entry in rest:
            topic, data = entry.topic, entry.data
            found = manager.topics_by_id.get(topic.topic_id) if by_id else manager.topics.get(topic.name)
            records = cast("memoryview | None", data.records)
            if records is None or len(records) < HEADER_BYTES:
                continue
            header = read_header(records)
            if header.magic < MAGIC_WITH_PRODUCERS or not header.is_transactional or header.producer_id < 0:
                continue
            try:
                partition = writable(found, data.index, context.api_version, context.client_id, self._request.acks)
                verified = self._ask(partition, header)
            except KafkaError as error:
                entry.verified = _as_producers_know(error, context.api_version)
                continue
            if isinstance(verified, asyncio.Future):
                waits.append(asyncio.ensure_future(self._verify_later(entry, verified)))
            else:
                entry.verified = verified
        return waits

    def _ask(
        self, partition: Partition, header: BatchHeader
    ) -> VerificationGuard | asyncio.Future[VerificationGuard | None] | None:
        assert self._request.transactional_id is not None
        return self._broker.transactions.add_or_verify_partition(
            partition,
            self._request.transactional_id,
            ProducerIdAndEpoch(header.producer_id, header.producer_epoch),
            header.base_sequence,
            adds=self._context.api_version >= ADDS_PARTITIONS_FROM,
        )

    async def _verify_later(self, entry: Entry, verified: asyncio.Future[VerificationGuard | None]) -> None:
        try:
            entry.verified = await verified
        except KafkaError as error:
            entry.verified = _as_producers_know(error, self._context.api_version)

    def append(self) -> bool:
        """Append the remaining batches, for at most a turn. Return whether everything is done."""
        rest = self._rest
        broker = self._broker
        manager = broker.partitions
        by_id = self._context.api_version >= TOPIC_IDS_FROM
        now_ms = broker.clock.wall_ms()
        turn_ends = time.perf_counter() + TURN_S if len(rest) > 1 else 0.0
        while rest:
            entry = rest.pop()
            topic = entry.topic
            found = manager.topics_by_id.get(topic.topic_id) if by_id else manager.topics.get(topic.name)
            try:
                entry.answers.append(self._append_one(found, entry, now_ms))
            except NotAtOnce:
                rest.append(entry)
                self._is_slow = True
                return False
            if rest and time.perf_counter() > turn_ends:
                return False
        return True

    def _append_one(self, found: HostedTopic | None, entry: Entry, now_ms: int) -> PartitionProduceResponse:
        version = self._context.api_version
        acks = self._request.acks
        partition: Partition | None = None
        data, verified, valid = entry.data, entry.verified, entry.validated
        try:
            if not -1 <= acks <= 1:
                raise InvalidRequiredAcks(f"acks={acks} is not one of -1, 0, 1")
            partition = writable(found, data.index, version, self._context.client_id, acks)
            if isinstance(verified, KafkaError):
                partition = None  # the log was not involved
                raise verified
            if isinstance(valid, KafkaError):
                raise valid
            result = partition.append_records(
                cast("memoryview | None", data.records),
                produce_version=version,
                now_ms=now_ms,
                transactional_id=self._request.transactional_id,
                guard=verified,
                valid=valid,
            )
        except KafkaError as error:
            # Its traceback would keep this frame, and with it the records, until the next garbage collection.
            self._first_error = self._first_error or error.without_frames()
            return refused(error, data.index, version, found, partition)
        answer = PartitionProduceResponse(
            index=data.index,
            error_code=0,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=partition.log_start_offset,
        )
        partition.metrics.produce_requests += 1
        if partition.flush_pending:
            self._unflushed.append((partition, answer))
        return answer

    def outcome(self) -> ProduceResponse | asyncio.Future[ProduceResponse] | None:
        """Return the response after all appends: now, after a flush, or none (acks=0)."""
        acks = self._request.acks
        if self._unflushed:
            waits = [self._broker.flusher.flush(partition) for partition, _ in self._unflushed]
            if acks:
                version = self._context.api_version
                return asyncio.ensure_future(_after_flush(self._unflushed, waits, self._responses, version))
        if not acks:
            error = self._first_error
            if error is not None:
                raise CloseConnection(f"Produce with acks=0 failed: {error.code.name} {error.message}")
            return None
        return ProduceResponse(responses=self._responses)

    def keep_rest(self) -> None:
        """Copy the records that are not appended yet: the connection will reuse its buffer."""
        if self._context.connection.keep_frame():
            return
        for entry in self._rest:
            data = entry.data
            if data.records is not None:
                data.records = memoryview(bytearray(cast("memoryview", data.records)))

    async def finish_later(self, waits: Iterable[asyncio.Future[None]]) -> ProduceResponse | None:
        """Continue in later turns of the loop."""
        for wait in waits:
            await wait
        is_done = False
        while not is_done:
            if self._is_slow:
                await self._validate_in_thread()
            await self._broker.turns.next()
            is_done = self.append()
        outcome = self.outcome()
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    async def _validate_in_thread(self) -> None:
        """Validate the next batch, by the rules of its partition."""
        self._is_slow = False
        entry = self._rest[-1]
        topic, data = entry.topic, entry.data
        manager, version = self._broker.partitions, self._context.api_version
        found = (
            manager.topics_by_id.get(topic.topic_id) if version >= TOPIC_IDS_FROM else manager.topics.get(topic.name)
        )
        if found is None or not 0 <= data.index < len(found.partitions):
            return  # deleted meanwhile
        work = partial(
            validate,
            cast("memoryview | None", data.records),
            found.partitions[data.index].rules,
            produce_version=version,
            now_ms=self._broker.clock.wall_ms(),
        )
        try:
            entry.validated = await asyncio.get_running_loop().run_in_executor(self._broker.codecs, work)
        except KafkaError as error:
            entry.validated = error


def distinct(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Return the topics with each partition once: the last entry of a repeated one wins, as in Kafka."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    merged: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        entries = merged.setdefault((topic.name, topic.topic_id), {})
        for entry in topic.partition_data:
            entries[entry.index] = entry
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(entries.values()))
        for (name, topic_id), entries in merged.items()
    ]


async def _after_flush(
    unflushed: list[tuple[Partition, PartitionProduceResponse]],
    waits: list[asyncio.Future[None]],
    responses: list[TopicProduceResponse],
    version: int,
) -> ProduceResponse:
    for (_, answer), wait in zip(unflushed, waits, strict=True):
        try:
            await asyncio.shield(wait)  # others wait for the same flush
        except KafkaError as error:
            answer.error_code = code_for(error, version)
            answer.error_message = error.message
            answer.base_offset = -1
    return ProduceResponse(responses=responses)


def _as_producers_know(error: KafkaError, version: int) -> KafkaError:
    """Translate an error of the transaction coordinator into one of Produce."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    elif code in COORDINATOR_ERRORS or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_FROM
    ):  # older producers retry on this error
        code = ErrorCode.NOT_ENOUGH_REPLICAS
    return KafkaError(code, error.message)


def error_response(request: ProduceRequest, error: KafkaError, version: int) -> ProduceResponse:
    """Return the same error for every partition named."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[failure(entry.index, error, version) for entry in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
