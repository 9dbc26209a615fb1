"""Topics read straight from log directories: Klamm's or Apache Kafka's, in use by a broker or copied.

    logs = LogDirs(["/var/lib/klamm/data"])
    for topic, partitions in logs.topics().items(): ...
    wanted = OffsetRange("flights", 0, logs.start_offset(partition), logs.end_offset(partition))
    for piece in logs.plan(wanted, piece_bytes=64 << 20):       # a piece may be pickled and read elsewhere
        for batch in read_piece(piece, headers=True): ...       # Arrow

The caller decides where a range ends. While a broker runs, use the end that the broker reports (its high watermark or
last stable offset, over the wire): everything below it is in the files. For a directory that no broker uses,
`end_offset` is the end of the last whole, valid batch (or the high watermark, after a clean shutdown), and for
read_committed the first offset of a transaction that is open there. `high_watermark` is the last checkpointed value,
which lags by up to a minute while a broker runs.

A piece is a range of offsets; its file and position only record where it was at the time of the plan. The files may be
rolled, deleted, compacted or moved to another log directory meanwhile. So the next offset is always looked up where it
is now, and nothing is skipped or read twice. Offsets that are no longer there are DataLoss. A batch that cannot be
decoded is a PoisonedBatch with topic, partition, offset, file and position.

The default is read_committed, which leaves out aborted records. A marker in the piece decides first. For a transaction
that ends after the piece, the transaction index (`.txnindex`) decides, or, if that has no entry, the batches that
follow.
"""

from klamm.pipeline.segments.directories import LogDirs
from klamm.pipeline.segments.pieces import PIECE_BYTES, Piece
from klamm.pipeline.segments.reading import read_columns, read_piece

__all__ = ["PIECE_BYTES", "LogDirs", "Piece", "read_columns", "read_piece"]
