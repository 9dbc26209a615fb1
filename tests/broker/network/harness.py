"""A network with a dispatcher that does what the requests say, and clients on loopback.

Requests are text: `echo ...` is answered at once; `wait NAME` (`task NAME`: by a task) when the test calls
`answer(NAME)`; `throttle MS` at once, and its connection is throttled; `none` not at all; `refuse` closes; `bug`
raises; `big SIZE` gives as many bytes; `region AT SIZE` sends bytes of a file between `<` and `>`. Two zero bytes in
front, the API key of Produce, make it a Produce request.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import uvloop

from klamm.broker.network.connection import Connection
from klamm.broker.network.limits import ListenerLimits, NetworkLimits
from klamm.broker.network.listener import Listener
from klamm.broker.network.network import Network
from klamm.broker.network.response import (
    CloseConnection,
    DispatchResult,
    PendingResponse,
    Response,
    reply_before_others,
)
from klamm.broker.security.tls.endpoint import TlsEndpoint
from klamm.protocol.regions import FileRegion
from tests.support.manual_clock import ManualClock

PRODUCE = b"\0\0"


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def run(main: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(main, 30))


class Node:
    """One network with one listener."""

    def __init__(
        self,
        limits: NetworkLimits | None = None,
        listener_limits: ListenerLimits | None = None,
        tls: TlsEndpoint | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.seen: list[bytes] = []
        self.connections: list[Connection] = []
        self.clients: list[Client] = []
        self.waiting: dict[str, asyncio.Future[Response | None]] = {}
        self.file: BinaryIO | None = None
        self.network = Network(self.dispatch, limits or NetworkLimits(), clock=self.clock)
        self.listener: Listener = self.network.listen("PLAINTEXT", "127.0.0.1", 0, listener_limits)
        if tls is not None:
            self.listener.use_tls(tls)
        self.client_context: ssl.SSLContext | None = None  # what clients shake hands with
        self.listener.start()

    def dispatch(self, connection: Connection, view: memoryview) -> DispatchResult:
        payload = bytes(view)
        self.seen.append(payload)
        if connection not in self.connections:
            self.connections.append(connection)
        command, _, rest = payload.removeprefix(PRODUCE).decode("latin-1").partition(" ")
        match command:
            case "wait":
                future = self.waiting[rest] = asyncio.get_running_loop().create_future()
                return PendingResponse(future, lets_pass=PRODUCE if payload.startswith(PRODUCE) else None, is_wait=True)
            case "task":
                self.waiting[rest] = asyncio.get_running_loop().create_future()
                task = asyncio.get_running_loop().create_task(self._await(rest))
                return PendingResponse(task, lets_pass=None, is_wait=False)
            case "none":
                return None
            case "refuse":
                raise CloseConnection("refused by the test")
            case "bug":
                raise ZeroDivisionError("a bug in a handler")
            case "throttle":
                connection.throttle(int(rest))
                return reply_before_others(Response(frame(payload)), asyncio.get_running_loop())
            case "close":
                connection.close("closed by the test")
            case "big":
                return Response(frame(b"b" * int(rest)))
            case "region":
                position, size = map(int, rest.split())
                assert self.file is not None
                return Response(struct.pack(">i", size + 2) + b"<>", [(5, FileRegion(self.file, position, size))])
        return Response(frame(payload))

    def answer(self, name: str) -> None:
        self.waiting[name].set_result(Response(frame(b"answer " + name.encode())))

    async def _await(self, name: str) -> Response | None:
        return await self.waiting[name]

    async def connect(self) -> Client:
        host = "localhost" if self.client_context is not None else None
        reader, writer = await asyncio.open_connection(
            *self.listener.address, limit=1 << 24, ssl=self.client_context, server_hostname=host
        )
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def until_seen(self, count: int) -> None:
        await until(lambda: len(self.seen) >= count)

    def sweep_after(self, ms: int) -> None:
        self.clock.advance(ms)
        self.network.sweep()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *payloads: bytes) -> None:
        self.writer.write(b"".join(map(frame, payloads)))

    async def receive(self) -> bytes:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return await self.reader.readexactly(size)

    async def ask(self, payload: bytes) -> bytes:
        self.send(payload)
        return await self.receive()

    async def at_end(self) -> bool:
        """The broker has closed, with nothing left unread."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def node(
    limits: NetworkLimits | None = None, listener: ListenerLimits | None = None, tls: TlsEndpoint | None = None
) -> AsyncIterator[Node]:
    one = Node(limits, listener, tls)
    try:
        yield one
    finally:
        one.network.close()
        for client in one.clients:
            client.writer.transport.abort()
        await spin(2)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # no event: what the tests wait for is inside the network
        await asyncio.sleep(0)


async def spin(turns: int = 20) -> None:
    """Let the loop come round: whatever could happen by itself has happened."""
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.sleep(0.002)
