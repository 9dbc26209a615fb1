"""Batches for the target from fetched batches: untouched where possible, encoded again otherwise.

A batch is sent untouched if its partition is kept and a producer could have sent it: magic 2, all its offsets there
(nothing compacted away), no log append time, no delete horizon, not larger than the target accepts, and entirely within
the range. Its CRC is checked; then the producer changes its header (`delivery.rewrite`).

Everything else is decoded and encoded again with its own codec: keys, values, headers and timestamps stay. That
includes the batches of log append time (their records get that time as their own) and all batches with records that go
to other partitions. Control batches and aborted transactions are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.pipeline.arrow import Contents
from klamm.pipeline.jobs.mirror.syncs import Run
from klamm.pipeline.kafka.delivery import UNFIT, Batch
from klamm.pipeline.kafka.encoding import BATCH_BYTES, encode_batches
from klamm.pipeline.kafka.fetcher import Fetched
from klamm.pipeline.kafka.partitioner import murmur2, of_hashes
from klamm.protocol.records.batch import ATTRIBUTES_POSITION
from klamm.protocol.records.columnar import BatchHeaders, Columns, DamagedBatch, columns
from klamm.protocol.records.columnar.aborts import Aborts
from klamm.protocol.records.columnar.batch_headers import Bools, Int64s
from klamm.protocol.records.compression import CODEC_MASK, Codec, codec_of
from klamm.protocol.records.crc import crc32c

MAGIC: Final = 2
GATHERED_BYTES: Final = 32 << 20
"""The bytes of record contents that are encoded at once."""


@dataclass(frozen=True, slots=True)
class Way:
    """The target of one source partition. `keep`: records go to the partition of the same number."""

    partition: int
    target_partitions: int
    keep: bool
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch for a partition of the target; `runs` are relative to the base offset that it will get."""

    partition: int
    data: Batch
    count: int
    runs: tuple[Run, ...]
    untouched: bool


def outgoing(fetched: Fetched, way: Way, end_offset: int) -> Iterator[Outgoing]:
    """Yield batches in order, for each partition of the target. Raises DamagedBatch."""
    batch_headers = fetched.batch_headers
    kept = Aborts(fetched.aborted).kept(fetched.data, batch_headers)
    kept &= (batch_headers.last_offsets >= fetched.offset) & (batch_headers.base_offsets < end_offset)
    whole = (
        kept & _whole(batch_headers, fetched.offset, end_offset, way)
        if way.keep
        else np.zeros(len(batch_headers), np.bool_)
    )
    for rows, untouched in _stretches(batch_headers, kept, whole):
        if untouched:
            yield from _untouched(fetched, batch_headers[rows], way)
        else:
            yield from _encoded(fetched, batch_headers[rows], way, end_offset)


def _whole(batch_headers: BatchHeaders, offset: int, end_offset: int, way: Way) -> Bools:
    whole: Bools = (
        (batch_headers.magics == MAGIC)
        & (batch_headers.attributes & UNFIT == 0)
        & (batch_headers.counts == batch_headers.last_offsets - batch_headers.base_offsets + 1)
        & (batch_headers.sizes <= way.max_message_bytes)
        & (batch_headers.base_offsets >= offset)
        & (batch_headers.last_offsets < end_offset)
    )
    return whole


def _stretches(batch_headers: BatchHeaders, kept: Bools, whole: Bools) -> Iterator[tuple[Bools, bool]]:
    """Yield adjacent rows that are treated alike: untouched, or encoded with one codec."""
    codecs = np.where(whole, -1, batch_headers.attributes & CODEC_MASK)
    rows = np.flatnonzero(kept)
    if not len(rows):
        return
    kinds = codecs[rows]
    for stretch in np.split(rows, np.flatnonzero(np.diff(kinds)) + 1):
        mask = np.zeros(len(kept), np.bool_)
        mask[stretch] = True
        yield mask, bool(whole[stretch[0]])


def _untouched(fetched: Fetched, batch_headers: BatchHeaders, way: Way) -> Iterator[Outgoing]:
    view = fetched.data.data
    for position, size, crc, base, count in zip(
        batch_headers.positions.tolist(),
        batch_headers.sizes.tolist(),
        batch_headers.crcs.tolist(),
        batch_headers.base_offsets.tolist(),
        batch_headers.counts.tolist(),
        strict=True,
    ):
        data = view[position : position + size]
        if crc32c(data[ATTRIBUTES_POSITION:]) != crc:
            raise DamagedBatch(base, position, "its CRC does not fit")
        yield Outgoing(way.partition, data, count, (Run(base, 0, count),), untouched=True)


def _encoded(fetched: Fetched, batch_headers: BatchHeaders, way: Way, end_offset: int) -> Iterator[Outgoing]:
    codec = codec_of(int(batch_headers.attributes[0]))
    gathered = _Gathered(way, codec)
    for part in columns(fetched.data, batch_headers, start_offset=fetched.offset, end_offset=end_offset):
        gathered.add(part)
        if gathered.size_bytes >= GATHERED_BYTES:
            yield from gathered.batches()
            gathered = _Gathered(way, codec)
    yield from gathered.batches()


@dataclass(frozen=True, slots=True)
class _Records:
    """Records for one partition, as Arrow and numpy arrays."""

    keys: Any
    values: Any
    tails: Any
    timestamps: Int64s
    offsets: Int64s

    def __getitem__(self, rows: slice) -> _Records:
        return _Records(self.keys[rows], self.values[rows], self.tails[rows], self.timestamps[rows], self.offsets[rows])


class _Gathered:
    """Records to encode, by target partition."""

    def __init__(self, way: Way, codec: Codec) -> None:
        self.size_bytes = 0
        self._way = way
        self._codec = codec
        self._parts: dict[int, list[_Records]] = {}

    def add(self, part: Columns) -> None:
        if self._way.keep:
            records = _taken(part, None)
            self._parts.setdefault(self._way.partition, []).append(records)
        else:
            order, bounds = _by_partition(part, self._way)
            records = _taken(part, order)
            for partition, rows in bounds:
                self._parts.setdefault(partition, []).append(records[rows])
        self.size_bytes += sum(array.nbytes for array in (records.keys, records.values, records.tails))

    def batches(self) -> Iterator[Outgoing]:
        batch_bytes = min(BATCH_BYTES, self._way.max_message_bytes)
        for partition, parts in sorted(self._parts.items()):
            offsets = np.concatenate([one.offsets for one in parts])
            for batch in encode_batches(
                pa.concat_arrays([one.keys for one in parts]),
                pa.concat_arrays([one.values for one in parts]),
                np.concatenate([one.timestamps for one in parts]),
                pa.concat_arrays([one.tails for one in parts]),
                codec=self._codec,
                batch_bytes=batch_bytes,
            ):
                rows = offsets[batch.first : batch.first + batch.count]
                yield Outgoing(
                    partition, batch.data, batch.count, _runs(rows) if self._way.keep else (), untouched=False
                )


def _taken(part: Columns, order: Int64s | None) -> _Records:
    """Copy the contents, in another order if one is given."""
    content = Contents(part)
    keys, values, tails = (content.binary(spans, order) for spans in (part.keys, part.values, part.tails))
    if order is None:
        return _Records(keys, values, tails, part.timestamps, part.offsets)
    return _Records(keys, values, tails, part.timestamps[order], part.offsets[order])


def _by_partition(part: Columns, way: Way) -> tuple[Int64s, list[tuple[int, slice]]]:
    """Return the rows ordered by partition, and the slice of each. Records without a key stay together."""
    hashes = murmur2(part.data, part.keys.starts, part.keys.ends)
    partitions = of_hashes(hashes, way.target_partitions)
    if part.keys.nulls is not None:
        partitions[part.keys.nulls] = way.partition % way.target_partitions
    order = np.argsort(partitions, kind="stable")
    found, starts = np.unique(partitions[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    bounds = zip(found.tolist(), map(slice, starts.tolist(), ends), strict=True)
    return order, list(bounds)


def _runs(offsets: Int64s) -> tuple[Run, ...]:
    """Return runs of consecutive offsets."""
    begins = np.concatenate(([0], np.flatnonzero(np.diff(offsets) != 1) + 1))
    counts = np.diff(begins, append=len(offsets))
    return tuple(map(Run, offsets[begins].tolist(), begins.tolist(), counts.tolist()))
