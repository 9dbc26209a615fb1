"""The encoder of the sink: rows that Spark passes to a task become batches for partitions, column by column.

The columns are those of the Kafka connector, and `timestamp`: `value` (string or binary) is required; `key` (string or
binary), `headers` (array of struct key: string, value: binary), `topic` (string), `partition` (int) and `timestamp` are
optional. Any other column is left out, as there, so that rows that were read can be written: the broker assigns
`offset` and `timestampType`. A row without a partition gets one by its key, from Kafka's default partitioner. Rows
without a key go to one partition together, the next such rows to the next one. A row without a timestamp gets that of
the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from klamm.pipeline.errors import BadOption, NotWritten
from klamm.pipeline.kafka.encoding import encode_batches, header_tails
from klamm.pipeline.kafka.partitioner import NO_KEY, partitions_of
from klamm.pipeline.ranges import TopicPartition
from klamm.pipeline.spark.source.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Int64s = npt.NDArray[np.int64]

TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise BadOption for columns that cannot be written."""
    found = {item.name.lower(): item.dataType.simpleString() for item in schema.fields}
    if "value" not in found:
        raise BadOption("the column value is missing")
    if options.topic is None and "topic" not in found:
        raise BadOption("no topic is given, neither by the option topic nor by a column topic")
    for name, types in TYPES.items():
        if name in found and found[name] not in types:
            raise BadOption(f"the column {name} is {found[name]}: it must be {' or '.join(types)}")


class Encoder:
    """The encoder of one task. `counts` gives the number of partitions of a topic, `now_ms` the time of the write."""

    def __init__(
        self, options: SinkOptions, counts: Callable[[str], int], now_ms: Callable[[], int], *, first: int = 0
    ) -> None:
        self._options = options
        self._counts = counts
        self._now_ms = now_ms
        self._turn = first

    def encoded(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, bytearray]]:
        """Yield batches of these rows, in order within each partition. Raises NotWritten for rows that do not fit."""
        columns = {name.lower(): column for name, column in zip(rows.schema.names, rows.columns, strict=True)}
        if not rows.num_rows:
            return
        keys = _binary(columns.get("key"), rows.num_rows)
        values = _binary(columns["value"], rows.num_rows)
        timestamps = self._timestamps(columns.get("timestamp"), rows.num_rows)
        headers = columns.get("headers")
        for topic, in_topic in self._topics(columns, rows.num_rows):
            numbers = self._partitions(topic, _taken(keys, in_topic), _taken(columns.get("partition"), in_topic))
            order = np.argsort(numbers, kind="stable")
            starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
            for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
                chosen = in_topic[order[start:end]]
                tails = None if headers is None else header_tails(_taken(headers, chosen))
                for batch in encode_batches(
                    _taken(keys, chosen),
                    _taken(values, chosen),
                    timestamps[chosen],
                    tails,
                    codec=self._options.codec,
                    batch_bytes=self._options.batch_bytes,
                ):
                    yield TopicPartition(topic, int(numbers[order[start]])), batch.data

    def _topics(self, columns: dict[str, Any], count: int) -> Iterator[tuple[str, Int64s]]:
        """Yield each topic with its rows."""
        if self._options.topic is not None:
            yield self._options.topic, np.arange(count)
            return
        column = columns["topic"]
        if column.null_count:
            raise NotWritten("a row has no topic: its column topic is null")
        names = column.dictionary_encode()
        indices = names.indices.to_numpy(zero_copy_only=False)
        for index, name in enumerate(names.dictionary.to_pylist()):
            yield name, np.flatnonzero(indices == index)

    def _partitions(self, topic: str, keys: Any, given: Any) -> Int64s:
        count = self._counts(topic)
        if given is None or given.null_count:
            numbers = partitions_of(keys, count)
            numbers[numbers == NO_KEY] = self._turn % count
            self._turn += 1
        else:
            numbers = np.zeros(len(keys), np.int64)
        if given is not None:
            asked = pc.fill_null(given.cast(pa.int64()), NO_KEY).to_numpy(zero_copy_only=False)
            is_given = pc.is_valid(given).to_numpy(zero_copy_only=False)
            wrong = is_given & ((asked < 0) | (asked >= count))
            if wrong.any():
                raise NotWritten(f"topic {topic} has partitions 0 to {count - 1}, not {asked[wrong][0]}")
            numbers = np.where(is_given, asked, numbers)
        return numbers

    def _timestamps(self, column: Any, count: int) -> Int64s:
        if column is None:
            return np.full(count, self._now_ms(), np.int64)
        micros = column.cast(pa.int64())
        found: Int64s = pc.fill_null(micros, self._now_ms() * 1000).to_numpy(zero_copy_only=False) // 1000
        return found


def _binary(column: Any, count: int) -> Any:
    if column is None:
        return pa.nulls(count, pa.binary())
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _taken(column: Any, rows: Int64s) -> Any:
    if column is None or len(rows) == len(column):
        return column
    return column.take(pa.array(rows))
