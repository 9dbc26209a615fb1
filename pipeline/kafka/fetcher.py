"""The fetcher: reads one partition over the wire. The next large fetch is on its way while one is decoded.

    for fetched in fetches(cluster, wanted):              # whole batches, as they are in the log
        fetched.data, fetched.batch_headers, fetched.aborted, ...
    for part in fetch_columns(cluster, wanted):               # records, as columns
        ...

Reading ends when all offsets of the range are passed, and not before. If there is nothing to read yet (an open
transaction, a leader that moves), it waits and retries, up to the cluster's `timeout_s` after the last success. Topic
ids (Fetch v13) show whether a topic was deleted and created again since the plan.

Offsets that are no longer in the log are DataLoss, or are skipped if `fail_on_data_loss` is False. A batch that cannot
be decoded is a PoisonedBatch with topic, partition, offset and broker. The default is read_committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from klamm.client.blocking import NodeClient
from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed
from klamm.pipeline.errors import ClusterError, DataLoss, PoisonedBatch
from klamm.pipeline.kafka.cluster import READ_COMMITTED, READ_UNCOMMITTED, Cluster, kafka_error
from klamm.pipeline.ranges import NO_TOPIC_ID, OffsetRange
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.records.columnar import BatchHeaders, Columns, DamagedBatch, columns, padded, scan
from klamm.protocol.records.columnar.batch_headers import Bytes

FETCH_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 500
TOPIC_IDS_SINCE: Final = 13
ISOLATION_SINCE: Final = 4


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches; the first and the last may reach beyond the range, which starts at `offset`.

    `aborted` are (producer id, first offset) of the transactions that `columns` leaves out; none for read_uncommitted.
    """

    data: Bytes
    batch_headers: BatchHeaders
    offset: int
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int
    last_stable_offset: int


def fetch_columns(
    cluster: Cluster,
    wanted: OffsetRange,
    *,
    isolation: int = READ_COMMITTED,
    fail_on_data_loss: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Columns]:
    """Yield the records of a range. Raises ClusterError, DataLoss, PoisonedBatch."""
    fetcher = _Fetcher(cluster, wanted, isolation, fail_on_data_loss, fetch_bytes)
    with closing(fetcher):
        for item in fetcher.run():
            parts = columns(
                item.data, item.batch_headers, start_offset=item.offset, end_offset=wanted.end, aborted=item.aborted
            )
            try:
                yield from parts
            except DamagedBatch as error:
                raise fetcher.poisoned(error) from None


def fetches(
    cluster: Cluster,
    wanted: OffsetRange,
    *,
    isolation: int = READ_COMMITTED,
    fail_on_data_loss: bool = True,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[Fetched]:
    """Yield the batches of a range. Raises ClusterError, DataLoss, PoisonedBatch."""
    with closing(_Fetcher(cluster, wanted, isolation, fail_on_data_loss, fetch_bytes)) as fetcher:
        yield from fetcher.run()


class _Fetcher:
    """The reader of one partition: one connection to its leader, at most one fetch in flight."""

    def __init__(
        self, cluster: Cluster, wanted: OffsetRange, isolation: int, fail_on_data_loss: bool, fetch_bytes: int
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss
        self._fetch_bytes = fetch_bytes
        self._offset = wanted.start
        self._client: NodeClient | None = None
        self._data: Bytes = padded(0)
        self._retries = cluster.retries()

    def run(self) -> Iterator[Fetched]:
        while self._offset < self._wanted.end:
            try:
                fetched = self._received()
            except (ConnectionClosed, ClientTimeout) as error:
                self._again(error)
            except KafkaError as error:
                self._answered(error)
            except ClientError as error:
                raise ClusterError(f"{self._wanted}: {error}") from None
            else:
                if len(fetched.batch_headers):
                    self._retries.progress()
                    self._ask_for_next(int(fetched.batch_headers.last_offsets[-1]) + 1)
                    yield fetched
                else:
                    ends = f"last stable offset {fetched.last_stable_offset}, high watermark {fetched.high_watermark}"
                    self._retries.again(f"{self._wanted}: nothing to read at offset {self._offset} ({ends})")

    def poisoned(self, error: DamagedBatch) -> PoisonedBatch:
        wanted, client = self._wanted, self._client
        at = f" from {client.host}:{client.port}" if client is not None else ""
        return PoisonedBatch(f"{wanted.topic}-{wanted.partition} offset {error.base_offset}{at}: {error.reason}")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- one fetch

    def _ask_for_next(self, offset: int) -> None:
        """Send the next fetch before the caller decodes this one, so that the broker works meanwhile."""
        self._offset = offset
        if offset < self._wanted.end:
            try:
                self._send()
            except ClientError:
                self.close()  # reading the answer reports the error

    def _send(self) -> NodeClient:
        client = self._client
        if client is None:
            leader = self._cluster.leader(self._wanted.topic_partition)
            client = self._client = NodeClient(
                leader.host, leader.port, client_id=self._cluster.client_id, timeout_s=self._cluster.timeout_s
            )
        version = client.choose_version(FetchRequest)
        if self._wanted.topic_id == NO_TOPIC_ID:
            version = min(version, TOPIC_IDS_SINCE - 1)
        if version < ISOLATION_SINCE:
            raise ClientError(f"{client.host}:{client.port} is too old for record batches")
        client.send(self._request(version), version)
        return client

    def _request(self, version: int) -> FetchRequest:
        wanted = self._wanted
        part = FetchPartition(
            partition=wanted.partition, fetch_offset=self._offset, partition_max_bytes=self._fetch_bytes
        )
        return FetchRequest(
            max_wait_ms=min(MAX_WAIT_MS, int(self._cluster.timeout_s * 1000 / 2)),
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation,
            topics=[FetchTopic(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[part])],
            forgotten_topics_data=[],
        )

    def _received(self) -> Fetched:
        client = self._client
        if client is None or not client.exchange.in_flight:
            client = self._send()
        response = client.receive_into(self._allocate)
        if error := kafka_error(response.error_code):
            raise error
        (part,) = response.responses[0].partitions
        if error := kafka_error(part.error_code):
            raise error
        return self._scanned(part)

    def _allocate(self, size: int) -> memoryview:
        self._data = padded(size)
        return self._data.data[:size]

    def _scanned(self, part: Any) -> Fetched:
        records = np.frombuffer(part.records or b"", np.uint8)
        at = records.ctypes.data - self._data.ctypes.data if len(records) else 0
        size = at + len(records)
        try:
            batch_headers = scan(self._data, size, at, end_offset=self._wanted.end)
            if len(records) and not len(batch_headers):
                raise DamagedBatch(self._offset, at, f"cut short after {len(records)} bytes")
        except DamagedBatch as error:
            raise self.poisoned(error) from None
        aborted = () if self._isolation != READ_COMMITTED else part.aborted_transactions or ()
        return Fetched(
            self._data,
            batch_headers,
            self._offset,
            tuple((item.producer_id, item.first_offset) for item in aborted),
            part.high_watermark,
            part.last_stable_offset,
        )

    # -- what can go wrong

    def _again(self, error: object) -> None:
        """Retry: the leader may have moved."""
        self.close()
        self._cluster.forget_leaders()
        self._retries.again(f"{self._wanted}: {error}")

    def _answered(self, error: KafkaError) -> None:
        """Handle the error of a fetch, or of the search for a leader."""
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID) and self._is_gone():
            self._lost(f"the topic was deleted{' and created again' if self._is_recreated() else ''}", self._wanted.end)
        elif error.code.retriable:
            self._again(error)
        else:
            raise ClusterError(f"{self._wanted}: {error}")

    def _out_of_range(self) -> None:
        partition = self._wanted.topic_partition
        start = self._cluster.earliest([partition])[partition]
        end = self._cluster.latest([partition], READ_UNCOMMITTED)[partition]
        if self._offset < start:
            self._lost(f"the log starts at {start} now", start)
        elif self._offset > end:
            self._lost(f"the log ends at {end}", self._wanted.end)
        else:
            self._again("the log changes")

    def _lost(self, reason: str, next_offset: int) -> None:
        if self._fail_on_data_loss:
            wanted = self._wanted
            raise DataLoss(f"{wanted.topic}-{wanted.partition}: offset {self._offset} is gone, {reason}")
        self._offset = next_offset

    def _is_gone(self) -> bool:
        topic = self._cluster.topics([self._wanted.topic], missing_ok=True).get(self._wanted.topic)
        return topic is None or self._wanted.partition not in topic.partitions or self._is_recreated()

    def _is_recreated(self) -> bool:
        topic = self._cluster.topics([self._wanted.topic], missing_ok=True).get(self._wanted.topic)
        return topic is not None and self._wanted.topic_id not in (NO_TOPIC_ID, topic.topic_id)
