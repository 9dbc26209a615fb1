"""Control batches, which only the broker writes: here the markers that end transactions.

An end transaction marker is a batch with the control and the transactional flag, the producer id and epoch of the
transaction, no sequence, no codec, and one record:
    key    int16 version = 0, int16 type     0 ABORT, 1 COMMIT (2 to 6 are KRaft's own)
    value  int16 version = 0, int32 epoch of the coordinator that decided
Sources: KIP-98, `EndTxnMarker.json`. Newer versions are read as far as they are known. A control batch that lost its
record to compaction has no meaning any more.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import HEADER_BYTES, BatchHeader, Record, encode_batch, read_record
from klamm.protocol.records.crc import BytesLike

CONTROL_KEY = Struct(">hh")  # version, type
END_MARKER_VALUE = Struct(">hi")  # version, coordinator epoch
VERSION = 0
ABORT = 0
COMMIT = 1


class EndMarker(NamedTuple):
    """The end of a transaction."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int


def end_marker_batch(
    producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Return the control batch that ends a transaction, to be stamped with its place in the log."""
    key = CONTROL_KEY.pack(VERSION, COMMIT if is_commit else ABORT)
    value = END_MARKER_VALUE.pack(VERSION, coordinator_epoch)
    return encode_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_marker(batch: BytesLike, header: BatchHeader, pos: int = 0) -> EndMarker | None:
    """Return the marker in a control batch; None when it has another control record, or none. Raises InvalidRecord."""
    if header.record_count == 0:
        return None
    try:
        data = bytes(memoryview(batch)[pos + HEADER_BYTES : pos + header.size_bytes])
        delta, _, key, value, _, _ = read_record(data, 0)
    except IndexError:
        raise InvalidRecord("a control record is cut short") from None
    if key is None or len(key) < CONTROL_KEY.size:
        raise InvalidRecord("a control record without type")
    version, kind = CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record of version {version}")
    if kind not in (ABORT, COMMIT):
        return None
    if value is None or len(value) < END_MARKER_VALUE.size:
        raise InvalidRecord("an end transaction marker without coordinator epoch")
    _, coordinator_epoch = END_MARKER_VALUE.unpack_from(value)
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + delta
    return EndMarker(kind == COMMIT, coordinator_epoch, timestamp)
