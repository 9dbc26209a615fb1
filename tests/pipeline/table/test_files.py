"""Rows become files by date, with statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from klamm.pipeline.table import FilesWriter, Location
from klamm.pipeline.table.files import OPEN_FILES
from tests.pipeline.table.samples import DAY_MS, START_MS, rows


def writer(tmp_path: Path, **options: int) -> FilesWriter:
    return FilesWriter(Location.of(str(tmp_path)), "orders", 3, **options)  # type: ignore[arg-type]


def test_a_file_per_date_with_correct_statistics(tmp_path: Path) -> None:
    out = writer(tmp_path)
    out.write(rows(range(10, 14), times_ms=[START_MS, START_MS + DAY_MS, START_MS + 1, -1]))
    out.write(rows(range(14, 15), times_ms=[START_MS + 2]))
    files = out.close()
    assert [(dict(file.values)["date"], file.records, file.first, file.last) for file in files] == [
        ("2024-10-04", 3, 10, 14),
        ("2024-10-05", 1, 11, 11),
        ("1969-12-31", 1, 13, 13),
    ]
    first = files[0].add(now_ms=7)
    assert isinstance(first, AddAction) and first.partition_values == {"topic": "orders", "date": "2024-10-04"}
    assert json.loads(first.stats) == {
        "numRecords": 3,
        "minValues": {"partition": 3, "offset": 10, "timestamp": "2024-10-04T00:00:00.000Z"},
        "maxValues": {"partition": 3, "offset": 14, "timestamp": "2024-10-04T00:00:00.002Z"},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }
    assert pq.read_table(tmp_path / files[0].path)["offset"].to_pylist() == [10, 12, 14]
    assert (tmp_path / files[0].path).stat().st_size == files[0].size_bytes


def test_as_many_files_as_needed_are_open_and_no_more(tmp_path: Path) -> None:
    out = writer(tmp_path)
    days = np.random.default_rng(7).integers(0, 3 * OPEN_FILES, 200).tolist()
    for at in range(0, 200, 20):
        out.write(rows(range(at, at + 20), times_ms=[START_MS + day * DAY_MS for day in days[at : at + 20]]))
        assert len(out._open) <= OPEN_FILES
    read = [offset for file in out.close() for offset in pq.read_table(tmp_path / file.path)["offset"].to_pylist()]
    assert sorted(read) == list(range(200))


def test_a_file_ends_at_its_size(tmp_path: Path) -> None:
    out = writer(tmp_path, target_bytes=1)
    for at in range(3):
        out.write(rows(range(at, at + 1)))
    assert [(file.first, file.records) for file in out.close()] == [(0, 1), (1, 1), (2, 1)]
