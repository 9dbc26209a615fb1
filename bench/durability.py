"""Measure the cost of acknowledging only data on the disk: `klamm.acks.fsync` and the default, alternately.

    python -m bench durability [--rounds 3] [--quick] [--directory DIR]

The loads are those of `bench/loads.py`: Apache Kafka's producer with acks=all, and one record per request over 1, 16
and 64 connections; then 16 connections that write to 16 partitions, each to a log of its own. Before them, one
fdatasync of an appended 4 KiB on the same disk. Medians over the rounds. `--directory` chooses the disk.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

from bench.loads import java_producer, one_record
from bench.measure import Table, Target, create_topic
from tests.support.broker_process import BrokerProcess

MODES: dict[str, dict[str, object]] = {"default": {}, "fsync": {"klamm.acks.fsync": "true"}}
COLUMNS = {"default": "default", "fsync": "klamm.acks.fsync=true"}


def fdatasync_us(directory: Path, count: int = 200) -> float:
    """Return the median time of appending 4 KiB and syncing."""
    path = directory / "probe"
    taken = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for index in range(count):
            os.pwrite(fd, bytes(4096), index * 4096)
            started = time.perf_counter()
            os.fdatasync(fd)
            taken.append(time.perf_counter() - started)
    finally:
        os.close(fd)
        path.unlink()
    return statistics.median(taken) * 1e6


def one_round(table: Table, mode: str, directory: Path, scale: int, seconds: float) -> None:
    with BrokerProcess(directory, MODES[mode]) as process:
        target = Target(mode, process.host, process.port, process.pid)
        for topic, partitions in (("six", 6), ("one", 1), ("single", 1), ("sixteen", 16)):
            create_topic(target, topic, partitions)
        count = 5_000_000 // scale
        java_producer(target, "six", count // 5, 100)  # warm
        for topic, text in (("six", "6 partitions"), ("one", "1 partition")):
            row = f"{count / 1e6:g} M x 100 B, {text}, Java producer"
            table.add(row, mode, **java_producer(target, topic, count, 100))
        for connections in (1, 16, 64):
            row = f"one record per request, {connections} connection(s)"
            table.add(row, mode, **one_record(target, "single", connections, seconds))
        row = "one record per request, 16 connections to 16 partitions"
        table.add(row, mode, **one_record(target, "sixteen", 16, seconds, partitions=16))


def main() -> None:
    parser = argparse.ArgumentParser(description="klamm.acks.fsync beside the default.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the load")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    options = parser.parse_args()
    rounds, scale, seconds = (1, 10, 2.0) if options.quick else (options.rounds, 2, 4.0)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=options.directory) as temporary:
        sync_us = fdatasync_us(Path(temporary))
        for number in range(rounds):
            for mode in MODES:
                one_round(table, mode, Path(temporary) / f"{mode}-{number}", scale, seconds)
    print(f"{platform.platform()}, {os.cpu_count()} cores, {rounds} round(s), one fdatasync {sync_us:,.0f} us\n")
    print(table.markdown(COLUMNS))


if __name__ == "__main__":
    main()
