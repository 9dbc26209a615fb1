"""Measure the network layer alone: an echo of small requests, beside a bare uvloop echo without frames.

    python bench/network.py [--seconds 3] [--connections 1,16,64] [--strace]

Each line: requests/s, the server's CPU microseconds per request, and the difference to the bare echo, which spends
almost all its CPU on system calls (one `epoll_wait`, `recv`, `send` per request when one connection works). Client and
server are separate processes. With --strace the server runs under `strace -c -f`, and system calls are counted, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from klamm.broker.network.connection import Connection
from klamm.broker.network.limits import NetworkLimits
from klamm.broker.network.network import Network
from klamm.broker.network.response import Response
from klamm.storage.clock import SystemClock

REQUEST = struct.pack(">ihhih", 60, 3, 12, 7, -1) + b"x" * 50
REPLY_BYTES = 64


async def serve_layer() -> None:
    def dispatch(_: Connection, frame: memoryview) -> Response:
        response = bytearray(4 + len(frame))
        response[:4] = b"\0\0\0\x3c"
        response[4:] = frame
        return Response(response)

    network = Network(dispatch, NetworkLimits(), clock=SystemClock())
    listener = network.listen("PLAINTEXT", "127.0.0.1", 0)
    listener.start()
    print(listener.address[1], flush=True)
    await wait_for_signal()
    await network.drain(1.0)


async def serve_bare() -> None:
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    listening.setblocking(False)
    buffer = memoryview(bytearray(65536))

    def accept() -> None:
        channel, _ = listening.accept()
        channel.setblocking(False)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def readable() -> None:
            try:
                size = channel.recv_into(buffer)
            except ConnectionResetError:
                size = 0
            if size:
                channel.send(buffer[:size])
            else:
                loop.remove_reader(channel)
                channel.close()

        loop.add_reader(channel, readable)

    loop.add_reader(listening, accept)
    print(listening.getsockname()[1], flush=True)
    await wait_for_signal()


async def wait_for_signal() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


def drive(port: int, connections: int, depth: int, seconds: float) -> int:
    """Keep `depth` requests in flight on each connection; return how many were answered."""
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    for _ in range(connections):
        channel = socket.create_connection(("127.0.0.1", port))
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.setblocking(False)
        sockets[channel.fileno()] = channel
        poll.register(channel.fileno(), select.EPOLLIN)
        channel.send(REQUEST * depth)
    rest = dict.fromkeys(sockets, 0)
    done = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for descriptor, _ in poll.poll(1.0):
            rest[descriptor] += len(sockets[descriptor].recv(1 << 20))
            count, rest[descriptor] = divmod(rest[descriptor], REPLY_BYTES)
            if count:
                done += count
                sockets[descriptor].send(REQUEST * count)
    for channel in sockets.values():
        channel.close()
    return done


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(fields[0]) / 1e9


def measure(mode: str, connections: int, depth: int, seconds: float, strace: bool) -> tuple[float, float, float]:
    """Return requests per second, CPU us per request, system calls per request (0: not counted)."""
    command = [sys.executable, __file__, "--serve", mode]
    with tempfile.NamedTemporaryFile("r", suffix=".strace") as counts:
        if strace:
            command = ["strace", "-c", "-f", "-o", counts.name, *command]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = int(server.stdout.readline())
        drive(port, connections, depth, 0.3)
        before, started = cpu_seconds(server.pid), time.perf_counter()
        done = drive(port, connections, depth, seconds)
        elapsed, used = time.perf_counter() - started, cpu_seconds(server.pid) - before
        if strace:
            child = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
            os.kill(int(child[0]), signal.SIGTERM)
        else:
            server.terminate()
        server.wait()
        total = re.search(r"^100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s+(?:\d+\s+)?total", counts.read(), re.MULTILINE)
        calls = int(total.group(1)) / (done * (1 + 0.3 / seconds)) if total else 0.0
    return done / elapsed, used / done * 1e6, calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--serve", choices=("layer", "bare"))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--strace", action="store_true")
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve_layer() if options.serve == "layer" else serve_bare())
        return
    if options.strace and not shutil.which("strace"):
        sys.exit("strace is not installed")
    print("connections depth  requests/s  CPU us bare us layer us syscalls")
    for connections in map(int, options.connections.split(",")):
        for depth in (1, 16):
            bare = measure("bare", connections, depth, options.seconds, False)
            layer = measure("layer", connections, depth, options.seconds, False)
            calls = measure("layer", connections, depth, options.seconds, True)[2] if options.strace else 0.0
            print(
                f"{connections:>11} {depth:>5} {layer[0]:>11,.0f} {layer[1]:>7.2f} {bare[1]:>7.2f}"
                f" {layer[1] - bare[1]:>8.2f} {calls:>8.2f}"
            )


if __name__ == "__main__":
    main()
