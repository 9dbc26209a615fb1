"""Check the records of a produced batch without making objects of them.

This is the only step of an append with a cost per record, so it exists twice. `portable_check_records` is the
reference, one pass with one- and two-byte varints unrolled; `_check.c` does the same fifty times faster. `make` and
wheels compile it; where it is missing, the portable one takes its place. Tests compare the results and errors of both.
A small, ordinary batch is checked by one compiled call, `plain_batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import read_varint
from klamm.protocol.records.crc import BytesLike


def portable_check_records(data: BytesLike, count: int) -> tuple[int, int, int, bool]:
    """Check `count` > 0 records, which must fill `data` and have the offset deltas 0, 1, 2, ...

    Return the lowest and the highest timestamp delta, the index of the first record with the highest, and whether any
    key is null. Raises InvalidRecord. No length is negative, so positions only grow: one comparison at the end of a
    record finds any part that was too long, and a read beyond the data raises IndexError.
    """
    data = bytes(data)
    pos = lowest = highest = highest_index = 0
    last_raw = -1
    null_key = False
    try:
        for index in range(count):
            # size
            raw = data[pos]
            pos += 1
            if raw > 0x7F:
                byte = data[pos]
                pos += 1
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                else:
                    raw, pos = _raw_varint(data, pos - 2)
            if raw & 1:
                raise InvalidRecord(f"record {index} has a negative size")
            end = pos + (raw >> 1)
            # attributes, which have no meaning yet; timestamp delta
            raw = data[pos + 1]
            pos += 2
            if raw > 0x7F:
                byte = data[pos]
                pos += 1
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                else:
                    raw, pos = _raw_varint(data, pos - 2, 70)
            if raw != last_raw:
                last_raw = raw
                delta = (raw >> 1) ^ -(raw & 1)
                if not index:
                    lowest = highest = delta
                elif delta > highest:
                    highest = delta
                    highest_index = index
                elif delta < lowest:
                    lowest = delta
            # offset delta
            raw = data[pos]
            pos += 1
            if raw > 0x7F:
                byte = data[pos]
                pos += 1
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                else:
                    raw, pos = _raw_varint(data, pos - 2)
            if raw != index << 1:
                raise InvalidRecord(f"record {index} has offset delta {(raw >> 1) ^ -(raw & 1)}")
            # key
            raw = data[pos]
            pos += 1
            if raw > 0x7F:
                byte = data[pos]
                pos += 1
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                else:
                    raw, pos = _raw_varint(data, pos - 2)
            if not raw & 1:
                pos += raw >> 1
            elif raw == 1:
                null_key = True
            else:
                raise InvalidRecord(f"record {index} has a key of negative size")
            # value
            raw = data[pos]
            pos += 1
            if raw > 0x7F:
                byte = data[pos]
                pos += 1
                if byte < 0x80:
                    raw += (byte << 7) - 0x80
                else:
                    raw, pos = _raw_varint(data, pos - 2)
            if not raw & 1:
                pos += raw >> 1
            elif raw != 1:
                raise InvalidRecord(f"record {index} has a value of negative size")
            # headers
            if data[pos]:
                pos = _skip_headers(data, pos, end, index)
            else:
                pos += 1
            if pos != end:
                raise InvalidRecord(f"record {index} does not fill its size")
    except IndexError:
        raise InvalidRecord(f"the batch ends within record {index}") from None
    if pos != len(data):
        raise InvalidRecord(f"{len(data) - pos} bytes after the last of {count} records")
    return lowest, highest, highest_index, null_key


def _raw_varint(data: bytes, pos: int, bits: int = 35) -> tuple[int, int]:
    value, pos = read_varint(data, pos, bits)
    return (value << 1) ^ (value >> 63), pos


def _skip_headers(data: bytes, pos: int, end: int, index: int) -> int:
    count, pos = read_varint(data, pos)
    if count < 0 or count > end - pos:
        raise InvalidRecord(f"record {index} has {count} headers in {end - pos} bytes")
    for _ in range(count):
        size, pos = read_varint(data, pos)
        if size < 0:
            raise InvalidRecord(f"record {index} has a header without a key")
        pos += size
        size, pos = read_varint(data, pos)
        if size < -1:
            raise InvalidRecord(f"record {index} has a header value of size {size}")
        if size > 0:
            pos += size
    return pos


check_records: Callable[[BytesLike, int], tuple[int, int, int, bool]]
"""`portable_check_records`, or its compiled equivalent."""

try:
    from klamm.protocol.records._check import check_records as _compiled
except ImportError:
    check_records = portable_check_records
else:
    check_records = _compiled

PlainBatch: TypeAlias = "tuple[int, int, int, int, bool, int, int, int]"
"""Last offset delta, record count, lowest and highest timestamp, whether a key is null, producer id, producer epoch,
base sequence."""

plain_batch: Callable[[memoryview], PlainBatch | None]
"""The fields of a small, ordinary batch: writable, whole, no attributes set, with valid header, CRC and records.

None for any other batch, and always where it is not compiled: nothing depends on it."""

try:
    from klamm.protocol.records._check import plain_batch as _compiled_plain_batch
except ImportError:

    def plain_batch(batch: memoryview) -> PlainBatch | None:
        return None

else:
    plain_batch = _compiled_plain_batch

IS_COMPILED = check_records is not portable_check_records
