"""Batches and logs for the storage tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from klamm.protocol.records.batch import Record, batches, encode_batch, read_header, records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.control import EndMarker, end_marker_batch
from klamm.protocol.records.validate import ValidBatch
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log.results import AppendResult
from klamm.storage.log.retention import due
from klamm.storage.recovery import loader
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import MemoryFilesystem

DIRECTORY = Path("/data/t-0")
EVERYTHING = 1 << 40


def batch(
    *timestamps: int,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    value: bytes = b"value",
    codec: Codec = Codec.NONE,
    transactional: bool = False,
) -> ValidBatch:
    """A batch with a record for each timestamp (default: one record)."""
    times = timestamps or (START_MS,)
    data = encode_batch(
        [Record(index, time, b"key-%d" % index, value) for index, time in enumerate(times)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return valid(data)


def valid(data: bytearray) -> ValidBatch:
    header = read_header(data)
    return ValidBatch(
        data=memoryview(data),
        last_offset_delta=header.last_offset_delta,
        record_count=header.record_count,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        log_append_time_ms=-1,
        size_bytes=len(data),
    )


def transact(
    log: Log, producer_id: int, epoch: int, sequence: int, *timestamps: int, value: bytes = b"value"
) -> AppendResult:
    """Append a batch of a transaction, as after the coordinator has said that it is open."""
    guard = log.verifications.begin(producer_id, epoch, sequence, begins_at_zero=False, now_ms=START_MS)
    new = batch(*timestamps, producer_id=producer_id, epoch=epoch, sequence=sequence, value=value, transactional=True)
    return log.append_as_leader(new, leader_epoch=max(0, log.leader_epochs.latest), now_ms=START_MS, guard=guard)


def end_transaction(
    log: Log,
    producer_id: int,
    epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
    timestamp: int = START_MS,
) -> AppendResult:
    """Append a marker."""
    data = end_marker_batch(
        producer_id, epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch, timestamp=timestamp
    )
    return log.append_marker(
        valid(data),
        EndMarker(is_commit, coordinator_epoch, timestamp),
        transaction_version=transaction_version,
        leader_epoch=max(0, log.leader_epochs.latest),
        now_ms=START_MS,
    )


def open_log(
    filesystem: MemoryFilesystem,
    *,
    config: LogConfig | None = None,
    clock: ManualClock | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    power_loss: bool = False,
    quarantine: Path | None = Path("/cut"),
    directory: Path = DIRECTORY,
) -> Log:
    return loader.open_log(
        loader.LogSource(
            directory,
            config if config is not None else LogConfig(),
            clock=clock if clock is not None else ManualClock(),
            filesystem=filesystem,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            power_loss=power_loss,
            quarantine=quarantine,
        )
    )


def delete_unreachable(log: Log) -> int:
    """Remove the files of segments below the log start at once; return how many segments that were."""
    removed = log.detach_unreachable()
    log.local.unlink_files(log.local.retire_segments(removed))
    return len(removed)


def read_bytes(log: Log, offset: int, *, max_bytes: int = EVERYTHING, max_offset: int = EVERYTHING) -> bytes:
    """Return the bytes that a fetch at `offset` gets."""
    region = log.read_records(offset, max_bytes=max_bytes, max_offset=max_offset).region
    return region.read() if region is not None else b""


def all_offsets(log: Log) -> list[int]:
    """The base offset of every batch, read as a consumer does: from the log start, fetch after fetch."""
    found: list[int] = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for _, header in batches(data):
            found.append(header.base_offset)
            offset = header.last_offset + 1
    assert offset == log.log_end_offset or not found
    return found


def all_records(log: Log) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record at or above the log start."""
    found = []
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, header in batches(data):
            found += [
                (record.offset, record.timestamp)
                for record in records(data, header, 1 << 20, position)
                if record.offset >= log.log_start_offset
            ]
            offset = header.last_offset + 1
    return found


def advance(log: Log, now_ms: int) -> None:
    """Move the log start to the offset that retention finds."""
    found = due(log, now_ms)
    if found is not None:
        log.advance_log_start(found.log_start_offset)


def fill(log: Log, batch_count: int, *, records_each: int = 1, value: bytes = b"value", epoch: int = 0) -> None:
    times: Sequence[int] = range(START_MS, START_MS + records_each)
    for _ in range(batch_count):
        log.append_as_leader(batch(*times, value=value), leader_epoch=epoch)
