"""The asynchronous client: one node, one connection of the running event loop, several requests in flight.

    async with AsyncNodeClient("127.0.0.1", 9092) as client:
        first, second = client.send(one), client.send(two)      # both are on their way
        await first, await second

`send` never blocks. `request` waits until the transport takes more, sends, and waits for the response. Cancelling a
future does not disturb the connection: its response is dropped when it comes. A request that times out closes the
connection, which fails all others in flight. A closed client stays closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from types import TracebackType
from typing import Any, Self, cast

from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed, NoCommonVersion, UnexpectedResponse
from klamm.client.exchange import Exchange
from klamm.client.sasl import Conversation, Credentials, LoginFailed, log_in

TIMEOUT_S = 30.0


class AsyncNodeClient:
    """A client of one node for asyncio.

    Call `connect` (or `async with`) first: it logs in if there are credentials, and asks for the node's versions unless
    `negotiate` is false. `session_lifetime_ms` is how long the login lasts, 0 for ever; `log_in` renews it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = "klamm",
        timeout_s: float = TIMEOUT_S,
        negotiate: bool = True,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self.negotiate = negotiate
        self.credentials = credentials
        self.tls = tls
        self.exchange = Exchange(client_id)
        self._waiting: deque[asyncio.Future[Any]] = deque()  # one for each request that `exchange` has in flight
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._closed: ClientError | None = None
        self.session_lifetime_ms = 0

    async def connect(self) -> None:
        """Open the connection, log in, and learn the node's versions.

        Raises ConnectionClosed, ClientTimeout, LoginFailed, NoCommonVersion, UnexpectedResponse.
        """
        assert self._transport is None and self._closed is None, "a client connects once"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.timeout_s):
                await loop.create_connection(lambda: _Link(self), self.host, self.port, ssl=self.tls)
        except TimeoutError as error:
            raise self._fail(ClientTimeout(f"connect {self.host}:{self.port}: timed out")) from error
        except OSError as error:
            raise self._fail(ConnectionClosed(f"connect {self.host}:{self.port}: {error}")) from error
        if self.credentials is not None:
            await self.log_in(self.credentials)
        if self.negotiate:
            await self._learn_versions()

    def send(self, message: Any, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request; return a future of its response, which is None at once for a Produce with acks=0.

        Raises ConnectionClosed, NoCommonVersion, and ClientError when too many requests are in flight.
        """
        transport = self._open_transport()
        if version is None:
            version = self.choose_version(type(message))
        request = self.exchange.request(message, version)
        transport.write(request.frame)
        if request.answered:
            return self._wait()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def request(self, message: Any, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. Raises what `send` raises, ClientTimeout and UnexpectedResponse."""
        try:
            async with asyncio.timeout(self.timeout_s if timeout_s is None else timeout_s):
                await self.drain()
                return await self.send(message, version)
        except TimeoutError as error:
            late = ClientTimeout(f"{type(message).__name__} to {self.host}:{self.port}: timed out")
            raise self._fail(late) from error

    def send_bytes(self, data: bytes | bytearray | memoryview) -> asyncio.Future[bytes]:
        """Send raw bytes, for tests; return a future of the frame that answers them, without its size prefix."""
        transport = self._open_transport()
        self.exchange.expect_frame()
        transport.write(data)
        return self._wait()

    def choose_version(self, request: type[Any]) -> int:
        """Return the highest version of a request class that both sides have. Raises NoCommonVersion."""
        if self.exchange.node_versions is None:
            raise NoCommonVersion("the node's versions are not known: give a version, or let connect() negotiate")
        return self.exchange.choose_version(request)

    async def drain(self) -> None:
        """Wait until the transport has little left to write."""
        self._open_transport()
        await self._writable.wait()
        self._open_transport()

    def close(self) -> None:
        """Close at once; requests in flight fail with ConnectionClosed."""
        self._fail(ConnectionClosed(f"the connection to {self.host}:{self.port} was closed"))

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def log_in(self, credentials: Credentials) -> None:
        """Log in, or again before the session ends. Send nothing else meanwhile. Raises the errors of `connect`."""
        conversation = log_in(credentials)
        try:
            request = next(conversation)
            while True:
                response = await self.request(*request)
                request = await asyncio.to_thread(_continue, conversation, response)
        except _Finished as end:
            self.session_lifetime_ms = end.lifetime_ms
        except LoginFailed as error:
            raise self._fail(error) from None

    async def _learn_versions(self) -> None:
        question, first = self.exchange.versions_request()
        version: int | None = first
        while version is not None:
            response = await self.request(question, version)
            try:
                version = self.exchange.learn_versions(response, version)
            except NoCommonVersion as error:
                raise self._fail(error) from None

    def _open_transport(self) -> asyncio.Transport:
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)
        assert self._transport is not None, "connect() comes first"
        return self._transport

    def _wait(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future

    def _bytes_received(self) -> None:
        """Complete the futures of all whole responses in the buffer."""
        try:
            while (response := self.exchange.next_response()) is not None:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(response)
        except UnexpectedResponse as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> ClientError:
        """Close for good, with the first error given; return `error` for the caller to raise."""
        if self._closed is None:
            self._closed = error
            if self._transport is not None:
                self._transport.abort()
        self._writable.set()
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(type(self._closed)(*self._closed.args))
                future.exception()  # so that asyncio does not log an error that no caller reads
        return error


class _Link(asyncio.BufferedProtocol):
    """The transport's callbacks, passed on to the client."""

    def __init__(self, client: AsyncNodeClient) -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.client._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass
        self.client._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.client.exchange.buffer.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self.client.exchange.buffer.received(nbytes)
        self.client._bytes_received()

    def pause_writing(self) -> None:
        self.client._writable.clear()

    def resume_writing(self) -> None:
        self.client._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        reason = "the node closed the connection" if error is None else str(error)
        self.client._fail(ConnectionClosed(f"{self.client.host}:{self.client.port}: {reason}"))


class _Finished(Exception):
    """The end of a conversation: a StopIteration cannot pass through a future."""

    def __init__(self, lifetime_ms: int) -> None:
        super().__init__(lifetime_ms)
        self.lifetime_ms = lifetime_ms


def _continue(conversation: Conversation, response: Any) -> tuple[Any, int]:
    """Return the next request. Runs in a thread, as salting a password takes milliseconds. Raises _Finished."""
    try:
        return conversation.send(response)
    except StopIteration as end:
        raise _Finished(end.value) from None
