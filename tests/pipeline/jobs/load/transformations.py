"""What `--transform` may name: two that are good, three that are not."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("size", pc.binary_length(rows["value"]))


def tripled(rows: pa.RecordBatch) -> pa.RecordBatch:
    size = pc.multiply(pc.binary_length(rows["value"]), pa.scalar(3, pa.int32()))
    return rows.append_column("size", size)


def shifted(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.set_column(rows.schema.names.index("offset"), "offset", pc.add(rows["offset"], 1))


def halved(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.slice(0, len(rows) // 2)


def failing(rows: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("no\nluck")
