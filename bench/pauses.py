"""The worst latency that another client sees while the broker works: the table of pauses.

    python -m bench pauses

`Probe` is that other client: a process that asks for ApiVersions every millisecond. `with probe.watch() as pause: ...`
says in `pause.worst_ms` how long its slowest question of that time took.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from bench.measure import API_VERSIONS

EVERY_S = 0.001
TIMEOUT_S = 600.0


@dataclass(slots=True)
class Pause:
    """What a probe has seen while it watched."""

    worst_ms: float = 0.0
    count: int = 0


class Probe:
    """Another client of the broker at `port`, in a process of its own, so that what loads the broker does not slow
    it."""

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
        """The pause is filled in when the block is over; a question that is open then is waited for."""
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
