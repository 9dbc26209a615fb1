"""Measure one node under many connections, producers, waiting consumers and readers, and large requests. Klamm only.

    python -m bench scale [--quick] [--directory DIR] [--soak MINUTES]

- 5,000 idle connections: memory of each.
- 1,000 connections that produce one record per request to 12 partitions.
- 1,000 long polls on one partition: the time from one append until the last has its record; each is woken once.
- Eight readers of one topic, compared with one: CPU of the broker per GB sent.
- A request of 100 MB: memory before and after.
- Full Metadata responses with 10,000 partitions, requested all the time: the p99 of a producer meanwhile.
- A consumer that reads cold data from the disk (the page cache dropped, if that is allowed): the p99 of a producer
  meanwhile, beside the idle one.
- With --soak: memory in the last five of so many minutes of load.

Needs the generator of `bench/load` (Go).
"""

from __future__ import annotations

import argparse
import resource
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import loads
from bench.measure import Table, Target, create_topic, machine
from bench.page import write_section
from bench.storage import drop_caches
from klamm.client.blocking import NodeClient
from klamm.client.exchange import Exchange
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from klamm.protocol.records.batch import Record, encode_batch
from tests.support.broker_process import BrokerProcess

COLUMNS = {"klamm": "Klamm"}
FETCH_VERSION = 11
LARGE_BYTES = 100 << 20


@dataclass(frozen=True, slots=True)
class Sizes:
    idle: int
    producers: int
    waiting: int
    records: int
    partitions: int
    cold_gb: float
    seconds: float


FULL = Sizes(idle=5000, producers=1000, waiting=1000, records=1_000_000, partitions=10_000, cold_gb=10, seconds=10)
QUICK = Sizes(idle=1000, producers=200, waiting=200, records=200_000, partitions=1000, cold_gb=1, seconds=3)


@contextmanager
def broker(directory: Path, **config: object) -> Iterator[Target]:
    overrides = {key.replace("_", "."): value for key, value in config.items()}
    with BrokerProcess(directory, overrides) as process:
        yield Target("klamm", process.host, process.port, process.pid)


def idle(table: Table, target: Target, sizes: Sizes) -> None:
    before = target.rss_mb()
    with ExitStack() as stack:
        for _ in range(sizes.idle):
            stack.enter_context(socket.create_connection((target.host, target.port)))
        time.sleep(1)
        each = (target.rss_mb() - before) * 1024 / sizes.idle
    table.add(f"{sizes.idle:,} idle connections", "klamm", kb_each=each)


def producers(table: Table, target: Target, sizes: Sizes) -> None:
    create_topic(target, "many", 12)
    figures = loads.produce(target, "many", sizes.producers, sizes.seconds, partitions=12)
    table.add(f"one record per request, {sizes.producers:,} connections", "klamm", **figures, mb=target.rss_mb())


def waiting(table: Table, target: Target, sizes: Sizes) -> None:
    """Measure long polls: one append wakes each of them once."""
    create_topic(target, "waiting", 1)
    frame = fetch_frame("waiting", 0, max_wait_ms=60_000)
    taken = []
    with ExitStack() as stack, NodeClient(target.host, target.port) as client:
        sockets = [
            stack.enter_context(socket.create_connection((target.host, target.port))) for _ in range(sizes.waiting)
        ]
        poll = select.epoll()
        for each in sockets:
            poll.register(each, select.EPOLLIN)
        for offset in range(5):
            frame = fetch_frame("waiting", offset, max_wait_ms=60_000)
            for each in sockets:
                each.sendall(frame)
            time.sleep(1)
            assert not poll.poll(0), "a long poll was answered without a record"
            began = time.perf_counter()
            answered = client.request(produce_request("waiting", bytes(100)), 9)
            assert answered.responses[0].partition_responses[0].error_code == 0
            missing = {each.fileno(): each for each in sockets}
            while missing:
                for fd, _ in poll.poll(10):
                    assert len(missing.pop(fd).recv(65536)) > 60
            taken.append((time.perf_counter() - began) * 1e3)
    table.add(f"{sizes.waiting:,} long polls on one partition, until the last answer", "klamm", ms=sorted(taken)[2])


def readers(table: Table, target: Target, sizes: Sizes) -> None:
    create_topic(target, "read", 1)
    loads.java_producer(target, "read", sizes.records, 1000)
    for connections in (1, 8):
        figures = loads.fetch(target, "read", connections, 1 << 20, sizes.seconds)
        table.add(f"fetch 1 MB at a time, {connections} reader(s)", "klamm", **figures)


def large(table: Table, directory: Path, sizes: Sizes) -> None:
    config = {"message_max_bytes": LARGE_BYTES + 4096, "socket_request_max_bytes": LARGE_BYTES + 65536}
    with broker(directory, **config) as target, NodeClient(target.host, target.port, timeout_s=120) as client:
        create_topic(target, "large", 1)
        before = target.rss_mb()
        request = produce_request("large", bytes(LARGE_BYTES))
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            answered = client.request(request, 9)
            assert answered.responses[0].partition_responses[0].error_code == 0
            taken.append(time.perf_counter() - began)
        table.add("a request of 100 MB; memory that stays in use", "klamm", seconds=min(taken),
                  mb=target.rss_mb() - before)  # fmt: skip


def metadata(table: Table, directory: Path, sizes: Sizes) -> None:
    with broker(directory) as target:
        for number in range(20):
            create_topic(target, f"topic-{number}", sizes.partitions // 20)
        create_topic(target, "single", 1)
        loads.produce(target, "single", 1, 1.0)
        quiet = loads.produce(target, "single", 1, sizes.seconds)
        table.add("one record per request, idle", "klamm", **quiet)
        with meanwhile(target, lambda client: client.request_frame(MetadataRequest(topics=None), 9)):
            busy = loads.produce(target, "single", 1, sizes.seconds)
        table.add(f"the same while all {sizes.partitions:,} partitions are described 20 times a second",
                  "klamm", **busy)  # fmt: skip


class Asking(NodeClient):
    """A client that does not decode responses, so that its own work is not measured."""

    def request_frame(self, message: object, version: int) -> None:
        frame = Exchange("bench").request(message, version).frame
        with socket.create_connection((self.host, self.port)) as channel:
            channel.sendall(frame)
            left = struct.unpack(">i", channel.recv(4, socket.MSG_WAITALL))[0]
            while left:
                left -= len(channel.recv(min(left, 1 << 20)))


@contextmanager
def meanwhile(target: Target, ask: object) -> Iterator[None]:
    """Call `ask` twenty times a second for as long as the context lasts."""
    over = threading.Event()

    def work() -> None:
        client = Asking(target.host, target.port)
        while not over.wait(0.05):
            ask(client)  # type: ignore[operator]

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def cold(table: Table, directory: Path, sizes: Sizes) -> None:
    """Measure a catch-up read of data that is no longer in memory, and a producer to another topic."""
    with broker(directory) as target:
        create_topic(target, "cold", 1)
        create_topic(target, "single", 1)
        loads.java_producer(target, "cold", int(sizes.cold_gb * 1e6), 1000)
        loads.produce(target, "single", 1, 1.0)
        quiet = loads.produce(target, "single", 1, sizes.seconds)
        table.add("one record per request, before a cold read", "klamm", **quiet)
        drop_caches()
        began = time.perf_counter()
        reader = subprocess.Popen(
            [str(loads.LOAD), "drain", target.address, "cold", "-bytes", str(4 << 20)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        taken = []
        while reader.poll() is None:
            taken.append(loads.produce(target, "single", 1, 1.0))
        seconds = time.perf_counter() - began
        assert reader.returncode == 0
        figures = {name: sorted(each[name] for each in taken)[len(taken) // 2] for name in taken[0]}
        ratio = figures["p99_us"] / quiet["p99_us"]
        row = f"the same while {sizes.cold_gb:g} GB are read from the disk at {sizes.cold_gb * 1e3 / seconds:,.0f} MB/s"
        table.add(row, "klamm", **figures, p99_ratio=ratio)


def soak(table: Table, directory: Path, minutes: float) -> None:
    """Run producers and readers in turns; record how much the memory varies in the last half."""
    with broker(directory, log_retention_bytes=1 << 30) as target:
        create_topic(target, "soak", 6)
        seen = []
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            loads.java_producer(target, "soak", 1_000_000, 100)
            loads.produce(target, "soak", 64, 5.0, partitions=6)
            loads.fetch(target, "soak", 4, 1 << 16, 5.0)
            seen.append((time.monotonic(), target.rss_mb()))
        last = [mb for at, mb in seen if at > end - minutes * 30]
        table.add(f"soak of {minutes:g} minutes: memory", "klamm", mb=max(last))
        table.add("the same: growth within the last half", "klamm", mb=max(last) - min(last))


# -- frames


def fetch_frame(topic: str, offset: int, *, max_wait_ms: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics, session_epoch=-1)
    return bytes(Exchange("bench").request(request, FETCH_VERSION).frame)


def produce_request(topic: str, value: bytes) -> ProduceRequest:
    records = bytes(encode_batch([Record(0, int(time.time() * 1000), None, value, ())]))
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller, some two minutes; writes nothing")
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="memory under load for so long")
    options = parser.parse_args()
    if not loads.available(loads.LOAD):
        raise SystemExit("the load generator is missing: run `make bench-tools` with Go installed")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sizes = QUICK if options.quick else FULL
    table = Table()
    with tempfile.TemporaryDirectory(prefix="klamm-bench-", dir=options.directory) as temporary:
        path = Path(temporary)
        with broker(path / "first") as target:
            for one in (idle, producers, waiting, readers):
                one(table, target, sizes)
        shutil.rmtree(path / "first")
        for another in (large, metadata, cold):
            another(table, path / another.__name__, sizes)
            shutil.rmtree(path / another.__name__)
        if options.soak:
            soak(table, path / "soak", options.soak)
    body = f"Measured on {machine()}.\n\n{table.markdown(COLUMNS)}"
    print(body)
    if not options.quick:
        write_section("scale", body)


if __name__ == "__main__":
    main()
