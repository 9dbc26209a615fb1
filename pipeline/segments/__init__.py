"""Topics straight from log directories: Klamm's or Apache Kafka's, in use by a broker or copied.

    logs = LogDirs(["/var/lib/klamm/data"])
    for topic, partitions in logs.topics().items(): ...
    wanted = OffsetRange("flights", 0, logs.start_offset(partition), logs.end_offset(partition))
    for piece in logs.plan(wanted, piece_bytes=64 << 20):       # a piece may be pickled and read elsewhere
        for batch in read_piece(piece, headers=True): ...       # Arrow

Where a range ends is the caller's to say. While a broker runs, the end is what the broker tells (its high watermark or
last stable offset, over the wire): everything below is in the files. Of a directory that no broker uses, `end_offset`
is the end of the last whole, valid batch (or the high watermark, if the broker was shut down in good order), and for
read_committed the first offset of a transaction that is open there. `high_watermark` is what was last checkpointed,
which lags behind by up to a minute while a broker runs.

A piece is a range of offsets; file and position are only where it was when it was planned. Whatever happens to the
files meanwhile (rolled, deleted, compacted, moved to another log directory), the next offset is looked up again where
it is now, so nothing is skipped or read twice. What cannot be found any more is DataLoss; a batch that cannot be
decoded is a PoisonedBatch with topic, partition, offset, file and position.

read_committed, unless told otherwise, leaves out what was aborted. Markers tell, those in the piece first; for a
transaction that ends behind it the transaction index (`.txnindex`), or where that has nothing the batches that follow.
"""

from klamm.pipeline.segments.directories import LogDirs
from klamm.pipeline.segments.pieces import PIECE_BYTES, Piece
from klamm.pipeline.segments.reading import read_columns, read_piece

__all__ = ["PIECE_BYTES", "LogDirs", "Piece", "read_columns", "read_piece"]
