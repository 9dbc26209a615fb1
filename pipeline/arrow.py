"""Records as Arrow, with the columns of Spark's Kafka connector.

    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int
    and, when asked for: headers array<struct<key: string, value: binary>>

A key, a value or a header's value is null or empty as it is in the log. A record without headers has null there, as
with the connector. timestampType is 0 for CreateTime, 1 for LogAppendTime, -1 for records older than timestamps.
Bytes in a header's key that are not UTF-8 become U+FFFD. Contents are copied once, out of the batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.columnar import Columns, Headers, Spans
from klamm.protocol.records.columnar.batch_headers import Bools

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS))

_LARGEST_MS: Final = (2**63 - 1) // 1000


def record_batches(parts: Iterable[Columns], topic: str, partition: int, *, headers: bool = False) -> Iterator[Any]:
    """Yield an Arrow record batch for each part. Raises InvalidRecord for a timestamp that microseconds cannot hold."""
    for columns in parts:
        yield record_batch(columns, topic, partition, headers=headers)


def record_batch(columns: Columns, topic: str, partition: int, *, headers: bool = False) -> Any:
    """Return one part as an Arrow record batch; see `record_batches`."""
    count = len(columns)
    content = Contents(columns)
    arrays = [
        content.binary(columns.keys),
        content.binary(columns.values),
        pa.repeat(pa.scalar(topic), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array(columns.offsets),
        _timestamps(columns),
        pa.array(columns.timestamp_types.astype(np.int32)),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*arrays, content.headers(columns.headers, count)], schema=SCHEMA_WITH_HEADERS)


def _timestamps(columns: Columns) -> Any:
    wrong = np.abs(columns.timestamps) > _LARGEST_MS
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidRecord(
            f"record at offset {columns.offsets[row]}: timestamp {columns.timestamps[row]} ms is out of range:"
            " microseconds since 1970 cannot hold it"
        )
    micros = columns.timestamps * 1000
    return pa.Array.from_buffers(pa.timestamp("us", "UTC"), len(micros), [None, pa.py_buffer(micros)])


class Contents:
    """The buffer of one part, from which spans are taken.

    Arrow's offsets have 32 bits, so they count from the start of the part.
    """

    def __init__(self, columns: Columns) -> None:
        self._base = int(columns.keys.starts[0]) if len(columns) else 0
        self._buffer = pa.py_buffer(columns.data[self._base :])

    def binary(self, spans: Spans, order: npt.NDArray[np.int64] | None = None) -> Any:
        """Return a binary array, null where the span is null. With `order`: only these rows, in that order."""
        count = len(spans.starts)
        if count == 0:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = spans.starts - self._base
        offsets[1::2] = spans.ends - self._base
        # Every second value of this array is a span; the values between are never read.
        all_ = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), self._buffer])
        taken = all_.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32) if order is None else order * 2))
        if spans.nulls is None or not spans.nulls.any():
            return taken
        nulls = spans.nulls if order is None else spans.nulls[order]
        return pa.Array.from_buffers(pa.binary(), len(taken), [_validity(~nulls), *taken.buffers()[1:]])

    def headers(self, headers: Headers | None, count: int) -> Any:
        """Return a list of structs for each record, null for a record without headers."""
        if headers is None:
            return pa.nulls(count, HEADERS)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(headers.counts, out=offsets[1:])
        pairs = pa.StructArray.from_arrays(
            [_text(self.binary(headers.names)), self.binary(headers.values)], fields=list(HEADERS.value_type)
        )
        buffers = [_validity(headers.counts > 0), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(HEADERS, count, buffers, children=[pairs])


def _validity(are_there: Bools) -> Any:
    return pa.py_buffer(np.packbits(are_there, bitorder="little"))


def _text(names: Any) -> Any:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
