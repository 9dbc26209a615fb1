"""Decide whether a batch may enter a log: the only place that does.

Only a single batch of magic 2 with right CRC, counts, offsets, timestamps and records may enter, so that no batch stops
the consumers of its partition. Message sets of old producers are converted to such a batch here. The rules are those of
Kafka's ProduceRequest, UnifiedLog and LogValidator, in their order, with these differences:

- An unknown codec is UNSUPPORTED_COMPRESSION_TYPE and compressed junk INVALID_RECORD, not UNKNOWN_SERVER_ERROR; bytes
  after a compressed stream are junk, too.
- Offset deltas inside the batch must be 0, 1, 2, ...; Kafka takes any. Consumers compute offsets from them.
- A null key or value has size -1; Kafka takes any negative size for null, and ignores the excess bits of a varint.
- Inside a compressed batch, too, a record must fill its size; Kafka finds out only when a consumer reads it.
- Null or empty records are INVALID_RECORD in every Produce version.
- Bytes after the batch are dropped whatever they are; Kafka does so only when their length field exceeds them.
- A producer id needs an epoch of 0 or more, a transactional batch a producer id.
- A batch that claims LogAppendTime in a CreateTime topic is stored as CreateTime, as in Kafka, but the timestamps that
  are checked are those in the records, because readers will see those.

Batches that take long for their size (they inflate to megabytes, or their records must be checked one by one) raise
`NotAtOnce` if the caller asks for that; it then validates them in a thread.

One file, because the rules hold in one order: a reader who asks why a batch was refused reads them as one list.

The caller's memory is changed in place where Kafka changes the batch: timestamp type, max timestamp and CRC.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NoReturn

from klamm.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CONTROL_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    MIN_MESSAGE_BYTES,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    encode_batch,
    read_record,
    seal,
)
from klamm.protocol.records.check import check_records, plain_batch
from klamm.protocol.records.compression import CODEC_MASK, Codec, TooLargeInflated, codec_of, compress, decompress
from klamm.protocol.records.control import EndMarker, end_marker_batch
from klamm.protocol.records.crc import BytesLike, crc32c

TARGET_CODECS: dict[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The values of the topic config `compression.type`; None keeps the producer's codec."""

_ZSTD = int(Codec.ZSTD)  # the enumeration lookup would cost more than the comparison
_make = object.__new__
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_INT64_MAX = 2**63 - 1

AT_ONCE_BYTES = 2 << 20  # of decompressed records
AT_ONCE_SET_BYTES = 64 << 10  # of messages of the old formats, which become records one by one
AT_ONCE_RECORDS = 1000  # checked one by one


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The rules of a topic; made once per change of its config, not per append."""

    max_message_bytes: int = 1048588
    segment_bytes: int = 1073741824
    log_append_time: bool = False
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    compression: str = "producer"
    compression_level: int | None = None
    compacted: bool = False
    max_decompressed_bytes: int = 104857600
    keeps_plain: bool = field(init=False)
    """Whether an uncompressed batch with CreateTime is stored as it is."""

    def __post_init__(self) -> None:
        assert self.compression in TARGET_CODECS, self.compression
        keeps_plain = not self.log_append_time and not TARGET_CODECS[self.compression]
        object.__setattr__(self, "keeps_plain", keeps_plain)


@dataclass(slots=True)
class ValidBatch:
    """One batch that may enter, in `data`: writable, and the caller's own memory unless it was rebuilt."""

    data: memoryview | bytearray
    last_offset_delta: int
    record_count: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    log_append_time_ms: int
    """-1 for CreateTime."""
    size_bytes: int


class NotOneBatch(InvalidRecord):
    """INVALID_RECORD for a request that does not hold exactly one whole batch of magic 2."""


class NotAtOnce(Exception):
    """The batch takes too long to be validated on a loop that others wait for; it may be valid or not."""


def validate(
    records: memoryview | None,
    rules: AppendRules,
    *,
    produce_version: int,
    now_ms: int,
    client: bool = True,
    at_once: bool = False,
) -> ValidBatch:
    """Return the batch in the records field of a Produce request for one partition, ready to be appended.

    `client=False` is for batches that the broker makes itself: they may be control batches and have any base offset.
    Raises CorruptMessage, InvalidRecord, InvalidTimestamp (the latter two with `record_errors`), MessageTooLarge,
    RecordListTooLarge or UnsupportedCompressionType; with `at_once` NotAtOnce, and then nothing has been changed.
    """
    if not records:
        raise NotOneBatch("a produce request must have a record batch for each partition")
    size = len(records)
    if rules.keeps_plain and (batch := _plain(records, rules, now_ms)) is not None:
        return batch
    if size < HEADER_BYTES or records[MAGIC_POSITION] != 2:
        if _first_magic(records) < 2 and produce_version < 3:
            return _validate_message_set(records, rules, now_ms, at_once=at_once)
        _refuse_head(records, produce_version)
    (
        base_offset,
        length,
        _,
        _,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = HEADER.unpack_from(records)
    if length + LOG_OVERHEAD_BYTES != size:
        records = _cut_to_one_batch(records)
        size = len(records)
    codec = attributes & CODEC_MASK
    if codec == _ZSTD and produce_version < 7:
        raise UnsupportedCompressionType(f"zstd in Produce v{produce_version}, 7 is the first that allows it")
    if base_offset and client:
        raise InvalidRecord(f"base offset of a produced batch is {base_offset}, expected 0")
    if size > rules.max_message_bytes:
        raise MessageTooLarge(f"batch of {size} bytes, max.message.bytes is {rules.max_message_bytes}")
    if at_once and size > AT_ONCE_BYTES:
        raise NotAtOnce
    if crc32c(records[ATTRIBUTES_POSITION:]) != crc:
        raise CorruptMessage(f"CRC of the batch does not match: stored {crc:#010x}")
    if last_delta + 1 != count or count <= 0:
        raise InvalidRecord(f"batch has {count} records and a last offset delta of {last_delta}")
    if client and (producer_id > NO_PRODUCER_ID or attributes & (CONTROL_FLAG | TRANSACTIONAL_FLAG)):
        _check_producer(attributes, producer_id, producer_epoch, base_sequence)

    body: BytesLike = records[HEADER_BYTES:]
    if codec:
        body = _inflate(codec_of(codec), body, rules.max_decompressed_bytes, at_once=at_once)
    lowest, highest, _, null_key = check_records(body, count)
    if null_key and rules.compacted and client:
        _check_each_record(body, count, base_timestamp, rules, now_ms, at_once=at_once)
    if rules.log_append_time:
        if attributes & LOG_APPEND_TIME_FLAG and client:
            if at_once and count > AT_ONCE_RECORDS:
                raise NotAtOnce
            _refuse_append_time(count)
        new_attributes = attributes | LOG_APPEND_TIME_FLAG
        new_max_timestamp = append_time = now_ms
    else:
        new_attributes = attributes & ~LOG_APPEND_TIME_FLAG
        append_time = NO_TIMESTAMP
        new_max_timestamp = base_timestamp + highest
        if (
            new_max_timestamp - now_ms > rules.timestamp_after_max_ms
            or now_ms - base_timestamp - lowest > rules.timestamp_before_max_ms
            or new_max_timestamp > _INT64_MAX
        ):
            _check_each_record(body, count, base_timestamp, rules, now_ms, at_once=at_once)
        if new_max_timestamp <= NO_TIMESTAMP:
            new_max_timestamp = NO_TIMESTAMP

    data: memoryview | bytearray = records
    target = TARGET_CODECS[rules.compression]
    if target is not None and target != codec and not attributes & CONTROL_FLAG:
        data = _rebuild(records, body, target, rules)
        size = len(data)
        codec = target
        new_attributes = new_attributes & ~CODEC_MASK | target
    elif records.readonly:
        data = bytearray(records)
    if size > rules.segment_bytes:
        raise RecordListTooLarge(f"batch of {size} bytes, segment.bytes is {rules.segment_bytes}")
    if new_max_timestamp != max_timestamp or new_attributes != attributes:
        _ATTRIBUTES.pack_into(data, ATTRIBUTES_POSITION, new_attributes)
        _MAX_TIMESTAMP.pack_into(data, MAX_TIMESTAMP_POSITION, new_max_timestamp)
        seal(data)
    return ValidBatch(
        data,
        last_delta,
        count,
        new_max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        attributes & TRANSACTIONAL_FLAG != 0,
        append_time,
        size,
    )


def _inflate(codec: Codec, body: BytesLike, limit: int, *, at_once: bool) -> bytes:
    if not at_once or limit <= AT_ONCE_BYTES:
        return decompress(codec, body, limit)
    try:
        return decompress(codec, body, AT_ONCE_BYTES)
    except TooLargeInflated:
        raise NotAtOnce from None


def _plain(records: memoryview, rules: AppendRules, now_ms: int) -> ValidBatch | None:
    """Return a batch that is stored as it is (`plain_batch`), by the fast path. None for any other."""
    plain = plain_batch(records)
    if plain is None:
        return None
    last_delta, count, earliest, latest, null_key, producer_id, producer_epoch, base_sequence = plain
    size = len(records)
    if (
        size > rules.max_message_bytes
        or size > rules.segment_bytes
        or latest - now_ms > rules.timestamp_after_max_ms
        or now_ms - earliest > rules.timestamp_before_max_ms
        or (null_key and rules.compacted)
    ):
        return None
    batch = _make(ValidBatch)  # as `ValidBatch(...)` does, in a third of the time
    batch.data = records
    batch.last_offset_delta = last_delta
    batch.record_count = count
    batch.max_timestamp = latest
    batch.producer_id = producer_id
    batch.producer_epoch = producer_epoch
    batch.base_sequence = base_sequence
    batch.is_transactional = False
    batch.log_append_time_ms = NO_TIMESTAMP
    batch.size_bytes = size
    return batch


def _first_magic(records: memoryview) -> int:
    """Return the magic of the first entry; 2 when the records are too short to have one."""
    return records[MAGIC_POSITION] if len(records) > MAGIC_POSITION else 2


def _refuse_head(records: memoryview, produce_version: int) -> NoReturn:
    """Raise the error of records that do not start with a header of magic 2."""
    _whole_entry_size(records)
    magic = records[MAGIC_POSITION]
    if magic < 2:
        raise NotOneBatch(f"Produce v{produce_version} must have magic 2, found {magic}")
    raise CorruptMessage(f"batch of {len(records)} bytes, the least is {HEADER_BYTES}")


def _whole_entry_size(records: memoryview) -> int:
    """Return the size of the first batch or message in `records`.

    Raises InvalidRecord when it is incomplete, CorruptMessage for a size or magic that no batch has.
    """
    if len(records) < LOG_OVERHEAD_BYTES:
        raise NotOneBatch(f"{len(records)} bytes hold no record batch")
    (length,) = _LENGTH.unpack_from(records, _LENGTH_POSITION)
    if length < MIN_MESSAGE_BYTES:
        raise CorruptMessage(f"record batch with length {length}, the least is {MIN_MESSAGE_BYTES}")
    if len(records) <= MAGIC_POSITION:
        raise NotOneBatch(f"{len(records)} bytes hold no record batch")
    if records[MAGIC_POSITION] > 2:
        raise CorruptMessage(f"invalid magic {records[MAGIC_POSITION]} in a record batch")
    size: int = length + LOG_OVERHEAD_BYTES
    if size > len(records):
        raise NotOneBatch(f"record batch of {size} bytes is cut short at {len(records)}")
    return size


def _cut_to_one_batch(records: memoryview) -> memoryview:
    """Return the first batch alone. A second one is refused; other bytes after it are dropped."""
    size = _whole_entry_size(records)
    if size < HEADER_BYTES:
        raise CorruptMessage(f"record batch of {size} bytes, the least is {HEADER_BYTES}")
    try:
        _whole_entry_size(records[size:])
    except (InvalidRecord, CorruptMessage):
        return records[:size]
    raise NotOneBatch("a produce request must have exactly one record batch for each partition")


def _check_producer(attributes: int, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    if attributes & CONTROL_FLAG:
        raise InvalidRecord("clients must not write control records")
    if producer_id <= NO_PRODUCER_ID:
        raise InvalidRecord("a transactional batch must have a producer id")
    if base_sequence < 0 or producer_epoch < 0:
        raise InvalidRecord(f"producer id {producer_id} with epoch {producer_epoch} and base sequence {base_sequence}")


def _check_each_record(
    body: BytesLike, count: int, base_timestamp: int, rules: AppendRules, now_ms: int, *, at_once: bool
) -> None:
    """Raise the error of each record that breaks a rule of the topic. Slow; called when some record probably does."""
    if at_once and count > AT_ONCE_RECORDS:
        raise NotAtOnce
    checks = _RecordChecks(rules, now_ms)
    body = bytes(body)
    pos = 0
    for index in range(count):
        delta, _, key, _, _, pos = read_record(body, pos)
        checks.add(index, base_timestamp + delta, key)
    checks.raise_errors()


class _RecordChecks:
    """The errors of single records, collected for the response."""

    def __init__(self, rules: AppendRules, now_ms: int) -> None:
        self._rules = rules
        self._earliest = now_ms - rules.timestamp_before_max_ms
        self._latest = min(now_ms + rules.timestamp_after_max_ms, _INT64_MAX)
        self._errors: list[tuple[int, str]] = []
        self._timestamp_error = False

    def add(self, index: int, timestamp: int, key: bytes | None) -> None:
        if key is None and self._rules.compacted:
            self._errors.append((index, "Compacted topic cannot accept message without key."))
        elif self._rules.log_append_time or timestamp == NO_TIMESTAMP:
            return
        elif not self._earliest <= timestamp <= self._latest:
            self._timestamp_error = True
            self._errors.append((index, f"Timestamp {timestamp} is not within [{self._earliest}, {self._latest}]."))

    def raise_errors(self) -> None:
        if not self._errors:
            return
        if self._timestamp_error:
            raise InvalidTimestamp("records with an invalid timestamp", self._errors)
        raise InvalidRecord(f"{len(self._errors)} invalid records", self._errors)


def _refuse_append_time(count: int) -> NoReturn:
    text = "Producer should not set timestamp type to LogAppendTime."
    errors = [(index, text) for index in range(count)]
    raise InvalidTimestamp("a producer set the timestamp type LogAppendTime", errors)


def _rebuild(records: memoryview, body: BytesLike, target: Codec, rules: AppendRules) -> bytearray:
    """Return the batch with its records in another codec; the caller sets attributes and CRC."""
    data = bytearray(records[:HEADER_BYTES])
    data += compress(target, body, rules.compression_level)
    if len(data) > rules.max_message_bytes:
        raise MessageTooLarge(f"batch of {len(data)} bytes as {target.name}, limit {rules.max_message_bytes}")
    _LENGTH.pack_into(data, _LENGTH_POSITION, len(data) - LOG_OVERHEAD_BYTES)
    return data


def _validate_message_set(records: memoryview, rules: AppendRules, now_ms: int, *, at_once: bool) -> ValidBatch:
    """Validate a Produce v0-v2 with magic 0 or 1: the same rules, and the set becomes one new batch."""
    limit = rules.max_decompressed_bytes
    if at_once:
        if len(records) > AT_ONCE_SET_BYTES:
            raise NotAtOnce
        limit = min(limit, AT_ONCE_SET_BYTES)
    try:
        produced = message_set.produced_set(records, max_message_bytes=rules.max_message_bytes, limit=limit)
    except TooLargeInflated:
        if limit < rules.max_decompressed_bytes:
            raise NotAtOnce from None
        raise
    count = len(produced.records)
    if produced.log_append_time and rules.log_append_time:
        _refuse_append_time(count)
    checks = _RecordChecks(rules, now_ms)
    max_timestamp = NO_TIMESTAMP
    for index, timestamp, key, *_ in produced.records:
        checks.add(index, timestamp, key)
        max_timestamp = max(max_timestamp, timestamp)
    checks.raise_errors()
    append_time = NO_TIMESTAMP
    if rules.log_append_time:
        max_timestamp = append_time = now_ms
    target = TARGET_CODECS[rules.compression]
    codec = produced.codec if target is None else target
    data = encode_batch(
        produced.records,
        codec=codec,
        level=None if target is None else rules.compression_level,
        log_append_time_ms=now_ms if rules.log_append_time else None,
    )
    if len(data) > rules.max_message_bytes:
        raise MessageTooLarge(f"batch of {len(data)} bytes after conversion, limit {rules.max_message_bytes}")
    if len(data) > rules.segment_bytes:
        raise RecordListTooLarge(f"batch of {len(data)} bytes, segment.bytes is {rules.segment_bytes}")
    return ValidBatch(
        data,
        count - 1,
        count,
        max_timestamp,
        NO_PRODUCER_ID,
        -1,
        NO_SEQUENCE,
        False,
        append_time,
        len(data),
    )


OWN_VERSION = 13  # of Produce: batches of the broker itself may use every codec


def valid_own(records: bytearray, rules: AppendRules, now_ms: int) -> ValidBatch:
    """Validate a batch that the broker has made itself."""
    return validate(memoryview(records), rules, produce_version=OWN_VERSION, now_ms=now_ms, client=False)


def valid_marker(producer_id: int, producer_epoch: int, marker: EndMarker, rules: AppendRules) -> ValidBatch:
    """Make the control batch that ends a transaction, for `Log.append_marker`."""
    records = end_marker_batch(
        producer_id,
        producer_epoch,
        is_commit=marker.is_commit,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp=marker.timestamp,
    )
    return valid_own(records, rules, marker.timestamp)
