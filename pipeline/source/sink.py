"""`df.write.format("klamm")` and `df.writeStream.format("klamm")`: rows into topics, by transactions.

What is promised, for readers with read_committed:

- A task writes into one transaction, so an attempt that fails, or is killed, leaves nothing that can be seen; the next
  attempt has the same transactional id and aborts what is left of it.
- The driver commits all tasks of the job (of the micro-batch), when all are done: a job that fails has written
  nothing. Before it commits it makes sure that every transaction is still open (`klamm.pipeline.handover`).
- The commits follow each other. A driver that is killed between the first and the last of them, or a coordinator that
  fails just then, leaves a part of the tasks committed; the others are aborted when their transactions time out.
- A stream that starts again repeats the micro-batch that Spark had not yet noted as done. When it was killed between
  the commit here and that note, the batch is written twice: between restarts a stream is at-least-once.

A job must be done within `kafka.transaction.timeout.ms` (or it fails, having written nothing), and what it writes hides
later records of the same partitions from readers with read_committed until then. So it is after a driver was killed,
until the timeout, or until a run with the same option `transactionalId` and as many tasks. Order: the rows of a task
keep theirs within each partition.

Batches need `.mode("append")`; a topic cannot be overwritten. Columns: see `rows`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from klamm.pipeline.errors import BadOption
from klamm.pipeline.handover import abort_all, commit_all
from klamm.pipeline.producer import OpenTransaction, Producer
from klamm.pipeline.source.rows import Encoder, check_columns
from klamm.pipeline.source.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """Of one task: its open transaction, None when it had no rows."""

    transaction: OpenTransaction | None


class BatchWriter(DataSourceArrowWriter):
    """A copy writes in each task, another one commits."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOption("a topic cannot be overwritten: use mode append")
        check_columns(schema, options)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return written(self.options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self.options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """The same for each micro-batch."""

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
    options: SinkOptions, batches: Iterator[pa.RecordBatch], *, now_ms: Callable[[], int] | None = None
) -> Written:
    """Write the rows of this task into a transaction that stays open. When this raises, it is aborted."""
    context = TaskContext.get()
    number = context.partitionId() if context is not None else 0
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return Written(None)
    with options.connection.cluster() as cluster:
        counts: dict[str, int] = {}

        def count(topic: str) -> int:
            if topic not in counts:
                counts[topic] = len(cluster.topics([topic])[topic].partitions)
            return counts[topic]

        encoder = Encoder(options, count, now_ms or (lambda: time.time_ns() // 1_000_000), first=number)
        with Producer(
            cluster,
            transactional_id=f"{options.transactional_id}.{number}",
            transaction_timeout_s=options.transaction_timeout_s,
        ) as producer:
            producer.begin()
            for rows in _chained(first, batches):
                for partition, batch in encoder.encoded(rows):
                    producer.send(partition, batch)
            return Written(producer.leave_open())


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
