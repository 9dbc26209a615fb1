"""Count the broker's instructions for one request with valgrind: a figure that a busy machine does not change.

    python -m bench instructions [--against DIR] [--override KEY=VALUE ...]

A broker runs under callgrind and gets the same requests again and again, one in flight on each connection. A short run
is subtracted from a long one, so start and shutdown do not count; the rest is divided by the requests. The kernel's
share is not measured. `--against` adds another checkout, `--override` this tree with other settings: it shows the cost
of a change or a feature where nothing else can measure a few per cent. Takes a minute for each column.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import struct
import tempfile
from pathlib import Path

from bench.loads import produce_frame
from bench.measure import Target, create_topic
from klamm.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker_process import BrokerProcess

CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
COLLECTED = re.compile(r"Collected : (\d+)")
FETCH_VERSION = 12
CONNECTIONS = (1, 64)
SHORT_REQUESTS, LONG_REQUESTS = 1000, 4000
TOPIC = "t"
SIZE = struct.Struct(">i")


def fetch_frame() -> bytes:
    """Return a Fetch of the topic's first record, without a session."""
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
    )
    body = struct.pack(">hhih", 1, FETCH_VERSION, 1, 1) + b"b\0"
    body += FetchRequest.encode[FETCH_VERSION](request, bytearray())
    return SIZE.pack(len(body)) + body


def ask(connection: socket.socket) -> None:
    """Read one response."""
    (size,) = SIZE.unpack(connection.recv(4, socket.MSG_WAITALL))
    connection.recv(size, socket.MSG_WAITALL)


def collected(tree: Path, overrides: dict[str, str], frame: bytes, connections: int, requests: int) -> int:
    """Return the instructions of a broker from start to end with so many requests."""
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as directory:
        prefix = ("env", "-C", str(tree), "PYTHONHASHSEED=0", *CALLGRIND)
        broker = BrokerProcess(Path(directory) / "data", overrides, prefix=prefix)
        with broker:
            create_topic(Target("", broker.host, broker.port, broker.pid), TOPIC, 1)
            clients = [broker.connect(60) for _ in range(connections)]
            for one in (produce_frame(TOPIC), *[frame] * (requests // connections)):
                for client in clients:
                    client.sendall(one)
                for client in clients:
                    ask(client)
            for client in clients:
                client.close()
        found = COLLECTED.search(broker.log())
    assert found is not None, broker.log()
    return int(found[1])


def per_request(tree: Path, overrides: dict[str, str], frame: bytes, connections: int) -> float:
    short, long = (
        collected(tree, overrides, frame, connections, requests) for requests in (SHORT_REQUESTS, LONG_REQUESTS)
    )
    count = LONG_REQUESTS // connections * connections - SHORT_REQUESTS // connections * connections
    return (long - short) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="this tree with a setting")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    columns: dict[str, tuple[Path, dict[str, str]]] = {"this tree": (Path(), {})}
    if options.against is not None:
        columns[str(options.against)] = (options.against, {})
    if options.override:
        columns[", ".join(options.override)] = (Path(), dict(one.split("=", 1) for one in options.override))
    print(f"| thousand instructions a request | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, frame in (("Produce, one record", produce_frame(TOPIC)), ("Fetch", fetch_frame())):
        for connections in CONNECTIONS:
            cells = [per_request(tree.resolve(), over, frame, connections) for tree, over in columns.values()]
            row = " | ".join(f"{cell / 1000:.1f}" for cell in cells)
            print(f"| {name}, {connections} connection(s) | {row} |", flush=True)


if __name__ == "__main__":
    main()
