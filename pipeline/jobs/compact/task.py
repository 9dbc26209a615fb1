"""The task of `compact`: it merges the records of one topic partition since the last run into the files of the table.

topic=orders/partition=3/bucket=0/5f0c6f7e....parquet       one file per bucket; the next run replaces it

Keys are spread over buckets by their hash. Only buckets with new records are written again, one after the other, so a
task holds the new records and one bucket in memory. The latest record of a key is the one with the highest offset; if
its value is null (a tombstone), the key is removed. Records without a key are left out and counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from klamm.pipeline.errors import PipelineError
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.table import DataFile, Location

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from klamm.pipeline.jobs.compact.source import Reader

PARTITION_BY: Final = ("topic", "partition", "bucket")
HELD_BYTES: Final = 256 * 1024 * 1024
"""The bytes of new records held before they are reduced to the latest of each key."""
SPREAD: Final = 0x9E3779B97F4A7C15
"""The factor of Fibonacci hashing: buckets must not follow the partitions, which come from the same hash."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings that all tasks of a job share."""

    reader: Reader
    location: Location
    buckets: int
    compression: str


@dataclass(frozen=True, slots=True)
class Work:
    """One topic partition. `files` are those of the table, `loaded` those to read if the source is a table."""

    wanted: OffsetRange
    files: tuple[DataFile, ...] = ()
    loaded: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a task. `records` were read, `without_key` of them left out."""

    wanted: OffsetRange
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    records: int
    size_bytes: int
    without_key: int


def compact_range(recipe: Recipe, work: Work) -> Compacted:
    """Merge the new records of a partition. Raises PipelineError; nothing is visible before the driver commits."""
    fresh, records, size_bytes, without_key = _fresh(recipe.reader.read(work))
    added: list[DataFile] = []
    removed: list[DataFile] = []
    for bucket, rows in _by_bucket(fresh, recipe.buckets):
        old = [file for file in work.files if dict(file.values)["bucket"] == str(bucket)]
        merged = _merged(recipe.location, old, rows)
        if merged is None:
            continue
        removed += old
        if merged.num_rows:
            added.append(_written(recipe, work.wanted, bucket, merged))
    return Compacted(work.wanted, tuple(added), tuple(removed), records, size_bytes, without_key)


def latest(rows: pa.Table) -> pa.Table:
    """Return the record of the highest offset of each key. Offsets are unique."""
    import pyarrow.compute as pc

    highest = rows.select(["key", "offset"]).group_by("key", use_threads=False).aggregate([("offset", "max")])
    found = rows.filter(pc.is_in(rows["offset"], value_set=highest["offset_max"].combine_chunks()))
    if found.num_rows != highest.num_rows:
        raise PipelineError("two records have the same offset, so the latest is unknown: verify the source")
    return found


def _fresh(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table | None, int, int, int]:
    held: list[Any] = []
    whole: pa.Table | None = None
    records = size_bytes = without_key = held_bytes = 0
    for batch in batches:
        records, size_bytes, held_bytes = records + len(batch), size_bytes + batch.nbytes, held_bytes + batch.nbytes
        nulls = batch["key"].null_count
        without_key += nulls
        held.append(batch.filter(batch["key"].is_valid()) if nulls else batch)
        if held_bytes >= HELD_BYTES:
            whole, held, held_bytes = _reduced(whole, held), [], 0
    if held:
        whole = _reduced(whole, held)
    return whole, records, size_bytes, without_key


def _reduced(whole: pa.Table | None, held: list[pa.RecordBatch]) -> pa.Table:
    import pyarrow as pa

    parts = [pa.Table.from_batches(held)] if whole is None else [whole, pa.Table.from_batches(held)]
    return latest(pa.concat_tables(parts))


def _by_bucket(rows: pa.Table | None, buckets: int) -> Iterable[tuple[int, pa.Table]]:
    import numpy as np
    import pyarrow as pa

    if rows is None or not rows.num_rows:
        return
    numbers = bucket_of(rows["key"].combine_chunks(), buckets)
    for bucket in np.unique(numbers).tolist():
        yield bucket, rows.filter(pa.array(numbers == bucket))


def bucket_of(keys: pa.Array, buckets: int) -> npt.NDArray[np.int64]:
    """Return the bucket of each key; keys are not null, binary or string."""
    import numpy as np
    import pyarrow as pa

    from klamm.pipeline.kafka.partitioner import partitions_of

    hashes = partitions_of(keys.cast(pa.binary()), 2**31).astype(np.uint64)
    return ((hashes * np.uint64(SPREAD)) >> np.uint64(33)).astype(np.int64) % buckets


def _merged(location: Location, old: list[DataFile], rows: pa.Table) -> pa.Table | None:
    """Return the new content of the bucket; None when it does not change."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    parts = []
    known = 0
    for file in old:
        with location.filesystem().open_input_file(file.path) as stream:
            before = pq.read_table(stream)
        stays = pc.invert(pc.is_in(before["key"], value_set=rows["key"].combine_chunks()))
        parts.append(before.filter(stays))
        known += before.num_rows - parts[-1].num_rows
    alive = rows.filter(rows["value"].is_valid())
    if not known and not alive.num_rows:
        return None
    return pa.concat_tables([*parts, alive], promote_options="default")


def _written(recipe: Recipe, wanted: OffsetRange, bucket: int, rows: pa.Table) -> DataFile:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = f"topic={wanted.topic}/partition={wanted.partition}/bucket={bucket}/{uuid.uuid4().hex}.parquet"
    with recipe.location.new_file(path) as stream:
        pq.write_table(rows, stream, compression=recipe.compression)
        size_bytes = stream.tell()
    offsets, times = (pc.min_max(column).as_py() for column in (rows["offset"], rows["timestamp"].cast(pa.int64())))
    return DataFile(
        path=path,
        size_bytes=size_bytes,
        values=(("topic", wanted.topic), ("partition", str(wanted.partition)), ("bucket", str(bucket))),
        partition=wanted.partition,
        records=rows.num_rows,
        first=offsets["min"],
        last=offsets["max"],
        first_us=times["min"],
        last_us=times["max"],
    )
