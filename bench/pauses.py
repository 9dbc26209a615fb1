"""Measure the worst latency that another client sees while the broker works: the table of pauses.

    python -m bench pauses [--rounds 3] [--api NAME | --api special] [--quick]

Every API at its highest version gets requests of 10 MB, with the most elements that are allowed, in one of its lists
after the other (`bench.large_requests`). The worst of each API, and some special ones, are sent again in a frame of
`socket.request.max.bytes`. Peak memory is the most by which the process has grown, in frames. Each figure is the best
of some rounds, since this client and the broker are seldom alone on a machine.

`Probe` is that other client: a process that sends ApiVersions every millisecond. `with probe.watch() as pause: ...`
sets `pause.worst_ms` to the time of its slowest request meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.large_requests import LargeRequest, beyond, expanding, header_tags, large_requests
from bench.measure import API_VERSIONS
from klamm.broker.apis.registry import HANDLERS
from klamm.protocol.apis import API, ApiKey
from klamm.protocol.messages.find_coordinator import FindCoordinatorRequest
from klamm.protocol.messages.metadata import MetadataRequest
from klamm.protocol.records.compression import Codec
from tests.faults.network_cases import Broker, now_ms
from tests.faults.test_number_limits import LAST, TOPIC, Deep
from tests.support.broker_process import BrokerProcess

EVERY_S = 0.001
TIMEOUT_S = 600.0
SPECIAL = "special"
GOOD_MS = 20.0  # a shorter pause needs no further rounds
MB = 1 << 20
FRAME_BYTES = 10 * MB
MAX_FRAME_BYTES = 100 * MB - 4
MAX_ELEMENTS = 100_000
PARTITIONS = 50
CONFIG = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "auto.create.topics.enable": "false",
}
HEAD = "| request | frame | elements | worst latency, ms | peak memory, frames | it took |\n|---|---|---|---|---|---|"


@dataclass(slots=True)
class Pause:
    """The observations of a probe while it watched."""

    worst_ms: float = 0.0
    count: int = 0


class Probe:
    """Another client of the broker at `port`, in its own process, so that this process's load does not slow it."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ask, args=(host, port, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    @contextmanager
    def watch(self) -> Iterator[Pause]:
        """Watch during the block, then fill in the pause; wait for a request that is open at its end."""
        self._pipe.send("begin")
        assert self._pipe.recv() == "watching"
        pause = Pause()
        try:
            yield pause
        finally:
            self._pipe.send("end")
            pause.worst_ms, pause.count = self._pipe.recv()


def _ask(host: str, port: int, pipe: Connection) -> None:
    with socket.create_connection((host, port), TIMEOUT_S) as asking:
        asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worst_s, count = 0.0, 0
        while True:
            started = time.perf_counter()
            asking.sendall(API_VERSIONS)
            left = int.from_bytes(_receive(asking, 4))
            _receive(asking, left)
            worst_s, count = max(worst_s, time.perf_counter() - started), count + 1
            if pipe.poll(EVERY_S):
                if pipe.recv() == "begin":
                    worst_s, count = 0.0, 0
                    pipe.send("watching")
                else:
                    pipe.send((worst_s * 1000, count))


def _receive(asking: socket.socket, size: int) -> bytes:
    data = asking.recv(size, socket.MSG_WAITALL)
    assert len(data) == size, "the broker has closed the probe's connection"
    return data


@dataclass(slots=True)
class Row:
    """The effect of one request on another client, and on the memory."""

    request: LargeRequest
    worst_ms: float
    seconds: float
    peak_bytes: int
    outcome: str

    def __str__(self) -> str:
        size = len(self.request.frame)
        multiple = f"{self.peak_bytes / size:.1f}" if size > MB else f"({self.peak_bytes / MB:.0f} MB)"
        return (
            f"| {self.request.title} | {size / MB:.1f} MB | {self.request.elements:,} | {self.worst_ms:.1f} "
            f"| {multiple} | {self.seconds:.2f} s, {self.outcome} |"
        )


class Requests:
    """The half of the suite that sends large requests."""

    def __init__(self, broker: BrokerProcess, probe: Probe, rounds: int) -> None:
        self._broker = broker
        self._probe = probe
        self._rounds = rounds

    def measure(self, request: LargeRequest) -> Row:
        """Return the best of some rounds, since others use this machine, too."""
        rows: list[Row] = []
        while len(rows) < self._rounds and not (rows and rows[-1].worst_ms < GOOD_MS):
            rows.append(self._measure(request))
        return min(rows, key=lambda row: row.worst_ms)

    def _measure(self, request: LargeRequest) -> Row:
        before = self._broker.rss_bytes()
        Path(f"/proc/{self._broker.pid}/clear_refs").write_text("5")
        started = time.perf_counter()
        with self._probe.watch() as pause:
            outcome = self._send(request.frame)
        seconds = time.perf_counter() - started
        return Row(request, pause.worst_ms, seconds, max(0, _peak_bytes(self._broker.pid) - before), outcome)

    def _send(self, frame: bytes) -> str:
        with self._broker.connect(TIMEOUT_S) as sending:
            try:
                sending.sendall(frame)
                size = int.from_bytes(sending.recv(4, socket.MSG_WAITALL))
                left = size
                while left and (data := sending.recv(min(left, MB))):
                    left -= len(data)
                return "answered" if size and not left else "closed"
            except ConnectionError:
                return "closed"


def _peak_bytes(pid: int) -> int:
    return int(re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many")
    parser.add_argument("--api", help="only APIs with this in their name")
    parser.add_argument("--quick", action="store_true", help="frames of 10 MB only")
    options = parser.parse_args()
    print(HEAD)
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory,
        BrokerProcess(Path(directory) / "data", CONFIG) as broker,
    ):
        _prepare(broker)
        with Probe(broker.port) as probe:
            _measure_requests(broker, Requests(broker, probe, options.rounds), options)


def _prepare(broker: BrokerProcess) -> None:
    with Broker(broker.port) as peer:
        peer.create(TOPIC, partitions=PARTITIONS, configs={"max.message.bytes": str(FRAME_BYTES)})
        peer.prepare()
        for key_type, key in enumerate(("g", "tx")):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            assert peer.ask(request, 4).coordinators[0].error_code == 0


def _measure_requests(broker: BrokerProcess, requests: Requests, options: argparse.Namespace) -> None:
    with Broker(broker.port) as peer:
        topics = peer.ask(MetadataRequest(topics=None), 12).topics
        deep = Deep(peer, next(topic.topic_id for topic in topics if topic.name == TOPIC), None)
        for api_key in (*(key for key in HANDLERS if key not in LAST), *LAST):
            if (options.api or "").lower() in API[api_key].name.lower():
                _measure_api(requests, deep, ApiKey(api_key), options.quick)
    if not options.api or options.api == SPECIAL:
        for request in special(options.quick):
            print(requests.measure(request), flush=True)


def _measure_api(requests: Requests, deep: Deep, api_key: ApiKey, quick: bool) -> None:
    worst: Row | None = None
    for request in large_requests(deep, api_key, MAX_ELEMENTS, FRAME_BYTES):
        row = requests.measure(request)
        print(row, flush=True)
        if worst is None or row.worst_ms > worst.worst_ms:
            worst = row
    if worst is not None and not quick:
        frame = len(worst.request.frame)
        larger = (MAX_FRAME_BYTES).to_bytes(4) + worst.request.frame[4:] + bytes(MAX_FRAME_BYTES + 4 - frame)
        print(requests.measure(replace(worst.request, frame=larger)), flush=True)


def special(quick: bool) -> Iterator[LargeRequest]:
    """Yield the requests that do not follow from the declarations."""
    for size in (FRAME_BYTES,) if quick else (FRAME_BYTES, MAX_FRAME_BYTES):
        yield beyond(size)
        yield header_tags(size)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        for count in (1, 1_000_000):
            yield expanding(codec, TOPIC, 99_000_000, now_ms(), records=count)


if __name__ == "__main__":
    main()
