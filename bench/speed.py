"""Klamm beside Apache Kafka 4.4: the same load, alternately, on brokers started fresh; prints a Markdown table.

    python -m bench speed [--rounds 3] [--quick]

Loads: Apache Kafka's own producer (ProducerPerformance of its tools, idempotent, acks=all), and one record per request
over 1, 16 and 64 connections from a small load generator here (`one_record`; on two cores it takes about one of them,
so the requests per second are of both together). Beside each: the CPU seconds of the broker's process. Then the time
from exec to the first ApiVersions answer, and the resident memory, idle and after the loads. Medians over the rounds.

Apache Kafka runs with a heap of 1 GB and its defaults; both keep their logs in a temporary directory. Warm means that
the same process has served the load before; cold is the first load of a fresh process.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from klamm.client.blocking import NodeClient
from klamm.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from tests.support.apache_kafka import apache_kafka
from tests.support.broker_process import BrokerProcess
from tests.support.jars import classpath, java

TICKS = os.sysconf("SC_CLK_TCK")
PRODUCE_VERSION = 9
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
PERF_LINE = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)
KAFKA_HEAP = "1g"
COLUMNS = {"klamm": "Klamm", "kafka": "Apache Kafka 4.4"}


@dataclass(slots=True)
class Target:
    """A broker under load."""

    name: str
    host: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@dataclass(slots=True)
class Table:
    """Figures by row and broker; the median of a cell is shown."""

    cells: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)

    def add(self, row: str, broker: str, **figures: float) -> None:
        self.cells.setdefault(row, {}).setdefault(broker, []).append(figures)
        print(f"  {broker:>7} {row}: " + _text(figures), file=sys.stderr, flush=True)

    def markdown(self, columns: Mapping[str, str] = COLUMNS) -> str:
        lines = [f"| work | {' | '.join(columns.values())} |", "|---" * (len(columns) + 1) + "|"]
        for row, brokers in self.cells.items():
            shown = [_text(_medians(brokers.get(name, []))) for name in columns]
            lines.append(f"| {row} | {' | '.join(shown)} |")
        return "\n".join(lines)


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]} if rounds else {}


UNITS: dict[str, Callable[[float], str]] = {
    "records_s": lambda value: f"{value / 1000:,.0f} k records/s",
    "requests_s": lambda value: f"{value / 1000:,.1f} k requests/s",
    "transactions_s": lambda value: f"{value:,.0f} transactions/s",
    "retries": lambda value: f"{value:.2f} retries each",
    "p50_us": lambda value: f"p50 {value:,.0f} us",
    "p99_us": lambda value: f"p99 {value:,.0f} us",
    "cpu_s": lambda value: f"{value:.1f} s CPU",
    "cpu_us": lambda value: f"{value:.0f} us CPU each",
    "look_ups_s": lambda value: f"{value:,.0f} look-ups/s",
    "appends_s": lambda value: f"{value:,.0f} appends/s",
    "ratio": lambda value: f"{value:.2f} of it",
    "p99_ratio": lambda value: f"{value:.2f} times the idle p99",
    "mb_s": lambda value: f"{value:,.0f} MB/s",
    "loop_ms": lambda value: f"{value:.1f} ms of them on the loop",
    "seconds": lambda value: f"{value:.2f} s",
    "mb": lambda value: f"{value:.0f} MB",
    "percent": lambda value: f"{value:.0f} %",
}


def _text(figures: dict[str, float]) -> str:
    return ", ".join(UNITS[name](value) for name, value in figures.items())


# -- the brokers


@contextmanager
def klamm(directory: Path) -> Iterator[Target]:
    with BrokerProcess(directory / "klamm") as broker:
        yield Target("klamm", broker.host, broker.port, broker.pid)


@contextmanager
def kafka(directory: Path) -> Iterator[Target]:
    with apache_kafka(directory / "kafka", heap=KAFKA_HEAP) as broker:
        yield Target("kafka", "127.0.0.1", broker.port, broker.pid)


BROKERS = (klamm, kafka)


# -- the loads


def create_topic(target: Target, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    with NodeClient(target.host, target.port) as client:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    assert response.topics[0].error_code == 0, response


def java_producer(target: Target, topic: str, count: int, size: int, *properties: str) -> dict[str, float]:
    """ProducerPerformance at full speed; acks=all, idempotent unless `properties` say otherwise."""
    command = [java(), "-Xmx512m", "-cp", classpath("tools"), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    command += ["--command-property", f"bootstrap.servers={target.host}:{target.port}", "acks=all", *properties]
    before = target.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    rates = PERF_LINE.findall(done.stdout)
    assert rates and f"{count} records sent" in done.stdout, done.stdout + done.stderr
    return {"records_s": float(rates[-1]), "cpu_s": target.cpu_s() - before}


def one_record(
    target: Target, topic: str, connections: int, seconds: float, *, partitions: int = 1
) -> dict[str, float]:
    """One record of 100 B per request, one request in flight per connection, which writes to one partition."""
    sockets = [socket.create_connection((target.host, target.port)) for _ in range(connections)]
    poll = select.epoll()
    by_fd, frames = {}, {}
    for number, each in enumerate(sockets):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames[each.fileno()] = frame = produce_frame(topic, number % partitions)
        each.sendall(frame)
        check_answer(each.recv(4096))
        poll.register(each, select.EPOLLIN)
        by_fd[each.fileno()] = each
    before, started = target.cpu_s(), time.perf_counter()
    latencies = []
    sent_at = {}
    for fd, each in by_fd.items():
        sent_at[fd] = time.perf_counter()
        each.sendall(frames[fd])
    end = started + seconds
    now = started
    while now < end:
        for fd, _ in poll.poll():
            each = by_fd[fd]
            answer = each.recv(4096)
            assert answer, "the broker closed the connection"
            now = time.perf_counter()
            latencies.append(now - sent_at[fd])
            sent_at[fd] = now
            each.sendall(frames[fd])
    elapsed, used = now - started, target.cpu_s() - before
    for each in sockets:
        each.close()
    latencies.sort()
    count = len(latencies)
    return {
        "requests_s": count / elapsed,
        "p50_us": latencies[count // 2] * 1e6,
        "p99_us": latencies[count * 99 // 100] * 1e6,
        "cpu_us": used / count * 1e6,
    }


def produce_frame(topic: str, partition: int = 0) -> bytes:
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())]))
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    body = struct.pack(">hhih", 0, PRODUCE_VERSION, 1, 1) + b"b\0"
    body += ProduceRequest.encode[PRODUCE_VERSION](request, bytearray())
    return struct.pack(">i", len(body)) + body


def check_answer(answer: bytes) -> None:
    """The error code of the one partition: after size, correlation id, tags, topics, name, partitions and index."""
    name_size = answer[10] - 1
    (error_code,) = struct.unpack_from(">h", answer, 11 + name_size + 1 + 4)
    assert error_code == 0, f"error {error_code}"


def first_answer_s(start: Callable[[Path], object], directory: Path) -> tuple[float, float]:
    """Seconds from exec to the first ApiVersions answer, and the resident MB then."""
    directory.mkdir()
    if start is klamm:
        with BrokerProcess(directory / "format"):
            pass  # both are measured on a data directory that exists
        process = BrokerProcess(directory / "format", port=_free_port())
        started = time.perf_counter()
        command = [sys.executable, "-m", "klamm", "start", "--override", f"log.dirs={process.data}"]
        command += ["--override", f"listeners=PLAINTEXT://127.0.0.1:{process.port}"]
        command += ["--override", "klamm.metrics.listener=127.0.0.1:0"]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _ask(process.port)
            elapsed = time.perf_counter() - started
            return elapsed, Target("klamm", "", 0, running.pid).rss_mb()
        finally:
            running.terminate()
            running.wait(30)
    with apache_kafka(directory / "kafka", heap=KAFKA_HEAP) as broker:
        pass
    started = time.perf_counter()
    with apache_kafka(directory / "kafka", heap=KAFKA_HEAP) as broker:
        _ask(broker.port)
        return time.perf_counter() - started, Target("kafka", "", 0, broker.pid).rss_mb()


def _ask(port: int) -> None:
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as asking:
                asking.sendall(API_VERSIONS)
                if asking.recv(4096):
                    return
        except OSError:
            time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# -- the run


def main() -> None:
    parser = argparse.ArgumentParser(description="Klamm beside Apache Kafka.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the load")
    options = parser.parse_args()
    rounds, scale, seconds = (1, 10, 2.0) if options.quick else (options.rounds, 1, 5.0)
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary:
        for number in range(rounds):
            for start in BROKERS:
                directory = Path(temporary) / f"{start.__name__}-{number}"
                elapsed, rss = first_answer_s(start, directory)
                table.add("start to first answer; memory then", start.__name__, seconds=elapsed, mb=rss)
                one_round(table, start, directory / "load", scale, seconds)
                subprocess.run(["rm", "-rf", str(directory)], check=True)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {rounds} round(s)\n")
    print(table.markdown())


def one_round(table: Table, start: Callable[..., object], directory: Path, scale: int, seconds: float) -> None:
    """Every load once on one fresh broker."""
    directory.mkdir()
    with start(directory) as target:  # type: ignore[attr-defined]
        name = target.name
        for topic, partitions in (("six", 6), ("one", 1), ("large", 1), ("single", 1)):
            create_topic(target, topic, partitions)
        count = 5_000_000 // scale
        for state in ("cold", "warm"):
            row = f"{count / 1e6:g} M x 100 B, 6 partitions, Java producer, {state}"
            table.add(row, name, **java_producer(target, "six", count, 100))
        row = f"{count / 1e6:g} M x 100 B, 1 partition, Java producer"
        table.add(row, name, **java_producer(target, "one", count, 100))
        count = 1_000_000 // scale
        row = f"{count / 1e6:g} M x 1 KB, 1 partition, Java producer"
        table.add(row, name, **java_producer(target, "large", count, 1000))
        for connections in (1, 16, 64):
            row = f"one record per request, {connections} connection(s)"
            table.add(row, name, **one_record(target, "single", connections, seconds))
        table.add("memory after the load", name, mb=target.rss_mb())


if __name__ == "__main__":
    main()
