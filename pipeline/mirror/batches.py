"""What has been fetched becomes what is sent: whole batches untouched where possible, new ones of the rest.

A batch goes over as it is when its partition is kept and a producer could have sent it: magic 2, all its offsets there
(nothing compacted away), no log append time, no delete horizon, not larger than the target takes, and wholly within
the range. The producer then changes its head (`delivery.rewrite`), after the CRC that it came with has been checked.

Everything else is decoded and encoded again with the codec it had: keys, values, headers and timestamps stay. That
includes the batches of log append time, whose records get that time as their own, and all batches whose records go to
other partitions. Control batches and aborted transactions are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from klamm.pipeline.arrow import Contents
from klamm.pipeline.delivery import UNFIT, Batch
from klamm.pipeline.encoding import BATCH_BYTES, EncodedBatch, encode_batches
from klamm.pipeline.mirror.syncs import Run
from klamm.pipeline.partitioner import NO_KEY, partitions_of
from klamm.pipeline.wire import Fetched
from klamm.protocol.records.batch import ATTRIBUTES_POSITION
from klamm.protocol.records.columnar import Columns, DamagedBatch, Heads, columns
from klamm.protocol.records.columnar.aborts import Aborts
from klamm.protocol.records.columnar.heads import Bools, Int64s
from klamm.protocol.records.compression import CODEC_MASK, Codec, codec_of
from klamm.protocol.records.crc import crc32c

MAGIC: Final = 2
GATHERED_BYTES: Final = 32 << 20
"""Contents of records that are encoded at once."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where the records of one source partition go. `keep`: to the partition of the same number."""

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
    """In order, for each partition of the target. Raises DamagedBatch."""
    heads = fetched.heads
    kept = Aborts(fetched.aborted).kept(fetched.data, heads)
    kept &= (heads.last_offsets >= fetched.offset) & (heads.base_offsets < end_offset)
    whole = kept & _whole(heads, fetched.offset, end_offset, way) if way.keep else np.zeros(len(heads), np.bool_)
    for rows, untouched in _stretches(heads, kept, whole):
        if untouched:
            yield from _untouched(fetched, heads[rows], way)
        else:
            yield from _encoded(fetched, heads[rows], way, end_offset)


def _whole(heads: Heads, offset: int, end_offset: int, way: Way) -> Bools:
    whole: Bools = (
        (heads.magics == MAGIC)
        & (heads.attributes & UNFIT == 0)
        & (heads.counts == heads.last_offsets - heads.base_offsets + 1)
        & (heads.sizes <= way.max_message_bytes)
        & (heads.base_offsets >= offset)
        & (heads.last_offsets < end_offset)
    )
    return whole


def _stretches(heads: Heads, kept: Bools, whole: Bools) -> Iterator[tuple[Bools, bool]]:
    """Rows next to each other that are treated alike: untouched, or encoded with one codec."""
    codecs = np.where(whole, -1, heads.attributes & CODEC_MASK)
    rows = np.flatnonzero(kept)
    if not len(rows):
        return
    kinds = codecs[rows]
    for stretch in np.split(rows, np.flatnonzero(np.diff(kinds)) + 1):
        mask = np.zeros(len(kept), np.bool_)
        mask[stretch] = True
        yield mask, bool(whole[stretch[0]])


def _untouched(fetched: Fetched, heads: Heads, way: Way) -> Iterator[Outgoing]:
    view = fetched.data.data
    for position, size, crc, base, count in zip(
        heads.positions.tolist(),
        heads.sizes.tolist(),
        heads.crcs.tolist(),
        heads.base_offsets.tolist(),
        heads.counts.tolist(),
        strict=True,
    ):
        data = view[position : position + size]
        if crc32c(data[ATTRIBUTES_POSITION:]) != crc:
            raise DamagedBatch(base, position, "its CRC does not fit")
        yield Outgoing(way.partition, data, count, (Run(base, 0, count),), untouched=True)


def _encoded(fetched: Fetched, heads: Heads, way: Way, end_offset: int) -> Iterator[Outgoing]:
    codec = codec_of(int(heads.attributes[0]))
    gathered = _Gathered()
    for part in columns(fetched.data, heads, start_offset=fetched.offset, end_offset=end_offset):
        gathered.add(part)
        if gathered.size_bytes >= GATHERED_BYTES:
            yield from gathered.batches(way, codec)
            gathered = _Gathered()
    yield from gathered.batches(way, codec)


class _Gathered:
    """Records as Arrow arrays, to be encoded."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._parts: list[tuple[Any, Any, Any]] = []
        self._timestamps: list[Int64s] = []
        self._offsets: list[Int64s] = []

    def add(self, part: Columns) -> None:
        content = Contents(part)
        arrays = content.binary(part.keys), content.binary(part.values), content.binary(part.tails)
        self._parts.append(arrays)
        self._timestamps.append(part.timestamps)
        self._offsets.append(part.offsets)
        self.size_bytes += sum(array.nbytes for array in arrays)

    def batches(self, way: Way, codec: Codec) -> Iterator[Outgoing]:
        if not self._parts:
            return
        keys, values, tails = (pa.concat_arrays(arrays) for arrays in zip(*self._parts, strict=True))
        timestamps, offsets = np.concatenate(self._timestamps), np.concatenate(self._offsets)
        batch_bytes = min(BATCH_BYTES, way.max_message_bytes)
        if way.keep:
            for batch in encode_batches(keys, values, timestamps, tails, codec=codec, batch_bytes=batch_bytes):
                yield _as_outgoing(way.partition, batch, _runs(offsets[batch.first : batch.first + batch.count]))
            return
        for partition, rows in _by_partition(keys, way):
            chosen = pa.array(rows)
            for batch in encode_batches(
                keys.take(chosen),
                values.take(chosen),
                timestamps[rows],
                tails.take(chosen),
                codec=codec,
                batch_bytes=batch_bytes,
            ):
                yield _as_outgoing(partition, batch, ())


def _by_partition(keys: Any, way: Way) -> Iterator[tuple[int, Int64s]]:
    """The rows for each partition, in order. Records without a key stay together."""
    partitions = partitions_of(keys, way.target_partitions)
    partitions[partitions == NO_KEY] = way.partition % way.target_partitions
    order = np.argsort(partitions, kind="stable")
    counts = np.bincount(partitions, minlength=way.target_partitions)
    for partition, rows in enumerate(np.split(order, np.cumsum(counts)[:-1])):
        if len(rows):
            yield partition, rows


def _runs(offsets: Int64s) -> tuple[Run, ...]:
    """Offsets that follow each other become ones that follow each other."""
    begins = np.concatenate(([0], np.flatnonzero(np.diff(offsets) != 1) + 1))
    counts = np.diff(begins, append=len(offsets))
    return tuple(map(Run, offsets[begins].tolist(), begins.tolist(), counts.tolist()))


def _as_outgoing(partition: int, batch: EncodedBatch, runs: tuple[Run, ...]) -> Outgoing:
    return Outgoing(partition, batch.data, batch.count, runs, untouched=False)
