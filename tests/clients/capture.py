"""A proxy before a broker that remembers every request, to see what a client really sent.

with Capture() as proxy:
    ... a broker that advertises proxy.port ...
    proxy.target = (broker.host, broker.port)
    proxy.produced("topic", 0)      the record bytes of each Produce, in order
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Any, Self

from klamm.protocol.apis import ApiKey
from klamm.protocol.messages.metadata import MetadataResponse
from klamm.protocol.messages.produce import ProduceRequest

CHUNK = 1 << 16


class Capture:
    """Listens at once; connections are forwarded to `target`, which may be set later."""

    def __init__(self) -> None:
        self.target = ("", 0)
        self.topic_names: dict[bytes, str] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._streams: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        port = self._listener.getsockname()[1]
        assert isinstance(port, int)
        return port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def learn(self, metadata: MetadataResponse) -> None:
        """Newer requests name topics by id only."""
        self.topic_names |= {topic.topic_id: topic.name or "" for topic in metadata.topics}

    def produced(self, topic: str, partition: int) -> list[bytes]:
        """What every Produce held for the partition."""
        found = []
        for stream in self._streams:
            for version, request in _produce_requests(bytes(stream)):
                for data in request.topic_data:
                    name = data.name if version < 13 else self.topic_names[data.topic_id]
                    if name == topic:
                        found += [bytes(entry.records) for entry in data.partition_data if entry.index == partition]
        return found

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for open_socket in self._sockets:
            _shut(open_socket)
        for thread in self._threads:
            thread.join(10)
        for open_socket in [self._listener, *self._sockets]:
            open_socket.close()

    def _start(self, work: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self.target)
            self._sockets += [client, broker]
            stream = bytearray()
            self._streams.append(stream)
            self._start(_pump, client, broker, stream)
            self._start(_pump, broker, client, None)


def _pump(source: socket.socket, sink: socket.socket, stream: bytearray | None) -> None:
    try:
        while data := source.recv(CHUNK):
            if stream is not None:
                stream += data
            sink.sendall(data)
    except OSError:
        pass  # one side is gone, so the other goes
    _shut(source)
    _shut(sink)


def _shut(open_socket: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is shut already
        open_socket.shutdown(socket.SHUT_RDWR)


def _produce_requests(stream: bytes) -> list[tuple[int, Any]]:
    """(version, request) of every Produce in the bytes that a client has sent."""
    found = []
    position = 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        frame = stream[position + 4 : position + 4 + size]
        position += 4 + size
        key, version, _, client_id_size = struct.unpack_from(">hhih", frame)
        if key == ApiKey.PRODUCE:
            body = 10 + max(client_id_size, 0) + (1 if version >= 9 else 0)  # no tagged fields in the header
            cls: Any = ProduceRequest
            found.append((version, cls.decode[version](frame, body)[0]))
    return found
