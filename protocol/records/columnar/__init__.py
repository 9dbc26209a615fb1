"""Record batches as columns: the vectorised decoder. It needs numpy, so the broker does not import it at its start.
    data = padded(size)                    # then read `size` bytes of a log, or of a fetch, into it
        heads = scan(data, size)               # the positions of the whole batches, and their headers as columns
    for part in columns(data, heads, start_offset=lo, end_offset=hi, aborted=[(producer_id, first_offset)]):
        part.offsets, part.timestamps, part.keys.starts, part.values.ends, ...      # positions in `part.data`

- All batches advance in lockstep, record after record, so numpy works on as many records at once as there are batches.
  The last few long batches are walked in plain Python. Then all fields of some thousand records are read at once.
- A batch is checked: its CRC, that its records fill it and their parts fill them, that offsets ascend within it and
  from batch to batch. A violation raises DamagedBatch with the base offset and the position; no length, however wrong,
  reads outside the buffer or skips a record silently. (The CRC does not cover the base offset.)
- Control batches are left out, and so are the batches of the given aborted transactions, by the rule of Kafka's
  consumer: from the first offset of the transaction up to the abort marker of its producer. `aborted` must hold exactly
  the transactions with a marker at or above `start_offset`, as a fetch from there returns them.
- Gaps (compaction, markers) are no error. Null and empty differ. Batches of magic 0 and 1 are converted, slowly.

The buffer must not change while columns are in use. Only compressed (or old) data is copied.
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
