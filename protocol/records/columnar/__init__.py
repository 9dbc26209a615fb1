"""Record batches as columns: the vectorised decoder. Needs numpy, so nothing of the broker imports it at its start.

    data = padded(size)                    # then read `size` bytes of a log, or of a fetch, into it
    heads = scan(data, size)               # where the whole batches are, and their headers as columns
    for part in columns(data, heads, start_offset=lo, end_offset=hi, aborted=[(producer_id, first_offset)]):
        part.offsets, part.timestamps, part.keys.starts, part.values.ends, ...      # positions in `part.data`

- Every batch advances in lockstep, record after record, so numpy works on as many records at once as there are batches;
  the last few long batches are walked in plain Python. Then all fields of some thousand records are read at once.
- A batch is checked: its CRC, that its records fill it and their parts fill them, that offsets ascend within it and
  from batch to batch. What does not fit raises DamagedBatch with the base offset and the position; no length, however
  wrong, reads outside the buffer or skips a record silently. (The base offset is not covered by the CRC.)
- Control batches are left out, and the batches of the aborted transactions that are given, by the rule of Kafka's
  consumer: from the first offset of the transaction up to the abort marker of its producer. `aborted` must hold those
  whose marker is at or above `start_offset`, as a fetch from there gives them, and no others.
- Gaps (compaction, markers) are no error. Null and empty differ. Batches of magic 0 and 1 are converted, slowly.

The buffer must stay as it is while columns are in use. Nothing is copied but what is compressed (or old).
"""

from klamm.protocol.records.columnar.batch_headers import PADDING_BYTES, BatchHeaders, DamagedBatch, padded, scan
from klamm.protocol.records.columnar.decode import (
    CHUNK_RECORDS,
    Columns,
    columns,
)
from klamm.protocol.records.columnar.fields import Headers, Spans

__all__ = [
    "CHUNK_RECORDS",
    "PADDING_BYTES",
    "BatchHeaders",
    "Columns",
    "DamagedBatch",
    "Headers",
    "Spans",
    "columns",
    "padded",
    "scan",
]
