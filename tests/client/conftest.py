"""A node of sockets: answers whatever a test says, and parses request headers by itself."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Asked:
    """One request as the node saw it."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    rest: bytes  # after the client id: the header's tagged fields if flexible, then the body

    def answer(self, message: Any, version: int | None = None, *, header_tags: bytes | None = None) -> bytes:
        """A whole response frame; `header_tags` overrides what follows the correlation id."""
        version = self.version if version is None else version
        cls = type(message)
        flexible = cls.flexible[0] <= version <= cls.flexible[1] and self.api_key != 18
        tags = (b"\0" if flexible else b"") if header_tags is None else header_tags
        payload = struct.pack(">i", self.correlation_id) + tags + cls.encode[version](message, bytearray())
        return struct.pack(">i", len(payload)) + payload


Script = Callable[[Asked], "bytes | None"]
"""What to send for a request; b"" for nothing, None to close the connection."""


def parse(frame: bytes) -> Asked:
    api_key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
    text = None if length < 0 else frame[10 : 10 + length].decode()
    return Asked(api_key, version, correlation_id, text, frame[10 + max(length, 0) :])


@dataclass
class FakeNode:
    """Listens on loopback; serves one connection at a time in a thread."""

    script: Script
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self.listener.getsockname()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                self._talk(connection, stream)

    def _talk(self, connection: socket.socket, stream: Any) -> None:
        try:
            while len(prefix := stream.read(4)) == 4:
                asked = parse(stream.read(struct.unpack(">i", prefix)[0]))
                self.asked.append(asked)
                reply = self.script(asked)
                if reply is None:
                    return
                connection.sendall(reply)
        except OSError:
            return  # the client went away


@pytest.fixture
def start_node() -> Iterator[Callable[[Script], FakeNode]]:
    started: list[FakeNode] = []

    def start(script: Script) -> FakeNode:
        started.append(FakeNode(script))
        return started[-1]

    yield start
    for node in started:
        node.stop()
