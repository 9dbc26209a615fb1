"""Stop at every change that a life of a log directory makes on the disk, and start again.

After the death of the process no written record may be missing. After a power cut no flushed record may be missing,
and the remaining records are a prefix of those written. No partition may be offline: nothing was damaged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from klamm.protocol.records.batch import batches
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_deletion import delete_log
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.paths import TopicPartition
from tests.storage.batches import batch, delete_unreachable, read_bytes
from tests.support.log_dirs import create_log
from tests.support.manual_clock import START_MS, ManualClock
from tests.support.memory_filesystem import Crash, MemoryFilesystem

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
KEY = TopicPartition("t", 0)


@dataclass
class Known:
    """The results that the caller of the log has got."""

    written: int = 0  # appended before this offset
    attempted: int = 0
    durable: int = 0
    log_start: int = 0
    created: bool = False
    deleted: bool = False
    clean: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)


def start(filesystem: MemoryFilesystem) -> LogDir:
    log_dir = LogDir.open(
        Path("/data"), node_id=1, cluster_id="c", clock=ManualClock(), filesystem=filesystem, quarantine=Path("/cut")
    )
    load_logs(log_dir, lambda topic: CONFIG)
    return log_dir


def value_of(offset: int) -> bytes:
    return b"%06d" % offset + bytes(offset * 37 % 90)


def append(log: Log, known: Known, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        offset = log.log_end_offset
        known.attempted = max(known.attempted, offset + 1)
        log.append_as_leader(
            batch(START_MS + offset, producer_id=5, epoch=0, sequence=offset, value=value_of(offset)),
            leader_epoch=epoch,
        )
        known.written = offset + 1


def flush(log: Log, known: Known) -> None:
    log.local.flush()
    known.durable = max(known.durable, log.local.recovery_point)


def life(filesystem: MemoryFilesystem, known: Known, *, truncate: bool, delete: bool) -> None:
    log_dir = start(filesystem)
    log = create_log(log_dir, "t", 0, bytes(16), CONFIG)
    known.created = True
    append(log, known, 7)
    flush(log, known)
    log_dir.checkpoint()
    append(log, known, 12, epoch=2)
    if truncate:
        known.durable = min(known.durable, 11)
        known.written = 11
        log.truncate_to(11)
        append(log, known, 5, epoch=3)
    flush(log, known)
    append(log, known, 4, epoch=3)
    log.high_watermark = log.log_end_offset
    log.advance_log_start(9)
    log_dir.checkpoint()
    known.durable = max(known.durable, log.local.recovery_point)
    known.log_start = 9
    delete_unreachable(log)
    append(log, known, 3, epoch=3)
    log_dir.checkpoint()
    if delete:
        known.deleted = True
        delete_log(log_dir, TopicPartition("t", 0))
    assert log_dir.close()
    known.durable = known.written
    known.clean = True
    again = start(filesystem)
    if not delete:
        append(again.logs[KEY], known, 3, epoch=3)


def check(filesystem: MemoryFilesystem, known: Known, *, least: int) -> None:
    log_dir = start(filesystem)
    assert log_dir.offline == {}
    log = log_dir.logs.get(KEY)
    if log is None:
        assert known.deleted or not known.created
        return
    assert least <= log.log_end_offset <= known.attempted
    assert log.log_start_offset in (0, known.log_start, 9)
    assert log.log_start_offset >= known.log_start
    offset = log.log_start_offset
    while data := read_bytes(log, offset):
        for position, header in batches(data):
            assert header.base_offset == offset
            assert value_of(offset) in data[position : position + header.size_bytes]
            offset += 1
    assert offset == log.log_end_offset
    assert (
        log.append_as_leader(
            batch(producer_id=5, epoch=0, sequence=offset, value=value_of(offset)), leader_epoch=9
        ).base_offset
        == offset
    )
    if offset > log.log_start_offset:
        assert log.timestamp_search(START_MS + offset - 1).run() == (
            START_MS + offset - 1,
            offset - 1,
            log.leader_epochs.epoch_of(offset - 1),
        )
    assert log_dir.close()
    again = start(filesystem)
    assert again.logs[KEY].log_end_offset == offset + 1


VARIANTS = [(False, False), (True, False), (False, True)]


def count_changes(truncate: bool, delete: bool) -> int:
    filesystem = MemoryFilesystem()
    before = filesystem.changes
    life(filesystem, Known(), truncate=truncate, delete=delete)
    return filesystem.changes - before


def run_until(changes: int, truncate: bool, delete: bool) -> tuple[MemoryFilesystem, Known]:
    filesystem, known = MemoryFilesystem(), Known()
    filesystem.crash_after(changes)
    with pytest.raises(Crash):
        life(filesystem, known, truncate=truncate, delete=delete)
    return filesystem, known


@pytest.mark.parametrize(("truncate", "delete"), VARIANTS)
def test_death_of_the_process_at_every_step_loses_nothing(truncate: bool, delete: bool) -> None:
    for changes in range(count_changes(truncate, delete)):
        filesystem, known = run_until(changes, truncate, delete)
        filesystem.kill()
        check(filesystem, known, least=known.written)


@pytest.mark.parametrize(("truncate", "delete"), VARIANTS)
def test_power_cut_at_every_step_loses_nothing_that_was_flushed(truncate: bool, delete: bool) -> None:
    for changes in range(count_changes(truncate, delete)):
        filesystem, known = run_until(changes, truncate, delete)
        filesystem.crash()
        check(filesystem, known, least=known.durable)


@pytest.mark.parametrize(("truncate", "delete"), VARIANTS)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 4))])
def test_power_cut_that_keeps_any_part_of_what_was_not_synced(truncate: bool, delete: bool, seed: int) -> None:
    for changes in range(count_changes(truncate, delete)):
        filesystem, known = run_until(changes, truncate, delete)
        filesystem.crash(random.Random(changes * 1000 + seed))
        try:
            check(filesystem, known, least=known.durable)
        except BaseException as error:
            error.add_note(f"changes={changes} seed={seed}")
            raise
