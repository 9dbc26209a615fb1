"""Filter one batch during compaction. Pure: bytes in, bytes out.

A record stays when it is the last of its key. A tombstone (a record without value) must also go some day, but not
before every consumer has had `delete.retention.ms` to see it. The batch itself holds that deadline (KIP-534): the first
time a batch with tombstones is cleaned, it gets a delete horizon, now + `delete.retention.ms`, as its base timestamp,
marked by bit 6 of the attributes. Cleaned after the horizon, it loses its tombstones.

Offsets never change: a batch keeps its base offset, its last offset and its sequence numbers, whatever records are
removed in between. A batch without remaining records is dropped, with two exceptions that keep an empty header: the
last batch of an idempotent producer, or the producer's state would be lost; and the last batch that may be compacted. A
batch that keeps all its records stays byte for byte. Otherwise the records keep their bytes (timestamps stay relative
to the same base, except with a new horizon), compressed with the batch's own codec.

Records of aborted transactions are removed; those of committed ones are like any others. The marker of a transaction
without remaining records also gets a delete horizon, and goes after it (`cleaned_transactions.py`). A producer's last
marker stays when nothing else of the producer is left, for its epoch.

Messages of the formats 0 and 1 become batches of magic 2, with their codec and type of timestamp, even if all of them
stay; their tombstones get a horizon, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    encode_batch,
    payload,
    read_header,
    read_varint,
    seal,
    write_varint,
)
from klamm.protocol.records.batch import records as batch_records
from klamm.protocol.records.compression import compress
from klamm.storage.compaction.cleaned_transactions import CleanedTransactions
from klamm.storage.compaction.offset_map import OffsetMap

Slice = tuple[int, int, int, int, int, int, bytes | None, bool]
"""The place of a record in the records of its batch, and the fields that compaction needs.

Start, body (after the length), rest (after the timestamp delta), end, timestamp delta, offset delta, key, whether it
has a value. A plain tuple: making a named one takes as long as reading the record.
"""


@dataclass(frozen=True, slots=True)
class Rules:
    """The data that decides which records of a run stay."""

    offsets: OffsetMap
    now_ms: int
    delete_retention_ms: int
    last_offsets: Mapping[int, int]
    """The last offset of each live idempotent producer."""
    decompress_limit: int
    transactions: CleanedTransactions
    last_epochs: Mapping[int, int]
    """The epoch of each live producer that is known only by a marker."""
    first_uncleanable: int


def slices(data: bytes, count: int) -> Iterator[Slice]:
    """Yield the records in `data`. Raises InvalidRecord when they do not match the batch.

    Most varints have one byte: those are read in place, in the tightest loop.
    """
    start = 0
    available = len(data)
    try:
        for _ in range(count):
            byte = data[start]
            size, body = (byte >> 1 ^ -(byte & 1), start + 1) if byte < 0x80 else read_varint(data, start)
            end = body + size
            byte = data[body + 1]
            delta, rest = (byte >> 1 ^ -(byte & 1), body + 2) if byte < 0x80 else read_varint(data, body + 1, 70)
            byte = data[rest]
            offset_delta, at = (byte >> 1 ^ -(byte & 1), rest + 1) if byte < 0x80 else read_varint(data, rest)
            byte = data[at]
            key_size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
            key = None
            if key_size >= 0:
                key = data[at : at + key_size]
                at += key_size
            byte = data[at]
            value_size, at = (byte >> 1 ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
            if end > available or at + (max(0, value_size)) >= end:
                raise InvalidRecord("a record does not fit its length")
            yield start, body, rest, end, delta, offset_delta, key, value_size >= 0
            start = end
    except IndexError:
        raise InvalidRecord("a record is cut short") from None
    if start != available:
        raise InvalidRecord(f"{available - start} bytes after the last record")


def filter_batch(data: memoryview, header: BatchHeader, rules: Rules) -> memoryview | bytearray | None:
    """Return the batch as it is to be written, None to drop it. Raises InvalidRecord."""
    if header.magic < 2:
        return _converted(data, header, rules)
    if header.is_control:
        return _filter_control(data, header, rules)
    if rules.transactions.is_aborted(header):
        return _without_records(data, header) if _must_stay(header, rules) else None
    records = payload(data, header, rules.decompress_limit)
    horizon_ms = header.delete_horizon_ms
    kept = list(_kept(slices(records, header.record_count), header, rules, horizon_ms))
    if not kept:
        return _without_records(data, header) if _must_stay(header, rules) else None
    if horizon_ms is None and not all(has_value for *_, has_value in kept):
        return _rebuilt(records, header, kept, rules.now_ms + rules.delete_retention_ms)
    return data if len(kept) == header.record_count else _rebuilt(records, header, kept, None)


def _must_stay(header: BatchHeader, rules: Rules) -> bool:
    """Return whether at least the header of a batch must be kept."""
    if header.next_offset == rules.first_uncleanable:
        return True
    if not header.has_producer_id:
        return False
    last_offset = rules.last_offsets.get(header.producer_id)
    if last_offset is not None:
        return last_offset == header.last_offset
    return header.is_control and rules.last_epochs.get(header.producer_id) == header.producer_epoch


def _filter_control(data: memoryview, header: BatchHeader, rules: Rules) -> memoryview | bytearray | None:
    may_go = rules.transactions.is_empty_after(data, header)
    horizon_ms = header.delete_horizon_ms
    if header.record_count == 0 or (may_go and horizon_ms is not None and horizon_ms <= rules.now_ms):
        return _without_records(data, header) if _must_stay(header, rules) else None
    if may_go and horizon_ms is None:
        records = payload(data, header, rules.decompress_limit)
        kept = list(slices(records, header.record_count))
        return _rebuilt(records, header, kept, rules.now_ms + rules.delete_retention_ms)
    return data


def _converted(data: memoryview, header: BatchHeader, rules: Rules) -> bytearray | None:
    """Return the remaining records of a message or wrapper as a batch of magic 2 of only these, as in Kafka."""
    kept = [record for record in batch_records(data, header, rules.decompress_limit) if _stays(record, rules.offsets)]
    if not kept:
        return None
    batch = encode_batch(
        kept,
        codec=header.codec,
        base_offset=kept[0].offset,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
    )
    if all(record.value is not None for record in kept):
        return batch
    new = read_header(batch)
    records = payload(batch, new, rules.decompress_limit)
    return _rebuilt(records, new, list(slices(records, len(kept))), rules.now_ms + rules.delete_retention_ms)


def _stays(record: Record, offsets: OffsetMap) -> bool:
    return record.offset > offsets.latest or (record.key is not None and offsets.get(record.key) <= record.offset)


def _kept(found: Iterator[Slice], header: BatchHeader, rules: Rules, horizon_ms: int | None) -> Iterator[Slice]:
    keep_tombstones = horizon_ms is None or rules.now_ms < horizon_ms
    offsets, base_offset = rules.offsets, header.base_offset
    for record in found:
        _, _, _, _, _, offset_delta, key, has_value = record
        offset = base_offset + offset_delta
        # A record without key dates from before the topic was compacted; Kafka drops it, too.
        if offset > offsets.latest or (
            key is not None and offsets.get(key) <= offset and (has_value or keep_tombstones)
        ):
            yield record


def _without_records(data: memoryview, header: BatchHeader) -> memoryview | bytearray:
    if header.record_count == 0:
        return data
    attributes = header.attributes & (LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG)
    return _batch(header, attributes, NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _rebuilt(records: bytes, header: BatchHeader, kept: list[Slice], new_horizon_ms: int | None) -> bytearray:
    """Return a batch of the records `kept`, with a delete horizon if a new one is given."""
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if new_horizon_ms is None:
        body = b"".join([records[start:end] for start, _, _, end, *_ in kept])
    else:
        shift = base_timestamp - new_horizon_ms
        base_timestamp, attributes = new_horizon_ms, attributes | DELETE_HORIZON_FLAG
        body = b"".join([_shifted(records, record, shift) for record in kept])
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = header.base_timestamp + max(delta for _, _, _, _, delta, *_ in kept)
    packed = compress(header.codec, body) if header.is_compressed else body
    return _batch(header, attributes, base_timestamp, max_timestamp, len(kept), packed)


def _shifted(records: bytes, record: Slice, shift: int) -> bytes:
    _, start, rest, end, timestamp_delta, *_ = record
    body = bytearray(records[start : start + 1])  # attributes
    write_varint(body, timestamp_delta + shift)
    body += records[rest:end]
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)


def _batch(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, packed: bytes
) -> bytearray:
    batch = bytearray(HEADER_BYTES)
    batch += packed
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        len(batch) - LOG_OVERHEAD_BYTES,
        header.leader_epoch,
        2,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    seal(batch)
    return batch
