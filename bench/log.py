"""Measure the log alone: append, read, look up, flush, start and recover, on the disk of a given directory.

    python -m bench log [--directory DIR] [--records 200000] [--partitions 1000]

One process, no network, no validation of records (`bench/records.py` measures that). Appends are one-record batches of
100 bytes unless the line says otherwise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from klamm.protocol.records.batch import Record, encode_batch, read_header
from klamm.protocol.records.validate import ValidBatch
from klamm.storage.clock import SystemClock
from klamm.storage.filesystem import OsFilesystem
from klamm.storage.log.log import Log
from klamm.storage.log.log_config import LogConfig
from klamm.storage.log_creation import NewLog, create_logs
from klamm.storage.log_dir import LogDir
from klamm.storage.log_loading import load_logs
from klamm.storage.recovery import loader

EVERYTHING = 1 << 62


def batch(records: int, value_bytes: int, *, producer_id: int = -1) -> ValidBatch:
    now_ms = SystemClock().wall_ms()
    data = encode_batch(
        [Record(index, now_ms, None, bytes(value_bytes)) for index in range(records)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )
    header = read_header(data)
    return ValidBatch(
        data=memoryview(data),
        last_offset_delta=header.last_offset_delta,
        record_count=records,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=False,
        log_append_time_ms=-1,
        size_bytes=len(data),
    )


def show(what: str, value: float, unit: str) -> None:
    print(f"{what:<52} {value:>12,.2f} {unit}", flush=True)


def each_us(count: int, work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begin) / count * 1e6


def open_log(directory: Path, name: str, *, clean: bool = True, config: LogConfig | None = None) -> Log:
    return loader.open_log(
        loader.LogSource(
            directory / name, config or LogConfig(), clock=SystemClock(), filesystem=OsFilesystem(), clean=clean
        )
    )


def bench_append(directory: Path, count: int) -> None:
    now_ms = SystemClock().wall_ms()
    small = batch(1, 100)
    log = open_log(directory, "append-0")
    show("append, one record", each_us(count, lambda: log.append_as_leader(small, leader_epoch=0, now_ms=now_ms)), "us")
    numbered = batch(1, 100, producer_id=7)
    log = open_log(directory, "idempotent-0")

    def append_next() -> None:
        log.append_as_leader(numbered, leader_epoch=0, now_ms=now_ms)
        numbered.base_sequence += 1

    show("append, one record, idempotent", each_us(count, append_next), "us")
    large = batch(150, 100)
    log = open_log(directory, "large-0", config=LogConfig(segment_bytes=64 << 20))
    times = count // 20
    taken = each_us(times, lambda: log.append_as_leader(large, leader_epoch=0, now_ms=now_ms))
    show(f"append, 150 records, {large.size_bytes} bytes, with rolls", taken, "us")
    show("  the same", large.size_bytes / taken, "MB/s")
    begin = time.perf_counter()
    log.local.flush()
    show(f"flush of {log.local.size_bytes >> 20} MB", (time.perf_counter() - begin) * 1e3, "ms")

    def append_and_flush() -> None:
        log.append_as_leader(small, leader_epoch=0, now_ms=now_ms)
        log.local.flush()

    show("append and flush, one record", each_us(100, append_and_flush), "us")


def bench_read(directory: Path, count: int) -> None:
    log = open_log(directory, "append-0", clean=False)
    end = log.log_end_offset
    pick = random.Random(1).randrange

    def read(offset: int) -> None:
        log.read_records(offset, max_bytes=1 << 20, max_offset=EVERYTHING)

    show("read at the tail", each_us(20_000, lambda: read(end - 1)), "us")
    show("read at a random offset", each_us(20_000, lambda: read(pick(end))), "us")
    now_ms = SystemClock().wall_ms()
    show(
        "look-up of a timestamp in the future", each_us(20_000, lambda: log.timestamp_search(now_ms + 1000).run()), "us"
    )
    log = open_log(directory, "times-0")
    ordered = batch(1, 100)
    for offset in range(count):
        ordered.max_timestamp = now_ms + offset
        ordered.data[27:43] = (now_ms + offset).to_bytes(8, "big") * 2
        log.append_as_leader(ordered, leader_epoch=0, now_ms=now_ms)
    show(
        "look-up of a random timestamp", each_us(5_000, lambda: log.timestamp_search(now_ms + pick(count)).run()), "us"
    )


def bench_open(directory: Path, partitions: int) -> None:
    path = directory / "data"
    log_dir = LogDir.open(path, node_id=1)
    load_logs(log_dir, lambda topic: LogConfig())
    begin = time.perf_counter()
    logs = create_logs(log_dir, [NewLog("t", partition, bytes(16), LogConfig()) for partition in range(partitions)])
    show(f"create {partitions} partitions, durably", (time.perf_counter() - begin) * 1e3, "ms")
    small = batch(1, 100)
    for log in logs:
        assert isinstance(log, Log), log
        for _ in range(100):
            log.append_as_leader(small, leader_epoch=0)
    begin = time.perf_counter()
    log_dir.close()
    show(f"clean close of {partitions} partitions, all dirty", (time.perf_counter() - begin) * 1e3, "ms")
    begin = time.perf_counter()
    log_dir = LogDir.open(path, node_id=1)
    found = load_logs(log_dir, lambda topic: LogConfig())
    show(f"clean start with {partitions} partitions", (time.perf_counter() - begin) * 1e3, "ms")
    assert len(found.logs) == partitions and all(log.log_end_offset == 100 for log in found.logs.values())
    begin = time.perf_counter()
    log_dir.close()
    show(f"clean close of {partitions} partitions, untouched", (time.perf_counter() - begin) * 1e3, "ms")
    log_dir = LogDir.open(path, node_id=1)
    load_logs(log_dir, lambda topic: LogConfig())
    log_dir.close(clean=False)
    begin = time.perf_counter()
    log_dir = LogDir.open(path, node_id=1)
    found = load_logs(log_dir, lambda topic: LogConfig())
    show(f"unclean start with {partitions} partitions", (time.perf_counter() - begin) * 1e3, "ms")
    assert not found.offline
    log_dir.close()


def bench_recovery(directory: Path) -> None:
    for name, what in (("append-0", "one-record batches"), ("large-0", "16 KB batches")):
        begin = time.perf_counter()
        log = open_log(directory, name, clean=False)
        taken = time.perf_counter() - begin
        show(f"recovery of {log.local.size_bytes >> 20} MB, {what}", log.local.size_bytes / taken / 1e6, "MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the log.")
    parser.add_argument("--directory", type=Path, help="where to write (default: a temporary directory)")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="klamm-bench-", dir=options.directory))
    try:
        bench_append(directory, options.records)
        bench_read(directory, options.records)
        bench_recovery(directory)
        bench_open(directory, options.partitions)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
