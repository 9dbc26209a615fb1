"""The sink: `df.write.format("klamm")` and `df.writeStream.format("klamm")` write rows into topics, by transactions.

Guarantees, for readers with read_committed:

- A task writes into one transaction, so an attempt that fails, or is killed, leaves nothing visible. The next attempt
  has the same transactional id and aborts the transaction of the failed one.
- The driver commits all tasks of the job (of the micro-batch) when all are done. A job that fails has written nothing,
  and ends the transactions of its tasks. Before the commits it checks that every transaction is still open
  (`klamm.pipeline.kafka.two_phase_commit`).
- The commits follow each other. If the driver is killed between the first and the last of them, or a coordinator fails
  just then, a part of the tasks of a batch job is committed. The others are aborted by the next run with the same
  option `transactionalId` and as many tasks, or when their transactions time out.
- A stream has every row once, also if it was killed at any moment and continues from its checkpoint. With its rows each
  task commits its micro-batch (offset `batch + 1` of the group named like its transactional id). A task of a repeated
  micro-batch that was committed before writes nothing. It checks by a count and a checksum that the rows are the same,
  and fails otherwise: a query that gives other rows to its tasks when a micro-batch is repeated cannot continue with
  this sink. Kafka drops such offsets when a query has stood still for a week (`offsets.retention.minutes`).

A job, or micro-batch, must finish within `kafka.transaction.timeout.ms`; otherwise it fails and has written nothing.
Until it ends, its rows hide later records of the same partitions from readers with read_committed. Order: the rows of a
task keep theirs within each partition.

Batches need `.mode("append")`; a topic cannot be overwritten. Columns: see `rows`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm.pipeline.errors import BadOption, NotWritten
from klamm.pipeline.kafka.cluster import Cluster
from klamm.pipeline.kafka.groups import committed
from klamm.pipeline.kafka.producer import OpenTransaction, Producer
from klamm.pipeline.kafka.two_phase_commit import abort_all, commit_all, fence_all
from klamm.pipeline.spark.source.rows import Encoder, check_columns
from klamm.pipeline.spark.source.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a task in a job. `query` and `batch` are those of a stream, and stay the same when it continues."""

    number: int = 0
    query: str | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of one task: its open transaction, None when it had no rows."""

    transaction: OpenTransaction | None


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch: one copy writes in each task, another commits."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOption("a topic cannot be overwritten: use mode append")
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task.

        Within `foreachBatch` too this is a job of its own: a micro-batch may be written to several topics.
        """
        return written(self.options, iterator, place=Place(_place().number))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort all tasks, also those that reported nothing: Spark kills them, but does not wait for their end."""
        _abort(self.options, messages)
        ids = [_transactional_id(self.options, Place(number)) for number, item in enumerate(messages) if item is None]
        with self.options.connection.cluster() as cluster:
            fence_all(cluster, ids, self.options.transaction_timeout_s)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream, for each micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return written(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        _abort(self.options, messages)


def written(
    options: SinkOptions,
    batches: Iterator[pa.RecordBatch],
    *,
    place: Place | None = None,
    now_ms: Callable[[], int] | None = None,
) -> Written:
    """Write the rows of this task into a transaction that stays open. If this raises, the transaction is aborted."""
    here = place or _place()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Written(None)
    with options.connection.cluster() as cluster:
        encoder = Encoder(options, _Counts(cluster), now_ms or _wall_ms, first=here.number)
        with Producer(
            cluster,
            transactional_id=_transactional_id(options, here),
            transaction_timeout_s=options.transaction_timeout_s,
        ) as producer:
            if here.batch is not None and _is_done(producer, here.batch, _chained(first, batches)):
                return Written(None)
            producer.begin()
            digest, partition = Digest(), None
            for rows in _chained(first, batches):
                digest.add(rows)
                for partition, batch in encoder.encoded(rows):
                    producer.send(partition, batch)
            if here.batch is not None and partition is not None:
                assert producer.transactional_id is not None
                producer.send_offsets(producer.transactional_id, {partition: here.batch + 1}, str(digest))
            return Written(producer.leave_open())


class Digest:
    """The count of rows, and a checksum of their values, however they are cut into batches."""

    def __init__(self) -> None:
        self._count = 0
        self._checksum = 0

    def add(self, rows: pa.RecordBatch) -> None:
        names = [name.lower() for name in rows.schema.names]
        column = rows.column(names.index("value")).cast(pa.binary())
        self._count += rows.num_rows
        _, offsets, content = column.buffers()
        if content is not None:
            at = memoryview(offsets).cast("i")
            first, after = at[column.offset], at[column.offset + len(column)]
            self._checksum = zlib.crc32(memoryview(content)[first:after], self._checksum)

    def __str__(self) -> str:
        return f"{self._count} rows, crc {self._checksum:08x}"


class _Counts(dict[str, int]):
    """The number of partitions of each topic, looked up once."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def __missing__(self, topic: str) -> int:
        self[topic] = len(self._cluster.topics([topic])[topic].partitions)
        return self[topic]

    def __call__(self, topic: str) -> int:
        return self[topic]


def _place() -> Place:
    context = TaskContext.get()
    if context is None:
        return Place()
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return Place(context.partitionId())
    return Place(context.partitionId(), query, int(batch))


def _transactional_id(options: SinkOptions, place: Place) -> str:
    return f"{options.transactional_id or f'klamm-pipeline.{place.query or options.job}'}.{place.number}"


def _is_done(producer: Producer, batch: int, rows: Iterator[pa.RecordBatch]) -> bool:
    """Return whether an earlier run committed this micro-batch. Raises NotWritten if it had other rows."""
    group = producer.transactional_id
    assert group is not None
    last = max(committed(producer.cluster, group, stable=True).values(), key=lambda one: one.offset, default=None)
    if last is None or last.offset <= batch:
        return False
    digest = Digest()
    for item in rows:
        digest.add(item)
    if last.offset > batch + 1 or last.metadata != str(digest):
        raise NotWritten(
            f"micro-batch {batch} of {group} has been written with other rows"
            f" ({last.metadata} of micro-batch {last.offset - 1}, now {digest})"
        )
    return True


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _transactions(messages: list[WriterCommitMessage | None]) -> list[OpenTransaction]:
    return [item.transaction for item in messages if isinstance(item, Written) and item.transaction is not None]


def _commit(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    with options.connection.cluster() as cluster:
        commit_all(cluster, _transactions(messages))


def _abort(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    with options.connection.cluster() as cluster:
        abort_all(cluster, _transactions(messages))
