"""Measure recovery after `kill -9`, beside Apache Kafka 4.4: how fast an unflushed log is checked, in GB/s.

    python -m bench recovery [--gb 4] [--partitions 4] [--batch-size 16384] [--rounds 2] [--threads 2]

Both brokers are filled by Apache Kafka's own producer (idempotent, 100-byte records), killed, and lose the checkpoint
of their recovery points, so that every byte is checked at the next start. The time is from exec to the first
ApiVersions response, minus that of a start with nothing to check. The page cache holds the logs.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from bench.measure import KAFKA_HEAP, Target, create_topic, first_answer
from klamm.storage.paths import RECOVERY_POINT_CHECKPOINT
from tests.support.apache_kafka import ApacheKafka, apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.jars import classpath, java

RECORD_BYTES = 100
TOPIC = "load"

Running = BrokerProcess | ApacheKafka


def fill(broker: Running, gigabytes: float, partitions: int, batch_size: int) -> None:
    create_topic(Target("", "127.0.0.1", broker.port, broker.pid), TOPIC, partitions)
    command = [java(), "-Xmx512m", "-cp", classpath("tools"), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", TOPIC, "--num-records", str(int(gigabytes * 1e9 / 110)), "--throughput", "-1"]
    command += ["--record-size", str(RECORD_BYTES), "--command-property", f"bootstrap.servers=127.0.0.1:{broker.port}"]
    command += ["acks=1", f"batch.size={batch_size}", "linger.ms=50"]
    subprocess.run(command, capture_output=True, timeout=1800, check=True)


def killed(start: Callable[[], AbstractContextManager[Running]], work: Callable[[Running], None]) -> float:
    """Start, work, kill -9; return the seconds that the start took."""
    begin = time.perf_counter()
    with start() as broker:
        first_answer(broker.port)
        elapsed = time.perf_counter() - begin
        work(broker)
        if isinstance(broker, BrokerProcess):
            broker.kill()
        else:
            os.kill(broker.pid, signal.SIGKILL)
            broker.process.wait()
    return elapsed


def measure(
    start: Callable[[], AbstractContextManager[Running]], log_dir: Path, options: argparse.Namespace
) -> tuple[int, list[float]]:
    """Return the size of the logs in bytes, and GB/s of each round."""
    with start():
        pass  # the first start formats the directory
    empty = killed(start, lambda broker: fill(broker, options.gb, options.partitions, options.batch_size))
    size = sum(file.stat().st_size for file in log_dir.glob(f"{TOPIC}-*/*.log"))
    rates = []
    for _ in range(options.rounds):
        for checkpoint in log_dir.glob(RECOVERY_POINT_CHECKPOINT):
            checkpoint.unlink()
        for index in [*log_dir.glob(f"{TOPIC}-*/*.index"), *log_dir.glob(f"{TOPIC}-*/*.timeindex")]:
            index.unlink()
        rates.append(size / 1e9 / (killed(start, lambda _: None) - empty))
    return size, rates


def main() -> None:
    parser = argparse.ArgumentParser(description="Recovery beside Apache Kafka.")
    parser.add_argument("--gb", type=float, default=4)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("klamm", "kafka"))
    options = parser.parse_args()
    config = {"num.recovery.threads.per.data.dir": str(options.threads)}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary:
        data, kafka = Path(temporary) / "klamm", Path(temporary) / "kafka"
        brokers: dict[str, tuple[Callable[[], AbstractContextManager[Running]], Path]] = {
            "klamm": (lambda: BrokerProcess(data, config), data),
            "kafka": (lambda: apache_kafka(kafka, config, heap=KAFKA_HEAP), kafka / "kafka-logs"),
        }
        for name, (start, log_dir) in brokers.items():
            if options.only in (None, name):
                size, rates = measure(start, log_dir, options)
                shown = ", ".join(f"{rate:.2f}" for rate in rates)
                print(f"{name}: {size / 1e9:.2f} GB, {statistics.median(rates):.2f} GB/s ({shown})", flush=True)
                subprocess.run(["rm", "-rf", str(log_dir)], check=True)


if __name__ == "__main__":
    main()
