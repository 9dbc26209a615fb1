"""The positions of batches in a buffer, and their headers as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from struct import Struct
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_BATCH_BYTES,
    read_header,
)

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PADDING_BYTES: Final = 64
"""Readable bytes after the data: the numbers of a record are read before it is known whether it holds them."""

NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADER.itemsize == HEADER_BYTES

_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")
_LAST_BASE_OFFSET: Final = 2**63 - 2**32  # so that no offset overflows


class DamagedBatch(CorruptMessage):
    """A batch with impossible content: `base_offset` as stored, `position` in the buffer."""

    def __init__(self, base_offset: int, position: int, reason: str) -> None:
        super().__init__(f"batch with base offset {base_offset} at position {position}: {reason}")
        self.base_offset = base_offset
        self.position = position
        self.reason = reason


def padded(size: int) -> Bytes:
    """Return a buffer for `size` bytes, with the padding that `scan` and `columns` need after them."""
    data = np.empty(size + PADDING_BYTES, np.uint8)
    data[size:] = 0
    return data


@dataclass(frozen=True, slots=True)
class BatchHeaders:
    """The headers of whole batches, one row each, all int64 except `crcs`; `end` is the position after the last.

    Entries of magic 0 and 1 count as batches, as in `read_header`: a wrapper has its last offset as both offsets, and
    the count -1. Timestamp types are -1 (none, magic 0), 0 CreateTime, 1 LogAppendTime.
    """

    end: int
    positions: Int64s
    sizes: Int64s
    base_offsets: Int64s
    last_offsets: Int64s
    magics: Int64s
    crcs: npt.NDArray[np.uint32]
    attributes: Int64s
    base_timestamps: Int64s
    max_timestamps: Int64s
    timestamp_types: Int64s
    leader_epochs: Int64s
    producer_ids: Int64s
    producer_epochs: Int64s
    base_sequences: Int64s
    counts: Int64s

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, rows: slice | Bools) -> Self:
        """Return some of the rows; `end` is kept."""
        return replace(self, **{one.name: getattr(self, one.name)[rows] for one in fields(self) if one.name != "end"})


def scan(data: Bytes, size: int, at: int = 0, *, end_offset: int | None = None) -> BatchHeaders:
    """Find the whole batches in `data[at:size]`, up to one that is cut short, see `BatchHeaders.end`.

    With `end_offset` it ends with the batch before that offset, and the bytes after it, perhaps zeros, do not matter.
    Raises DamagedBatch for an invalid header.
    """
    assert len(data) >= size + PADDING_BYTES, f"{len(data)} bytes with {size} in use have no padding"
    positions, end, damage = _walk(data, size, at)
    batch_headers = _columns(data, np.array(positions, np.int64), end)
    if end_offset is not None:
        count = int(np.searchsorted(batch_headers.last_offsets, end_offset - 1)) + 1
        if count <= len(batch_headers) and _ascend(batch_headers.last_offsets):
            end = int(batch_headers.positions[count - 1] + batch_headers.sizes[count - 1])
            return replace(batch_headers[:count], end=end)
    if damage is not None:
        raise damage
    bad = (
        (batch_headers.base_offsets < 0)
        | (batch_headers.base_offsets > _LAST_BASE_OFFSET)
        | (batch_headers.last_offsets < batch_headers.base_offsets)
    )
    if bad.any():
        row = int(bad.argmax())
        base, last = int(batch_headers.base_offsets[row]), int(batch_headers.last_offsets[row])
        raise DamagedBatch(base, int(batch_headers.positions[row]), f"offsets {base} to {last} are none")
    return batch_headers


def _ascend(numbers: Int64s) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def _walk(data: Bytes, size: int, at: int) -> tuple[list[int], int, DamagedBatch | None]:
    view = data.data
    length = _LENGTH.unpack_from
    positions: list[int] = []
    found = positions.append
    while size - at >= MIN_BATCH_BYTES:
        batch_size = length(view, at + 8)[0] + LOG_OVERHEAD_BYTES
        magic = view[at + MAGIC_POSITION]
        if magic >= 2 and size - at < HEADER_BYTES:
            break
        if magic > 2 or batch_size < (HEADER_BYTES if magic == 2 else MIN_BATCH_BYTES):
            reason = f"magic {magic} and size {batch_size} are no batch"
            return positions, at, DamagedBatch(_BASE_OFFSET.unpack_from(view, at)[0], at, reason)
        if batch_size > size - at:
            break
        found(at)
        at += batch_size
    return positions, at, None


def _columns(data: Bytes, positions: Int64s, end: int) -> BatchHeaders:
    """Read the header fields at these positions; those of the old formats one by one."""
    rows = np.ndarray((max(len(data) - HEADER_BYTES + 1, 0),), HEADER, data, 0, (1,))[positions]
    wide = {name: rows[name].astype(np.int64) for name in HEADER.names or () if name != "crc"}
    append_time = (wide["attributes"] & LOG_APPEND_TIME_FLAG != 0).astype(np.int64)
    batch_headers = BatchHeaders(
        end=end,
        positions=positions,
        sizes=wide["batch_length"] + LOG_OVERHEAD_BYTES,
        base_offsets=wide["base_offset"],
        last_offsets=wide["base_offset"] + wide["last_offset_delta"],
        magics=wide["magic"],
        crcs=rows["crc"].astype(np.uint32),
        attributes=wide["attributes"],
        base_timestamps=wide["base_timestamp"],
        max_timestamps=wide["max_timestamp"],
        timestamp_types=append_time,
        leader_epochs=wide["leader_epoch"],
        producer_ids=wide["producer_id"],
        producer_epochs=wide["producer_epoch"],
        base_sequences=wide["base_sequence"],
        counts=wide["record_count"],
    )
    for row in np.flatnonzero(batch_headers.magics < 2).tolist():
        _fill_old(data, batch_headers, row)
    return batch_headers


def _fill_old(data: Bytes, batch_headers: BatchHeaders, row: int) -> None:
    position = int(batch_headers.positions[row])
    try:
        head = read_header(data.data, position)
    except CorruptMessage as error:
        raise DamagedBatch(int(batch_headers.base_offsets[row]), position, error.message) from None
    batch_headers.last_offsets[row] = head.base_offset
    batch_headers.crcs[row] = head.crc
    batch_headers.attributes[row] = head.attributes
    batch_headers.base_timestamps[row] = batch_headers.max_timestamps[row] = head.base_timestamp
    batch_headers.timestamp_types[row] = int(head.is_log_append_time) if head.magic else NO_TIMESTAMP_TYPE
    for column in (
        batch_headers.leader_epochs,
        batch_headers.producer_ids,
        batch_headers.producer_epochs,
        batch_headers.base_sequences,
    ):
        column[row] = -1
    batch_headers.counts[row] = head.record_count
