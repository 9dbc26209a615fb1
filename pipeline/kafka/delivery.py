"""The delivery of batches to the leaders of partitions for `Producer`: pipelined, in order, with retries.

Each partition has a queue of unanswered batches. Up to five of them are in flight, since a broker recognises the last
five of a producer when they arrive twice. Each leader has one connection; its answers come in the order of the
requests. When an answer is retriable, or the connection breaks, the other answers on that connection are awaited (or
given up). Then all queues of that connection are sent again in order, perhaps to another leader; a broker drops the
batches that it has already.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed
from klamm.pipeline.errors import ClusterError, NotWritten, ProducerFenced
from klamm.pipeline.kafka.cluster import Cluster, Retries, error_code
from klamm.pipeline.ranges import TopicPartition
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    TRANSACTIONAL_FLAG,
    read_header,
    seal,
    stamp,
)

MAX_IN_FLIGHT: Final = 5
"""The most unanswered batches of a partition. A broker recognises the last five of a producer."""
MAX_IN_FLIGHT_OF_NODE: Final = 200
MAX_UNANSWERED_BYTES: Final = 32 * 1024 * 1024
SEQUENCES: Final = 2**31
UNFIT: Final = CONTROL_FLAG | DELETE_HORIZON_FLAG | LOG_APPEND_TIME_FLAG
"""Attributes that no producer may send."""
FENCED: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_POSITION: Final = 43

Batch = bytearray | memoryview
Appended = Callable[[int], None]
"""Called with the base offset of a batch once it is in the log; -1 if the broker no longer knows it."""


def rewrite(batch: Batch, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool) -> int:
    """Write the producer into a batch, in place; return its record (and offset) count."""
    header = read_header(batch)
    assert header.magic == 2 and header.size_bytes == len(batch), "one whole batch"
    assert not header.attributes & UNFIT and header.record_count == header.last_offset_delta + 1, "a producer's batch"
    attributes = header.attributes & ~TRANSACTIONAL_FLAG | (TRANSACTIONAL_FLAG if transactional else 0)
    stamp(batch, 0, -1)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(batch)
    return header.record_count


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    data: Batch
    appended: Appended | None


@dataclass(slots=True)
class _Queue:
    """The unanswered batches of a partition."""

    partition: TopicPartition
    next_sequence: int = 0
    pending: deque[_Pending] = field(default_factory=deque)
    node: _Node | None = None


class _Node:
    """A connection to a leader, and its batches in flight, in order."""

    def __init__(self, client: NodeClient) -> None:
        self.client = client
        self.in_flight: deque[tuple[_Queue, _Pending]] = deque()
        self.size_bytes = 0
        self.failed: dict[TopicPartition, object] = {}

    @property
    def is_full(self) -> bool:
        return len(self.in_flight) >= MAX_IN_FLIGHT_OF_NODE or self.size_bytes > MAX_UNANSWERED_BYTES


class Delivery:
    """The queues and connections of one producer. `versions` are the lowest and highest version of Produce to use."""

    def __init__(self, cluster: Cluster, transactional_id: str | None = None) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.producer_epoch = -1
        self.versions = (3, 11)
        self._queues: dict[TopicPartition, _Queue] = {}
        self._nodes: dict[tuple[str, int], _Node] = {}
        self._retries: Retries | None = None

    @property
    def unanswered(self) -> int:
        """Return the number of unanswered batches."""
        return sum(len(queue.pending) for queue in self._queues.values())

    def become(self, producer_id: int, producer_epoch: int) -> None:
        """Take a new producer id or epoch: sequences start at 0. There must be no unanswered batches."""
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            assert not self.unanswered
            self._queues.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def send(
        self, partition: TopicPartition, batch: Batch, appended: Appended | None = None, *, transactional: bool
    ) -> None:
        """Send one batch; wait while too many are in flight. Raises NotWritten for this or any earlier one."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue(partition)
        count = rewrite(batch, self.producer_id, self.producer_epoch, queue.next_sequence, transactional=transactional)
        queue.next_sequence = (queue.next_sequence + count) % SEQUENCES
        while len(queue.pending) >= MAX_IN_FLIGHT:
            self._progress(queue)
        queue.pending.append(_Pending(batch, appended))
        self._post(queue)

    def flush(self) -> None:
        """Wait until all batches are in the log. Raises NotWritten."""
        for queue in self._queues.values():
            while queue.pending:
                self._progress(queue)

    def drop(self) -> bool:
        """Forget all unanswered batches. Return True if there were any; they may or may not be in a log."""
        if not self.unanswered:
            return False
        self.close()
        self._queues.clear()
        return True

    def close(self) -> None:
        for queue in self._queues.values():
            if queue.node is not None:
                queue.node.client.close()
                queue.node = None
        for node in self._nodes.values():
            node.client.close()
        self._nodes.clear()

    def _progress(self, queue: _Queue) -> None:
        """Receive the oldest answer on the queue's connection, or send again after a failure."""
        node = queue.node
        if node is not None and node.in_flight:
            self._receive(node)
        else:
            self._recover(node)

    def _post(self, queue: _Queue) -> None:
        """Send the newest batch of a queue, unless earlier ones must be sent again first."""
        node = queue.node
        if node is None:
            if len(queue.pending) == 1:
                self._resend(queue)
            return
        while node.is_full and not node.failed:
            self._receive(node)
        if node.failed:
            return
        try:
            self._write(node, queue, queue.pending[-1])
        except (ConnectionClosed, ClientTimeout) as error:
            self._lose(node, error)

    def _write(self, node: _Node, queue: _Queue, pending: _Pending) -> None:
        records = PartitionProduceData(index=queue.partition.partition, records=pending.data)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=int(self.cluster.timeout_s * 1000),
            topic_data=[TopicProduceData(name=queue.partition.topic, partition_data=[records])],
        )
        least, most = self.versions
        version = min(node.client.choose_version(ProduceRequest), most)
        if version < least:
            raise ClusterError(f"{node.client.host}:{node.client.port} is too old: it has Produce v{version}")
        node.client.send(request, version)
        node.in_flight.append((queue, pending))
        node.size_bytes += len(pending.data)

    def _receive(self, node: _Node) -> None:
        try:
            response = node.client.receive()
        except (ConnectionClosed, ClientTimeout) as error:
            self._lose(node, error)
            return
        except ClientError as error:
            raise NotWritten(f"{node.client.host}:{node.client.port}: {error}") from None
        queue, pending = node.in_flight.popleft()
        node.size_bytes -= len(pending.data)
        answer = response.responses[0].partition_responses[0]
        code = error_code(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if queue.pending[0] is pending:  # otherwise an earlier one failed, and both are sent again
                queue.pending.popleft()
                self._retries = None
                if pending.appended is not None:
                    pending.appended(answer.base_offset)
        elif code.retriable:
            node.failed.setdefault(queue.partition, f"{code.name}, {answer.error_message or code.default_message}")
        elif code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or queue.partition not in node.failed:
            what = f"{queue.partition}: a batch of {len(pending.data)} bytes"
            check(code, what, self.transactional_id, answer.error_message)

    def _lose(self, node: _Node, error: ClientError) -> None:
        """Mark all queues of a connection as failed: it is closed, and its answers are lost."""
        for queue in self._queues.values():
            if queue.node is node:
                node.failed[queue.partition] = error
        node.in_flight.clear()
        node.size_bytes = 0
        node.client.close()

    def _recover(self, node: _Node | None) -> None:
        """Send all batches of a connection again, perhaps to other leaders; nothing is in flight there."""
        if node is not None:
            assert node.failed and not node.in_flight
            partition, error = next(iter(node.failed.items()))
            self._keep_trying(error, partition)
            node.client.close()
            self._nodes = {address: one for address, one in self._nodes.items() if one is not node}
        self.cluster.forget_leaders()
        for queue in self._queues.values():
            if queue.node is node:
                queue.node = None
                self._resend(queue)

    def _resend(self, queue: _Queue) -> None:
        """Send all batches of a queue to its current leader."""
        if not queue.pending:
            return
        try:
            node = queue.node = self._leader(queue.partition)
        except (KafkaError, ConnectionClosed, ClientTimeout) as error:
            self._keep_trying(error, queue.partition)
            return
        except ClusterError as error:
            raise NotWritten(f"{queue.partition}: {error}") from None
        try:
            for pending in queue.pending:
                self._write(node, queue, pending)
        except (ConnectionClosed, ClientTimeout) as error:
            self._lose(node, error)

    def _leader(self, partition: TopicPartition) -> _Node:
        """Return the connection to a leader. Raises KafkaError, ConnectionClosed and ClientTimeout."""
        found = self.cluster.leader(partition)
        address = (found.host, found.port)
        if address not in self._nodes or self._nodes[address].failed:
            client = NodeClient(*address, client_id=self.cluster.client_id, timeout_s=self.cluster.timeout_s)
            try:
                client.choose_version(ProduceRequest)
            except (ConnectionClosed, ClientTimeout):
                raise
            except ClientError as error:
                raise ClusterError(f"{found.host}:{found.port}: {error}") from None
            self._nodes[address] = _Node(client)
        return self._nodes[address]

    def _keep_trying(self, error: object, partition: TopicPartition) -> None:
        """Wait before the next attempt, or raise NotWritten."""
        if isinstance(error, KafkaError) and not error.code.retriable:
            raise NotWritten(f"{partition}: {error}")
        self.cluster.forget_leaders()
        if self._retries is None:
            self._retries = self.cluster.retries()
        try:
            self._retries.again(f"{partition}: {error}")
        except ClusterError as late:
            raise NotWritten(str(late)) from None


def check(number: int, what: str, transactional_id: str | None, message: str | None = None) -> None:
    """Raise NotWritten or ProducerFenced for any code but NONE."""
    code = error_code(number)
    if code == ErrorCode.NONE:
        return
    text = f"{code.name}, {message or code.default_message}"
    if code in FENCED:
        raise ProducerFenced(
            f"{what}: another job with the transactional id {transactional_id} has taken over, or the transaction was "
            f"open for longer than its timeout ({text})"
        )
    raise NotWritten(f"{what}: {text}")
