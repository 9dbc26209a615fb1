"""Decode batches to columns: select the batches, decode their records, and report damage. See the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from klamm.protocol.errors import InvalidRecord, UnsupportedCompressionType
from klamm.protocol.records.batch import ATTRIBUTES_POSITION, HEADER_BYTES, LOG_APPEND_TIME_FLAG
from klamm.protocol.records.columnar.aborts import Aborts
from klamm.protocol.records.columnar.batch_headers import PADDING_BYTES, BatchHeaders, Bytes, DamagedBatch, Int64s
from klamm.protocol.records.columnar.chains import split
from klamm.protocol.records.columnar.fields import (
    MIN_RECORD_BYTES,
    Headers,
    Spans,
    read_fields,
    read_headers,
    record_starts,
)
from klamm.protocol.records.columnar.old import converted
from klamm.protocol.records.columnar.varints import Malformed, refuse
from klamm.protocol.records.compression import CODEC_MASK, codec_of, decompress
from klamm.protocol.records.crc import crc32c

CHUNK_RECORDS: Final = 8192
"""How many records become one `Columns`: numpy's calls are cheap, and the data stays in the processor's cache."""
GROUP_BYTES: Final = 16 << 20
"""The decompressed size of the batches that advance in lockstep."""
DECOMPRESSED_LIMIT_BYTES: Final = 1 << 30
"""The limit of the decompressed records of one batch."""
NO_END: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Columns:
    """Some records, a row each, with ascending offsets. Positions are those of `data`, less than 2 GiB apart.

    `timestamps` are milliseconds, -1 for none; `timestamp_types` as in `BatchHeaders`. `tails` are the headers as
    stored, their count first; `headers` has them decoded, and is None when no record has any.
    """

    data: Bytes
    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int64s
    keys: Spans
    values: Spans
    tails: Spans
    headers: Headers | None

    def __len__(self) -> int:
        return len(self.offsets)


def columns(
    data: Bytes,
    batch_headers: BatchHeaders,
    *,
    start_offset: int = 0,
    end_offset: int = NO_END,
    aborted: Iterable[tuple[int, int]] = (),
    chunk_records: int = CHUNK_RECORDS,
    check_crcs: bool = True,
    limit: int = DECOMPRESSED_LIMIT_BYTES,
) -> Iterator[Columns]:
    """Yield the records with offsets in [start_offset, end_offset), in order, in chunks. Raises DamagedBatch.

    Batches outside this range are not read. `limit` is the largest decompressed size of a batch.
    """
    assert (
        not len(batch_headers) or len(data) >= int((batch_headers.positions + batch_headers.sizes)[-1]) + PADDING_BYTES
    )
    wanted = _Wanted(start_offset, end_offset, chunk_records)
    aborts = Aborts(aborted)
    for group in _groups(_within(batch_headers, start_offset, end_offset)):
        if check_crcs:
            _check_crcs(data, group)
        for opened in _opened(data, group[aborts.kept(data, group)], limit):
            yield from _decoded(opened, wanted)


@dataclass(slots=True)
class _Wanted:
    start_offset: int
    end_offset: int
    chunk_records: int
    last_offset: int = -1
    """The last offset of the records already decoded."""


def _within(batch_headers: BatchHeaders, start_offset: int, end_offset: int) -> BatchHeaders:
    """Return the batches that may hold such offsets. Raises DamagedBatch unless all of them ascend."""
    behind = np.append(np.int64(0), batch_headers.last_offsets[:-1] + 1)
    wrong = batch_headers.base_offsets < behind
    if wrong.any():
        row = int(wrong.argmax())
        raise damaged(batch_headers, row, f"the batch before it ends with offset {batch_headers.last_offsets[row - 1]}")
    first = np.where(
        batch_headers.magics < 2, behind, batch_headers.base_offsets
    )  # the start of an old wrapper is unknown
    return batch_headers[(batch_headers.last_offsets >= start_offset) & (first < end_offset)]


def damaged(batch_headers: BatchHeaders, row: int, reason: str) -> DamagedBatch:
    return DamagedBatch(int(batch_headers.base_offsets[row]), int(batch_headers.positions[row]), reason)


def _groups(batch_headers: BatchHeaders) -> Iterator[BatchHeaders]:
    """Yield groups of limited size, either of magic 2 or older."""
    ends = np.cumsum(batch_headers.sizes)
    changes = np.flatnonzero(np.diff(batch_headers.magics < 2)) + 1
    first = done = 0
    while first < len(batch_headers):
        after = max(int(np.searchsorted(ends, done + GROUP_BYTES, side="right")), first + 1)
        change = int(np.searchsorted(changes, first, side="right"))
        if change < len(changes):
            after = min(after, int(changes[change]))
        yield batch_headers[first:after]
        done, first = int(ends[after - 1]), after


def _check_crcs(data: Bytes, batch_headers: BatchHeaders) -> None:
    """Check the CRCs of magic 2; those of the old formats are checked when they are read."""
    view = data.data
    modern = batch_headers.magics == 2
    starts = (batch_headers.positions + ATTRIBUTES_POSITION)[modern].tolist()
    ends = (batch_headers.positions + batch_headers.sizes)[modern].tolist()
    computed = [crc32c(view[start:end]) for start, end in zip(starts, ends, strict=True)]
    wrong = np.array(computed, np.uint32) != batch_headers.crcs[modern]
    if wrong.any():
        row = int(wrong.argmax())
        stored, found = int(batch_headers.crcs[modern][row]), computed[row]
        raise damaged(batch_headers[modern], row, f"its CRC is {stored:#010x}, that of its content {found:#010x}")


@dataclass(frozen=True, slots=True)
class _Opened:
    """Batches with their uncompressed records at [starts, ends) in `data`."""

    data: Bytes
    batch_headers: BatchHeaders
    starts: Int64s
    ends: Int64s


def _opened(data: Bytes, batch_headers: BatchHeaders, limit: int) -> Iterator[_Opened]:
    if not len(batch_headers):
        return
    if batch_headers.magics[0] < 2:
        data, batch_headers = converted(data, batch_headers, limit)
    starts, ends = batch_headers.positions + HEADER_BYTES, batch_headers.positions + batch_headers.sizes
    if not (batch_headers.attributes & CODEC_MASK).any():
        yield _Opened(data, batch_headers, starts, ends)
        return
    view = data.data
    parts: list[bytes] = []
    first = size = 0
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        try:  # an empty body, as compaction may leave it, is not a compressed one
            part = (
                decompress(codec_of(int(batch_headers.attributes[row])), view[start:end], limit) if start < end else b""
            )
        except (InvalidRecord, UnsupportedCompressionType) as error:
            raise damaged(batch_headers, row, error.message) from None
        parts.append(part)
        size += len(part)
        if size >= GROUP_BYTES:
            yield _joined(batch_headers[first : row + 1], parts)
            parts, first, size = [], row + 1, 0
    if parts:
        yield _joined(batch_headers[first:], parts)


def _joined(batch_headers: BatchHeaders, parts: list[bytes]) -> _Opened:
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    data = np.frombuffer(b"".join([*parts, bytes(PADDING_BYTES)]), np.uint8)
    return _Opened(data, batch_headers, np.append(np.int64(0), ends[:-1]), ends)


def _decoded(opened: _Opened, wanted: _Wanted) -> Iterator[Columns]:
    batch_headers, counts = opened.batch_headers, opened.batch_headers.counts
    wrong = (counts < 0) | (counts * MIN_RECORD_BYTES > opened.ends - opened.starts)
    if wrong.any():
        row = int(wrong.argmax())
        size = int(opened.ends[row] - opened.starts[row])
        raise damaged(batch_headers, row, f"{size} bytes do not hold {int(counts[row])} records")
    starts = _starts(opened)
    ends = np.append(starts[1:], 0)
    ends[(np.cumsum(counts) - 1)[counts > 0]] = opened.ends[counts > 0]
    batch_rows = np.repeat(np.arange(len(batch_headers)), counts)
    for first in range(0, len(starts), wanted.chunk_records):
        rows = slice(first, first + wanted.chunk_records)
        try:
            found = _chunk(opened, starts[rows], ends[rows], batch_rows[rows], wanted)
        except Malformed as error:
            raise damaged(batch_headers, int(batch_rows[first + error.row]), error.reason) from None
        if found is not None:
            yield found


def _starts(opened: _Opened) -> Int64s:
    batch_headers, counts = opened.batch_headers, opened.batch_headers.counts
    without_gaps = batch_headers.last_offsets - batch_headers.base_offsets + 1 == counts
    chains = split(opened.data, opened.starts, opened.ends, counts, without_gaps)
    if chains is not None:
        with suppress(Malformed):  # the guess was wrong, or the batch is
            return record_starts(opened.data, *chains)
    try:
        return record_starts(opened.data, opened.starts, opened.ends, counts)
    except Malformed as error:
        raise damaged(batch_headers, error.row, error.reason) from None


def _chunk(opened: _Opened, starts: Int64s, ends: Int64s, batch_rows: Int64s, wanted: _Wanted) -> Columns | None:
    batch_headers = opened.batch_headers
    fields = read_fields(opened.data, starts, ends)
    deltas = fields.offset_deltas
    bases = batch_headers.base_offsets[batch_rows]
    offsets = bases + deltas
    wrong = (deltas < 0) | (offsets > batch_headers.last_offsets[batch_rows])
    wrong[1:] |= offsets[1:] <= offsets[:-1]
    wrong[0] |= offsets[0] <= wanted.last_offset
    refuse(wrong, "the offsets of its records do not ascend within it")
    wanted.last_offset = int(offsets[-1])
    first, after = np.searchsorted(offsets, (wanted.start_offset, wanted.end_offset)).tolist()
    if first == after:
        return None
    rows = slice(first, after)
    timestamps = (
        batch_headers.base_timestamps[batch_rows] + fields.timestamp_deltas
    )  # may wrap, as Java's do on both sides
    append_time = batch_headers.attributes & LOG_APPEND_TIME_FLAG != 0
    if append_time.any():
        timestamps = np.where(append_time[batch_rows], batch_headers.max_timestamps[batch_rows], timestamps)
    try:
        headers = read_headers(
            opened.data, fields.header_counts[rows], fields.header_positions[rows], fields.tails.ends[rows]
        )
    except Malformed as error:
        raise Malformed(first + error.row, error.reason) from None
    return Columns(
        data=opened.data,
        offsets=offsets[rows],
        timestamps=timestamps[rows],
        timestamp_types=batch_headers.timestamp_types[batch_rows[rows]],
        keys=fields.keys[rows],
        values=fields.values[rows],
        tails=fields.tails[rows],
        headers=headers,
    )
