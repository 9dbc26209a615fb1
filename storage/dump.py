"""What log files hold, as text, in the manner of Kafka's `kafka-dump-log`.

By the name of the file: `.log` (a line for each batch, and with `print_data_log` one for each record), `.index` and
`.timeindex` (their entries, checked against the `.log` beside them), `.snapshot`, `leader-epoch-checkpoint`, the offset
checkpoints of a log dir, `partition.metadata`. Only reads; damaged files are shown as far as they go, and said to be
damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from klamm.protocol.errors import KafkaError
from klamm.protocol.records.batch import BatchHeader, Record, crc_is_valid, records
from klamm.protocol.wire import uuid_to_text
from klamm.storage import checkpoints, paths
from klamm.storage.checkpoints import CheckpointError
from klamm.storage.filesystem import File, Filesystem, OsFilesystem, describe
from klamm.storage.index import OFFSET_ENTRY, TIME_ENTRY
from klamm.storage.producer_state import Producer, SnapshotError, parse_snapshot
from klamm.storage.scan import batches, heads

DECOMPRESS_LIMIT = 1 << 30
PROBLEM = "PROBLEM: "
"""How every line begins that says that something is wrong."""

OFFSET_CHECKPOINTS = (
    paths.RECOVERY_POINT_CHECKPOINT,
    paths.LOG_START_CHECKPOINT,
    paths.HIGH_WATERMARK_CHECKPOINT,
    paths.CLEANER_CHECKPOINT,
)


def dump_files(files: Sequence[Path], *, print_data_log: bool, out: TextIO) -> int:
    """Write the dump of `files` to `out`; 0, or 1 when something is wrong with one of them."""
    status = 0
    for line in dump_log(files, print_data_log=print_data_log):
        print(line, file=out)
        if line.startswith(PROBLEM):
            status = 1
    return status


def dump_log(
    files: Sequence[Path], *, print_data_log: bool = False, filesystem: Filesystem | None = None
) -> Iterator[str]:
    """The lines of the dump."""
    filesystem = filesystem if filesystem is not None else OsFilesystem()
    for path in files:
        yield f"Dumping {path}"
        try:
            yield from _dump(filesystem, path, print_data_log)
        except OSError as error:
            yield f"{PROBLEM}{path}: {describe(error)}"
        except (CheckpointError, SnapshotError) as error:
            yield f"{PROBLEM}{path}: {error}"


def _dump(filesystem: Filesystem, path: Path, print_data_log: bool) -> Iterator[str]:
    parsed = paths.parse_offset_file(path.name)
    base_offset, suffix = parsed if parsed is not None else (0, "")
    if suffix == paths.LOG_SUFFIX:
        yield f"Log starting offset: {base_offset}"
        yield from _dump_batches(filesystem.open_read(path), base_offset, print_data_log)
    elif suffix == paths.INDEX_SUFFIX:
        yield from _dump_offset_index(filesystem, path, base_offset)
    elif suffix == paths.TIME_INDEX_SUFFIX:
        yield from _dump_time_index(filesystem, path, base_offset)
    elif suffix == paths.SNAPSHOT_SUFFIX:
        yield from map(_producer, parse_snapshot(filesystem.read_bytes(path)))
    elif path.name == paths.LEADER_EPOCH_CHECKPOINT:
        for epoch, offset in checkpoints.parse_lines(filesystem.read_bytes(path)):
            yield f"epoch: {epoch} startOffset: {offset}"
    elif path.name in OFFSET_CHECKPOINTS:
        for partition, checkpoint in checkpoints.read_offsets(filesystem, path).items():
            yield f"topic: {partition.topic} partition: {partition.partition} offset: {checkpoint}"
    elif path.name == paths.PARTITION_METADATA:
        yield f"topicId: {uuid_to_text(checkpoints.parse_partition_metadata(filesystem.read_bytes(path)))}"
    else:
        yield f"{PROBLEM}{path}: do not know how to read a file of this name"


def _dump_batches(file: File, base_offset: int, print_data_log: bool) -> Iterator[str]:
    end = file.size()
    position = 0
    next_offset = base_offset
    for position, head, data in batches(file, 0, end):
        valid = crc_is_valid(data, head)
        yield _batch(position, head, valid)
        if not valid:
            yield f"{PROBLEM}batch at position {position}: wrong CRC"
        if head.base_offset < next_offset:
            yield f"{PROBLEM}batch at position {position}: offset {head.base_offset} where {next_offset} is due"
        if print_data_log and valid:
            try:
                for record in records(data, head, DECOMPRESS_LIMIT):
                    yield _record(head, record)
            except KafkaError as error:
                yield f"{PROBLEM}batch at position {position}: {error}"
        next_offset = head.last_offset + 1
        position += head.size_bytes
    if position != end:
        yield f"{PROBLEM}{end - position} bytes at position {position} are not a batch"


def _batch(position: int, head: BatchHeader, valid: bool) -> str:
    last_sequence = head.last_sequence if head.base_sequence >= 0 else -1
    horizon = head.delete_horizon_ms
    time = "LogAppendTime" if head.is_log_append_time else "CreateTime"
    return (
        f"baseOffset: {head.base_offset} lastOffset: {head.last_offset} count: {head.record_count} "
        f"baseSequence: {head.base_sequence} lastSequence: {last_sequence} "
        f"producerId: {head.producer_id} producerEpoch: {head.producer_epoch} "
        f"partitionLeaderEpoch: {head.leader_epoch} isTransactional: {_bool(head.is_transactional)} "
        f"isControl: {_bool(head.is_control)} deleteHorizonMs: {horizon if horizon is not None else 'none'} "
        f"position: {position} {time}: {head.max_timestamp} size: {head.size_bytes} magic: {head.magic} "
        f"compresscodec: {_codec(head)} crc: {head.crc} isvalid: {_bool(valid)}"
    )


def _record(head: BatchHeader, record: Record) -> str:
    sequence = head.base_sequence + record.offset - head.base_offset if head.base_sequence >= 0 else -1
    return (
        f"| offset: {record.offset} timestamp: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} "
        f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
        + (f" key: {_text(record.key)}" if record.key is not None else "")
        + (f" payload: {_text(record.value)}" if record.value is not None else "")
    )


def _dump_offset_index(filesystem: Filesystem, path: Path, base_offset: int) -> Iterator[str]:
    log = _beside(filesystem, path)
    content = filesystem.read_bytes(path)
    for relative, position in OFFSET_ENTRY.iter_unpack(
        content[: len(content) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
    ):
        offset = base_offset + relative
        if (relative, position) == (0, 0):
            yield "the rest is preallocated"
            return
        yield f"offset: {offset} position: {position}"
        if log is not None:
            head = _head_at(log, position)
            if head is None or head.last_offset != offset:
                found = f"last offset {head.last_offset}" if head is not None else "no batch"
                yield f"{PROBLEM}{path}: offset {offset}: the log has {found} at position {position}"
    yield from _check_size(path, len(content), OFFSET_ENTRY.size)


def _dump_time_index(filesystem: Filesystem, path: Path, base_offset: int) -> Iterator[str]:
    log = _beside(filesystem, path)
    content = filesystem.read_bytes(path)
    found = {head.last_offset: head for _, head in heads(log, 0, log.size())} if log is not None else {}
    lasts = sorted(found)
    before = -1
    for timestamp, relative in TIME_ENTRY.iter_unpack(content[: len(content) // TIME_ENTRY.size * TIME_ENTRY.size]):
        offset = base_offset + relative
        if (timestamp, relative) == (0, 0):
            yield "the rest is preallocated"
            return
        yield f"timestamp: {timestamp} offset: {offset}"
        if timestamp <= before:
            yield f"{PROBLEM}{path}: timestamp {timestamp} is not above the one before"
        before = timestamp
        if log is not None:
            last = next((last for last in lasts if last >= offset), None)
            if last is None or found[last].max_timestamp != timestamp:
                has = found[last].max_timestamp if last is not None else "none"
                yield f"{PROBLEM}{path}: timestamp {timestamp}: the batch of offset {offset} has {has}"
    yield from _check_size(path, len(content), TIME_ENTRY.size)


def _check_size(path: Path, size: int, entry_size: int) -> Iterator[str]:
    if size % entry_size:
        yield f"{PROBLEM}{path}: {size} bytes are not whole entries of {entry_size}"


def _beside(filesystem: Filesystem, path: Path) -> File | None:
    log = path.with_suffix(paths.LOG_SUFFIX)
    return filesystem.open_read(log) if filesystem.exists(log) else None


def _head_at(file: File, position: int) -> BatchHeader | None:
    found = next(heads(file, position, file.size()), None)
    return found[1] if found is not None else None


def _producer(producer: Producer) -> str:
    transaction = producer.first_transaction_offset
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {transaction if transaction >= 0 else 'none'} "
        f"lastTimestamp: {producer.last_timestamp}"
    )
    for batch in producer.batches:
        line += (
            f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
            f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp}"
        )
    return line


def _codec(head: BatchHeader) -> str:
    try:
        return head.codec.name.lower()
    except KafkaError:
        return "unknown"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return len(data) if data is not None else -1


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
