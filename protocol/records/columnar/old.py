"""Convert entries of magic 0 and 1, one by one, to batches of magic 2."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from klamm.protocol.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from klamm.protocol.records.batch import Record, encode_batch
from klamm.protocol.records.columnar.batch_headers import BatchHeaders, Bytes, DamagedBatch, padded, scan
from klamm.protocol.records.message_set import records as old_records

BATCH_RECORDS: Final = 1000
MAX_DELTA: Final = 2**31 - 1


def converted(data: Bytes, batch_headers: BatchHeaders, limit: int) -> tuple[Bytes, BatchHeaders]:
    """Return a new buffer with the same records in batches, which keep the timestamp types. Raises DamagedBatch."""
    batches: list[bytearray] = []
    types: list[int] = []
    for kind, rows in groupby(range(len(batch_headers)), lambda row: int(batch_headers.timestamp_types[row])):
        records = [record for row in rows for record in _records(data, batch_headers, row, limit)]
        while records:
            end = records[0].offset + MAX_DELTA
            count = sum(1 for record in records[:BATCH_RECORDS] if record.offset <= end)
            batches.append(encode_batch(records[:count], base_offset=records[0].offset))
            types.append(kind)
            del records[:count]
    joined = b"".join(batches)
    new = padded(len(joined))
    new[: len(joined)] = np.frombuffer(joined, np.uint8)
    return new, replace(scan(new, len(joined)), timestamp_types=np.array(types, np.int64))


def _records(data: Bytes, batch_headers: BatchHeaders, row: int, limit: int) -> list[Record]:
    position = int(batch_headers.positions[row])
    try:
        records = list(old_records(data.data[position : position + int(batch_headers.sizes[row])], limit))
    except (CorruptMessage, InvalidRecord, UnsupportedCompressionType) as error:
        raise DamagedBatch(int(batch_headers.base_offsets[row]), position, error.message) from None
    offsets = [record.offset for record in records]
    before = int(batch_headers.last_offsets[row - 1]) if row else -1
    if (
        not offsets
        or offsets[0] <= before
        or offsets[-1] != batch_headers.last_offsets[row]
        or offsets != sorted(set(offsets))
    ):
        raise DamagedBatch(
            int(batch_headers.base_offsets[row]), position, f"its offsets, {offsets[:3]}..., do not ascend to it"
        )
    return records
