"""Dump batches and records of a `.log` file, or of a snapshot of KRaft's metadata, which also consists of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klamm.protocol.errors import KafkaError
from klamm.protocol.records import message_set
from klamm.protocol.records.batch import BatchHeader, Record, crc_is_valid, records
from klamm.protocol.records.compression import CODEC_MASK
from klamm.protocol.records.control import ABORT, COMMIT, CONTROL_KEY, END_MARKER_VALUE
from klamm.storage.filesystem import File
from klamm.storage.log.scan import batches
from klamm.storage.tools.dump.decoders import DecoderError, RecordDecoder, compact_json
from klamm.storage.tools.dump.findings import Findings

DECOMPRESS_LIMIT: Final = 1 << 30
MARKERS: Final = {ABORT: "ABORT", COMMIT: "COMMIT"}
KRAFT_TYPES: Final = {
    2: "LeaderChange:",
    3: "SnapshotHeader",
    4: "SnapshotFooter",
    5: "KRaftVersion",
    6: "KRaftVoters",
}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The parts of a log to show. `max_bytes` None: all."""

    deep: bool
    show_metadata: bool
    decode: RecordDecoder | None
    max_bytes: int | None


def dump_log(file: File, path: Path, base_offset: int, options: LogOptions, findings: Findings) -> Iterator[str]:
    """Yield a line for each batch, and with `options.deep` one for each record."""
    size = file.size()
    end = size if options.max_bytes is None else min(size, options.max_bytes)
    position = 0
    next_offset = base_offset
    last_offset = -1
    for position, header, data in batches(file, 0, end):
        valid = crc_is_valid(data, header)
        yield batch_line(position, header, valid)
        if not valid:
            findings.problem(path, f"batch at position {position}: wrong CRC")
        if header.last_offset < next_offset:
            what = f"offset {header.base_offset} where {next_offset} is due"
            findings.problem(path, f"batch at position {position}: {what}")
        if options.deep and valid:
            try:
                for offset, line in _record_lines(header, data, options):
                    if last_offset >= 0 and offset != last_offset + 1:
                        findings.gap(path, last_offset, offset)
                    last_offset = offset
                    yield line
            except (KafkaError, DecoderError) as error:
                findings.problem(path, f"batch at position {position}: {error}")
        next_offset = header.next_offset
        position += header.size_bytes
    if position != size and options.max_bytes is None:
        yield f"Found {size - position} invalid bytes at the end of {path.name}"
        findings.problem(path, f"{size - position} bytes at position {position} are not a batch")


def batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    if header.magic < 2:
        line = f"offset: {header.last_offset}"
    else:
        horizon = header.delete_horizon_ms
        line = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)} "
            f"isControl: {_bool(header.is_control)} deleteHorizonMs: {optional_long(horizon)}"
        )
    return (
        f"{line} position: {position} {_timestamp_type(header)}: {header.max_timestamp} size: {header.size_bytes} "
        f"magic: {header.magic} compresscodec: {_codec(header)} crc: {header.crc} isvalid: {_bool(valid)}"
    )


def _record_lines(header: BatchHeader, data: memoryview, options: LogOptions) -> Iterator[tuple[int, str]]:
    crcs = _message_crcs(header, data) if header.magic < 2 else None
    found = records(data, header, DECOMPRESS_LIMIT)
    for number, record in enumerate(found):
        words = []
        if options.show_metadata:
            words.append(_metadata(header, record, number, crcs))
            if header.is_control:
                words.append(_control(record))
        if options.decode is not None and not header.is_control:
            text = options.decode(record)
            words += [f"key: {text.key}"] if text.key is not None else []
            words += [f"payload: {text.value}"] if text.value is not None else []
        yield record.offset, f"| {' '.join(words)}" if words else ""


def _metadata(header: BatchHeader, record: Record, number: int, crcs: list[int] | None) -> str:
    line = (
        f"offset: {record.offset} {_timestamp_type(header)}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if crcs is not None:
        return f"{line} isValid: true crc: {crcs[number]}"
    sequence = header.base_sequence
    if sequence >= 0:
        sequence = sequence + record.offset - header.base_offset & 0x7FFFFFFF
    return f"{line} sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"


def _message_crcs(header: BatchHeader, data: memoryview) -> list[int]:
    """Return the CRCs of the messages in an entry of the old formats, as stored (`records` has checked them)."""
    if not header.attributes & CODEC_MASK:
        return [header.crc]
    (wrapper,) = message_set.messages(data)
    return [_crc(message) for message in message_set.inner_messages(wrapper, DECOMPRESS_LIMIT)]


def _crc(message: message_set.Message) -> int:
    encoded = message_set.encode_message(
        message.magic, message.offset, message.timestamp, message.key, message.value, message.attributes
    )
    return int.from_bytes(encoded[message_set.ENTRY.size :][:4], "big")


def _control(record: Record) -> str:
    kind = CONTROL_KEY.unpack(record.key)[1] if record.key is not None and len(record.key) == CONTROL_KEY.size else -1
    if kind in MARKERS and record.value is not None and len(record.value) >= END_MARKER_VALUE.size:
        return f"endTxnMarker: {MARKERS[kind]} coordinatorEpoch: {END_MARKER_VALUE.unpack_from(record.value)[1]}"
    if kind in KRAFT_TYPES and record.value is not None:
        return f"{KRAFT_TYPES[kind]} {_kraft_message(kind, record.value)}"
    return f"controlType: UNKNOWN({kind})"


def _kraft_message(kind: int, value: bytes) -> str:
    """Return a KRaft message as text; its value begins with the version."""
    from klamm.protocol.as_json import to_json
    from klamm.protocol.cluster_metadata.kinds import control_class
    from klamm.protocol.wire import Malformed

    try:
        cls = control_class(kind)
        version = min(int.from_bytes(value[:2], "big"), cls.versions[1])
        message, _ = cls.decode[version](value)
    except Malformed as error:
        raise DecoderError(f"control record of type {kind}: {error}") from error
    return compact_json(to_json(message, version))


def largest_timestamp(header: BatchHeader, data: memoryview) -> int:
    """Return the largest timestamp of the records in a batch. A batch emptied by compaction keeps its header's."""
    found: Iterable[Record] = records(data, header, DECOMPRESS_LIMIT)
    return max((record.timestamp for record in found), default=header.max_timestamp)


def optional_long(value: int | None) -> str:
    """Return the value as Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _timestamp_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _codec(header: BatchHeader) -> str:
    try:
        return header.codec.name.lower()
    except KafkaError:
        return "unknown"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return len(data) if data is not None else -1
