"""The loads: stock tools where they exist, otherwise the generator in `bench/load` (Go) or a small one here.

Each runs against a `Target` and returns figures for a `Table`, among them the broker's CPU time. `available` says
whether a tool exists (`make bench-tools` builds them with Go and cargo); a suite leaves out loads without their tool.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Target
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from tests.support.jars import classpath, java

PRODUCE_VERSION = 9
PERF_LINE = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)
RDKAFKA_LINE = re.compile(r"^% (\d+) messages .*? consumed in (\d+)ms", re.MULTILINE)
LATENCY_LINE = re.compile(r"^Avg latency: ([\d.]+) ms", re.MULTILINE)
TOOLS = Path(__file__).parent / "load" / "target"
LOAD, RDKAFKA = TOOLS / "load", TOOLS / "rdkafka_performance"


def available(tool: Path) -> bool:
    return tool.exists()


# -- stock tools


def java_producer(target: Target, topic: str, count: int, size: int, *properties: str) -> dict[str, float]:
    """Run ProducerPerformance at full speed; acks=all, idempotent unless `properties` say otherwise."""
    command = [java(), "-Xmx512m", "-cp", classpath("tools"), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    command += ["--command-property", f"bootstrap.servers={target.host}:{target.port}", "acks=all", *properties]
    before = target.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    rates = PERF_LINE.findall(done.stdout)
    assert rates and f"{count} records sent" in done.stdout, done.stdout + done.stderr
    return {"records_s": float(rates[-1]), "cpu_s": target.cpu_s() - before}


def java_consumer(target: Target, topic: str, count: int) -> dict[str, float]:
    """Run ConsumerPerformance; its start and the join of its group are not counted."""
    command = [java(), "-Xmx512m", "-cp", classpath("tools"), "org.apache.kafka.tools.ConsumerPerformance"]
    command += ["--topic", topic, "--num-records", str(count), "--bootstrap-server", target.address]
    command += ["--timeout", "60000"]
    before = target.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    heads, row = (
        [cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.count(",") > 5
    )
    found = dict(zip(heads, row, strict=True))
    assert int(found["data.consumed.in.nMsg"]) >= count, done.stdout + done.stderr
    return {"records_s": float(found["fetch.nMsg.sec"]), "cpu_s": target.cpu_s() - before}


def rdkafka_consumer(target: Target, topic: str, partitions: int, count: int) -> dict[str, float]:
    """Run librdkafka's rdkafka_performance from the beginning of each partition."""
    command = [str(RDKAFKA), "-C", "-t", topic, "-o", "beginning", "-b", target.address, "-c", str(count), "-q"]
    for partition in range(partitions):
        command += ["-p", str(partition)]
    before, began = target.cpu_s(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    elapsed = time.perf_counter() - began
    found = RDKAFKA_LINE.findall(done.stdout + done.stderr)
    if found:
        count, elapsed = int(found[-1][0]), int(found[-1][1]) / 1000
    return {"records_s": count / elapsed, "cpu_s": target.cpu_s() - before}


def java_latency(target: Target, topic: str, count: int) -> dict[str, float]:
    """Run EndToEndLatency: only the average, since its percentiles are whole milliseconds."""
    command = [java(), "-Xmx512m", "-cp", classpath("tools"), "org.apache.kafka.tools.EndToEndLatency"]
    command += ["--bootstrap-server", target.address, "--topic", topic, "--num-records", str(count)]
    command += ["--producer-acks", "all", "--record-size", "100"]
    before = target.cpu_s()
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    found = LATENCY_LINE.findall(done.stdout)
    assert found, done.stdout + done.stderr
    return {"average_us": float(found[-1]) * 1000, "cpu_us": (target.cpu_s() - before) / count * 1e6}


# -- one request after the other


def load(target: Target, kind: str, topic: str, *options: str) -> dict[str, float]:
    """Run the generator once; return the figures from its line of JSON."""
    done = subprocess.run(
        [str(LOAD), kind, target.address, topic, *options], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout)
    return found


def produce(
    target: Target, topic: str, connections: int, seconds: float, partitions: int = 1, options: Sequence[str] = ()
) -> dict[str, float]:
    """Produce one record of 100 B per request, one in flight per connection; check the generator's CPU share."""
    before = target.cpu_s()
    wanted = ["-connections", str(connections), "-partitions", str(partitions), "-seconds", str(seconds), *options]
    found = load(target, "produce", topic, *wanted)
    return {
        "requests_s": found["requests"] / found["seconds"],
        "p50_us": found["p50_us"],
        "p99_us": found["p99_us"],
        "cpu_us": (target.cpu_s() - before) / found["requests"] * 1e6,
    }


def handshakes(target: Target, seconds: float, options: Sequence[str]) -> dict[str, float]:
    """TLS connections made and closed, two at a time."""
    before = target.cpu_s()
    found = load(target, "handshakes", "-", "-connections", "2", "-seconds", str(seconds), *options)
    return {
        "requests_s": found["requests"] / found["seconds"],
        "p50_us": found["p50_us"],
        "p99_us": found["p99_us"],
        "cpu_us": (target.cpu_s() - before) / found["requests"] * 1e6,
    }


def fetch(
    target: Target, topic: str, connections: int, size: int, seconds: float, options: Sequence[str] = ()
) -> dict[str, float]:
    """Fetch a partition from the page cache, again and again."""
    before = target.cpu_s()
    wanted = ["-connections", str(connections), "-bytes", str(size), "-seconds", str(seconds), *options]
    found = load(target, "fetch", topic, *wanted)
    used = target.cpu_s() - before
    return {
        "gb_s": found["bytes"] / found["seconds"] / 1e9,
        "requests_s": found["requests"] / found["seconds"],
        "cpu_s_gb": used / ((found["bytes"] + found["walked_bytes"]) / 1e9),
    }


def latency(target: Target, topic: str, seconds: float, rate: int = 200) -> dict[str, float]:
    """Measure the time from the send of a record to its arrival at a waiting reader."""
    found = load(target, "latency", topic, "-rate", str(rate), "-seconds", str(seconds))
    return {"p50_us": found["p50_us"], "p99_us": found["p99_us"]}


def one_record(
    target: Target, topic: str, connections: int, seconds: float, *, partitions: int = 1
) -> dict[str, float]:
    """Produce one record of 100 B per request, one request in flight per connection; each writes to one partition."""
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
    """Check the error code of the one partition, after size, correlation id, tags, topics, name, count and index."""
    name_size = answer[10] - 1
    (error_code,) = struct.unpack_from(">h", answer, 11 + name_size + 1 + 4)
    assert error_code == 0, f"error {error_code}"
