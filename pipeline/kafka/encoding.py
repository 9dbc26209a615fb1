"""The encoder of columns as record batches, without Python work for each record.

    for batch in encode_batches(keys, values, timestamps_ms, codec=Codec.LZ4, batch_bytes=512 * 1024):
        batch.data, batch.first, batch.count       # whole batches: rows `first` to `first + count`

numpy writes the numeric fields of the records as rows of bytes, and Arrow joins them with keys, values and headers
(`protocol/records/batch.py` has the format). Headers are passed as they are stored, count first (`tails`):
`header_tails` makes them from Arrow's lists, and a mirror cuts them from the batch that it has read. A batch ends
before it would exceed `batch_bytes` uncompressed. A larger record gets a batch of its own, and the broker may refuse
it. A chunk of columns must stay below 2 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from klamm.protocol.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_PRODUCER_ID, NO_SEQUENCE, seal
from klamm.protocol.records.compression import Codec, compress

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BATCH_BYTES: Final = 512 * 1024
RECORD_OVERHEAD_BYTES: Final = 5 + 1 + 10 + 5 + 5 + 5
"""The largest size of a record's numbers: length, attributes, timestamp and offset deltas, sizes of key and value."""
NO_HEADERS: Final = b"\x00"
NULL: Final = -1


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """One batch with base offset 0 and no producer, and the rows in it."""

    data: bytearray
    first: int
    count: int


def encode_batches(
    keys: Any,
    values: Any,
    timestamps_ms: Int64s,
    tails: Any = None,
    *,
    codec: Codec = Codec.NONE,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[EncodedBatch]:
    """Yield batches made from Arrow binary arrays (null is null), in order.

    `tails`: see the module; None means no headers.
    """
    count = len(timestamps_ms)
    if count == 0:
        return
    key_sizes, value_sizes = sizes(keys), sizes(values)
    tail_sizes = sizes(tails) if tails is not None else np.ones(count, np.int64)
    bounds = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes + RECORD_OVERHEAD_BYTES
    starts = _starts(bounds, batch_bytes - HEADER_BYTES)
    counts = np.diff(starts, append=count)
    base_timestamps = timestamps_ms[starts]
    bodies = _bodies(
        keys,
        values,
        tails,
        (key_sizes, value_sizes, tail_sizes),
        timestamps_ms - np.repeat(base_timestamps, counts),
        np.arange(count, dtype=np.int64) - np.repeat(starts, counts),
    )
    at, data = _offsets(bodies), memoryview(bodies.buffers()[2])
    newest = np.maximum.reduceat(timestamps_ms, starts)
    for first, rows, base_ms, newest_ms in zip(
        starts.tolist(), counts.tolist(), base_timestamps.tolist(), newest.tolist(), strict=True
    ):
        body = data[at[first] : at[first + rows]]
        yield EncodedBatch(_batch(body, codec, rows, base_ms, newest_ms), first, rows)


def header_tails(headers: Any) -> Any:
    """Return each record's headers as they are stored, from Arrow's list of structs (key, value); null is none."""
    flat = headers.flatten()
    names, values = flat.field(0).cast(pa.binary()), flat.field(1)
    empty = pa.scalar(b"", pa.binary())
    name_sizes, value_sizes = _varints(sizes(names)), _varints(sizes(values))
    encoded = pc.binary_join_element_wise(
        _flattened(name_sizes), names, _flattened(value_sizes), pc.fill_null(values, empty), empty
    )
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(counts)))
    at = _offsets(encoded)[ends].astype(np.int32)
    parts = pa.Array.from_buffers(pa.binary(), len(headers), [None, pa.py_buffer(at), encoded.buffers()[2]])
    return pc.binary_join_element_wise(_flattened(_varints(counts)), parts, empty)


def sizes(column: Any) -> Int64s:
    """Return the size of each value of a binary array, -1 for null."""
    found: Int64s = pc.fill_null(pc.binary_length(column), NULL).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _starts(bounds: Int64s, room: int) -> Int64s:
    """Return the first row of each batch."""
    ends = np.cumsum(bounds)
    starts, done = [0], 0
    while True:
        after = max(int(np.searchsorted(ends, done + room, side="right")), starts[-1] + 1)
        if after >= len(bounds):
            return np.array(starts, np.int64)
        starts.append(after)
        done = int(ends[after - 1])


def _bodies(
    keys: Any,
    values: Any,
    tails: Any,
    lengths: tuple[Int64s, Int64s, Int64s],
    timestamp_deltas: Int64s,
    offset_deltas: Int64s,
) -> Any:
    key_sizes, value_sizes, tail_sizes = lengths
    inner = [_varints(timestamp_deltas), _varints(offset_deltas), _varints(key_sizes)]
    before_value = _varints(value_sizes)
    whole = 1 + np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + tail_sizes
    for part in (*inner, before_value):
        whole += part.sizes
    attributes = _Rows(np.zeros((len(whole), 1), np.uint8), np.ones(len(whole), np.int64))
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(
        _flattened(_varints(whole), attributes, *inner),
        pc.fill_null(keys, empty),
        _flattened(before_value),
        pc.fill_null(values, empty),
        tails if tails is not None else pa.scalar(NO_HEADERS, pa.binary()),
        empty,
    )


def _batch(body: memoryview, codec: Codec, count: int, base_ms: int, newest_ms: int) -> bytearray:
    packed = compress(codec, body) if codec else body
    batch = bytearray(HEADER_BYTES + len(packed))
    batch[HEADER_BYTES:] = packed
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD_BYTES,
        -1,
        2,
        0,
        codec,
        count - 1,
        base_ms,
        newest_ms,
        NO_PRODUCER_ID,
        -1,
        NO_SEQUENCE,
        count,
    )
    seal(batch)
    return batch


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of bytes; only the first `sizes` bytes of each are used."""

    data: Bytes
    sizes: Int64s


def _varints(numbers: Int64s) -> _Rows:
    """Return zig-zag varints, a row each."""
    raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    width = max(-(-int(raw.max()).bit_length() // 7), 1) if len(raw) else 1
    data = np.empty((len(raw), width), np.uint8)
    found = np.ones(len(raw), np.int64)
    for column in range(width):
        rest = raw >> np.uint64(7 * column + 7) if column < 9 else np.zeros_like(raw)
        more = rest > 0
        data[:, column] = (raw >> np.uint64(7 * column)) & np.uint64(0x7F) | (more.astype(np.uint64) << np.uint64(7))
        if column + 1 < width:
            found += more
    return _Rows(data, found)


def _flattened(*parts: _Rows) -> Any:
    """Return a binary array: the used bytes of each row, part after part."""
    data = np.hstack([part.data for part in parts])
    kept = np.hstack([np.arange(part.data.shape[1]) < part.sizes[:, None] for part in parts])
    ends = np.zeros(len(data) + 1, np.int32)
    np.cumsum(sum(part.sizes for part in parts), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(data[kept])])


def _offsets(column: Any) -> npt.NDArray[np.int32]:
    assert column.offset == 0 and column.type == pa.binary()
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)
