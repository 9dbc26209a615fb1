"""The merge of one topic partition, beside a dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.pipeline.errors import PipelineError
from klamm.pipeline.jobs.compact.task import Compacted, Recipe, Work, bucket_of, compact_range, latest
from klamm.pipeline.ranges import OffsetRange
from klamm.pipeline.table import DataFile, Location

Record = tuple[bytes | None, bytes | None]
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"", None])
RUNS = st.lists(st.lists(st.tuples(KEYS, st.sampled_from([b"1", b"2", b"", None])), max_size=8), max_size=5)


def batch(records: list[Record], first: int) -> pa.RecordBatch:
    offsets = range(first, first + len(records))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _ in records], pa.binary()),
            pa.array([value for _, value in records], pa.binary()),
            pa.array(list(offsets), pa.int64()),
            pa.array([offset * 1000 for offset in offsets], pa.timestamp("us", "UTC")),
        ],
        names=["key", "value", "offset", "timestamp"],
    )


@dataclass(frozen=True)
class Given:
    """A reader of the given records, two to a batch."""

    records: tuple[Record, ...]

    def read(self, work: Work) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self.records), 2):
            yield batch(list(self.records[at : at + 2]), work.wanted.start + at)


def run(path: Path, records: list[Record], first: int, files: list[DataFile], buckets: int = 2) -> Compacted:
    recipe = Recipe(Given(tuple(records)), Location.of(str(path)), buckets, "snappy")
    return compact_range(recipe, Work(OffsetRange("t", 0, first, first + len(records)), tuple(files)))


def read(path: Path, files: list[DataFile]) -> dict[bytes, tuple[bytes, int]]:
    rows = [row for file in files for row in pq.ParquetFile(path / file.path).read().to_pylist()]
    found = {row["key"]: (row["value"], row["offset"]) for row in rows}
    assert len(found) == len(rows)
    return found


@settings(max_examples=25)
@given(runs=RUNS, buckets=st.integers(1, 3))
def test_runs_are_a_dictionary(
    runs: list[list[Record]], buckets: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("compact")
    model: dict[bytes, tuple[bytes, int]] = {}
    files: list[DataFile] = []
    offset = 0
    for records in runs:
        result = run(path, records, offset, files, buckets)
        for index, (key, value) in enumerate(records):
            if key is not None:
                model.pop(key, None)
                if value is not None:
                    model[key] = (value, offset + index)
        assert (result.records, result.without_key) == (len(records), sum(key is None for key, _ in records))
        assert set(result.removed) <= set(files)
        files = [file for file in files if file not in result.removed] + list(result.added)
        offset += len(records)
        assert read(path, files) == model
        assert len({file.values for file in files}) == len(files) <= buckets


def test_a_bucket_without_anything_new_is_left_alone(tmp_path: Path) -> None:
    keys: list[Record] = [(b"%d" % number, b"v") for number in range(50)]
    files = list(run(tmp_path, keys, 0, []).added)
    assert len(files) == 2
    result = run(tmp_path, [(b"7", b"w")], 50, files)
    assert len(result.removed) == len(result.added) == 1
    result = run(tmp_path, [(b"none", None)], 51, files)
    assert not result.removed and not result.added
    assert dict(files[0].values) == {"topic": "t", "partition": "0", "bucket": "0"}
    assert (min(file.first for file in files), max(file.last for file in files)) == (0, 49)


def test_buckets_do_not_follow_partitions() -> None:
    from klamm.pipeline.kafka.partitioner import partitions_of

    keys = pa.array([b"%d" % number for number in range(8000)], pa.binary())
    mine = keys.filter(pa.array(partitions_of(keys, 8) == 3))
    counts = np.bincount(bucket_of(mine, 8), minlength=8)
    assert counts.min() > 90, counts


def test_two_records_of_one_offset_are_refused() -> None:
    rows = pa.Table.from_batches([batch([(b"a", b"1")], 5), batch([(b"a", b"2")], 5)])
    with pytest.raises(PipelineError, match="two records have the same offset"):
        latest(rows)
