"""Compare Klamm with Apache Kafka 4.4: the same load, alternately, on fresh brokers; writes docs/performance.md.

    python -m bench speed [--rounds 3] [--quick] [--only ROW ...]

Loads: Apache Kafka's own producer (idempotent, acks=all), consumer and end-to-end latency test, librdkafka's consumer,
and the generator of `bench/load`: one record per request over 1, 16 and 64 connections, fetches of a partition from the
page cache, latency from producer to reader. Each with the CPU time of the broker's process. Then the time from exec to
the first ApiVersions response, resident memory idle and after the loads, and the same with 10,000 partitions. Medians
over the rounds, and the ratio with its spread.

Apache Kafka runs with a heap of 1 GB and its defaults; both keep their logs in a temporary directory. Warm means that
the same process has served the load before; cold is the first load of a fresh process. `--quick` is one round with a
tenth of the loads, some three minutes; it prints and writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import loads
from bench.measure import BROKERS, KAFKA_HEAP, Table, Target, create_topic, first_answer, klamm, machine
from bench.page import plot, write_section
from klamm.client.blocking import NodeClient
from klamm.protocol.messages.metadata import MetadataRequest
from tests.support.apache_kafka import apache_kafka, free_ports
from tests.support.broker_process import BrokerProcess

Broker = Callable[[Path], AbstractContextManager[Target]]
CONNECTIONS = (1, 16, 64)
FETCHES = ((1 << 20, 1), (1 << 20, 4), (1 << 16, 4))  # bytes at a time, connections
TOPICS_OF_MANY = 20


@dataclass(frozen=True, slots=True)
class Sizes:
    small_records: int
    large_records: int
    seconds: float
    latency_records: int
    partitions: int


FULL = Sizes(5_000_000, 1_000_000, seconds=5.0, latency_records=10_000, partitions=10_000)
QUICK = Sizes(500_000, 100_000, seconds=2.0, latency_records=2_000, partitions=1_000)


def one_round(table: Table, broker: Broker, directory: Path, sizes: Sizes) -> None:
    """Run every load once on one fresh broker."""
    directory.mkdir()
    with broker(directory) as target:
        for topic, partitions in (("six", 6), ("one", 1), ("large", 1), ("lz4", 1), ("zstd", 1), ("single", 1)):
            create_topic(target, topic, partitions)
        produced(table, target, sizes)
        requests(table, target, sizes)
        consumed(table, target, sizes)
        table.add("memory after the loads", target.name, mb=target.rss_mb())


def produced(table: Table, target: Target, sizes: Sizes) -> None:
    count = sizes.small_records
    name = f"{count / 1e6:g} M x 100 B, Java producer"
    table.add(f"{name}, 6 partitions, cold", target.name, **loads.java_producer(target, "six", count, 100))
    table.add(f"{name}, 6 partitions, warm", target.name, **loads.java_producer(target, "six", count, 100))
    table.add(f"{name}, 1 partition", target.name, **loads.java_producer(target, "one", count, 100))
    count = sizes.large_records
    for topic, codec in (("large", "none"), ("lz4", "lz4"), ("zstd", "zstd")):
        figures = loads.java_producer(target, topic, count, 1000, f"compression.type={codec}")
        table.add(f"{count / 1e6:g} M x 1 KB, Java producer, {codec}", target.name, **figures)


def requests(table: Table, target: Target, sizes: Sizes) -> None:
    """Run the loads of the generator; without Go, the one in Python does the first rows."""
    for connections in CONNECTIONS:
        requested(table, target, connections, sizes.seconds)
    figures = loads.java_latency(target, "single", sizes.latency_records)
    table.add("end to end, Java, acks=all", target.name, **figures)
    if not loads.available(loads.LOAD):
        print("  without Go no latencies and no fetches by the generator", file=sys.stderr)
        return
    table.add("end to end, 200 records/s", target.name, **loads.latency(target, "single", sizes.seconds))
    for size, connections in FETCHES:
        fetched(table, target, size, connections, sizes.seconds)


def requested(table: Table, target: Target, connections: int, seconds: float) -> None:
    ask = loads.produce if loads.available(loads.LOAD) else loads.one_record
    row = f"one record per request, {connections} connection(s)"
    table.add(row, target.name, **ask(target, "single", connections, seconds))


def fetched(table: Table, target: Target, size: int, connections: int, seconds: float) -> None:
    row = f"fetch {size >> 10} KB at a time, {connections} connection(s)"
    table.add(row, target.name, **loads.fetch(target, "large", connections, size, seconds))


def consumed(table: Table, target: Target, sizes: Sizes) -> None:
    count = sizes.small_records
    table.add(f"{count / 1e6:g} M x 100 B, Java consumer", target.name, **loads.java_consumer(target, "six", count))
    if loads.available(loads.RDKAFKA):
        figures = loads.rdkafka_consumer(target, "six", 6, count)
        table.add(f"{count / 1e6:g} M x 100 B, librdkafka consumer", target.name, **figures)


def bare(table: Table, directory: Path, seconds: float) -> None:
    """Measure a loop of nothing but sendfile."""
    path = directory / "bare"
    path.write_bytes(bytes(256 << 20))
    for size, connections in FETCHES:
        command = [sys.executable, "-m", "bench.bare", str(path), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            target = Target("bare", "127.0.0.1", int(server.stdout.readline()), server.pid)
            found = loads.load(target, "raw", "-", "-connections", str(connections), "-seconds", str(seconds))
            server.terminate()
        gb_s, requests_s = found["bytes"] / found["seconds"] / 1e9, found["requests"] / found["seconds"]
        for name in ("klamm", "kafka"):
            row = f"(a bare sendfile loop, {size >> 10} KB, {connections} connection(s))"
            table.add(row, name, gb_s=gb_s, requests_s=requests_s)
    path.unlink()


# -- starts


@contextmanager
def started(broker: Broker, directory: Path) -> Iterator[tuple[float, Target]]:
    """Start a broker on `directory`; yield the seconds from exec to the first response, and the broker."""
    began = time.perf_counter()
    if broker is klamm:
        (port,) = free_ports(1)
        command = [sys.executable, "-m", "klamm", "start", "--override", f"log.dirs={directory / 'klamm'}"]
        command += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{port}"]
        command += ["--override", "klamm.metrics.listener=127.0.0.1:0"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            first_answer(port)
            yield time.perf_counter() - began, Target("klamm", "127.0.0.1", port, running.pid)
        finally:
            running.terminate()
            running.wait(300)
    else:
        with apache_kafka(directory / "kafka", heap=KAFKA_HEAP) as process:
            first_answer(process.port)
            yield time.perf_counter() - began, Target("kafka", "127.0.0.1", process.port, process.pid)


def formatted(broker: Broker, directory: Path) -> None:
    """Make the data directory: both brokers are measured on one that exists."""
    directory.mkdir()
    with BrokerProcess(directory / "klamm") if broker is klamm else apache_kafka(directory / "kafka", heap=KAFKA_HEAP):
        pass


def start(table: Table, broker: Broker, directory: Path) -> None:
    formatted(broker, directory)
    with started(broker, directory) as (seconds, target):
        table.add("start to first answer", target.name, seconds=seconds)
        time.sleep(2)
        table.add("memory, idle", target.name, mb=target.rss_mb())


def many(table: Table, broker: Broker, directory: Path, partitions: int) -> None:
    """Measure start, Metadata response and memory with many partitions."""
    formatted(broker, directory)
    with started(broker, directory) as (_, target):
        for number in range(TOPICS_OF_MANY):
            create_topic(target, f"many-{number}", partitions // TOPICS_OF_MANY)
    with started(broker, directory) as (seconds, target):
        table.add(f"start with {partitions:,} partitions", target.name, seconds=seconds)
        with NodeClient(target.host, target.port, timeout_s=600) as client:
            while True:
                began = time.perf_counter()
                answer = client.request(MetadataRequest(topics=None), 9)
                if sum(len(topic.partitions) for topic in answer.topics) == partitions:
                    break
                time.sleep(0.5)  # it answers before it knows all partitions
            taken = []
            for _ in range(5):
                began = time.perf_counter()
                client.request(MetadataRequest(topics=None), 9)
                taken.append(time.perf_counter() - began)
        table.add(f"metadata of {partitions:,} partitions", target.name, ms=min(taken) * 1e3)
        table.add(f"memory with {partitions:,} partitions", target.name, mb=target.rss_mb())


# -- the run


def main() -> None:
    parser = argparse.ArgumentParser(description="Klamm beside Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the load; writes nothing")
    options = parser.parse_args()
    rounds, sizes = (1, QUICK) if options.quick else (options.rounds, FULL)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary:
        for number in range(rounds):
            for broker in BROKERS if number % 2 == 0 else reversed(BROKERS):
                directory = Path(temporary) / f"{broker.__name__}-{number}"
                directory.mkdir()
                start(table, broker, directory / "start")
                one_round(table, broker, directory / "load", sizes)
                if number == 0:
                    many(table, broker, directory / "many", sizes.partitions)
                shutil.rmtree(directory)
            if loads.available(loads.LOAD):
                bare(table, Path(temporary), sizes.seconds)
            print(f"round {number + 1}\n\n{table.markdown()}", file=sys.stderr)
    body = f"Measured on {machine(rounds)}.\n\n{table.markdown()}"
    print(body)
    if not options.quick:
        plot(table, "Klamm beside Apache Kafka 4.4, client and broker on the same two cores")
        write_section("speed", f"{body}\n\n![ratios](performance.svg)")


if __name__ == "__main__":
    main()
