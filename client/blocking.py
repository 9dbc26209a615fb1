"""The blocking client: one node over one socket.

    with NodeClient("127.0.0.1", 9092) as client:
        response = client.request(MetadataRequest(topics=None))

It connects on first use, by TLS if it has a context. It logs in if it has credentials, and again before the session
ends. If no version is given, it asks for the node's versions first. Not for use by several threads at once. A
connection that either side has closed is not opened again: make a new client.
"""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from klamm.client.errors import ClientError, ClientTimeout, ConnectionClosed, UnexpectedResponse
from klamm.client.exchange import Exchange
from klamm.client.sasl import Credentials, LoginFailed, log_in
from klamm.protocol.framing import SIZE

TIMEOUT_S = 30.0
RENEWAL_POINT = 0.85  # the part of a session's lifetime after which the client logs in again


class NodeClient:
    """A client of one node. `timeout_s` holds for a whole connect, request or read unless the call gives another."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str | None = "klamm",
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self.credentials = credentials
        self.tls = tls
        self.exchange = Exchange(client_id)
        self._monotonic = monotonic
        self._socket: socket.socket | None = None
        self._closed = False
        self._renew_at = math.inf

    def request(self, message: Any, version: int | None = None, *, timeout_s: float | None = None) -> Any:
        """Send a request and return its response, None for a Produce with acks=0.

        Raises ConnectionClosed, ClientTimeout, LoginFailed, NoCommonVersion, UnexpectedResponse.
        """
        deadline = self._deadline(timeout_s)
        self._connected(deadline)
        if self.exchange.in_flight:
            raise ClientError("requests are in flight: receive() their responses first")
        self._renew_login(deadline)
        if version is None:
            version = self._choose_version(type(message), deadline)
        return self._ask(message, version, deadline)

    def send(self, message: Any, version: int | None = None, *, timeout_s: float | None = None) -> bool:
        """Send a request without waiting; `receive` returns the responses in order. Return False if none will come.

        While responses are outstanding, the versions of the node must be known, or one be given.
        """
        deadline = self._deadline(timeout_s)
        self._connected(deadline)
        self._renew_login(deadline)
        if version is None:
            version = self._choose_version(type(message), deadline)
        return self._send(message, version, deadline)

    def receive(self, *, timeout_s: float | None = None) -> Any:
        """Return the response to the oldest request in flight."""
        if not self.exchange.in_flight:
            raise ClientError("no request is in flight")
        return self._receive(self._deadline(timeout_s))

    def receive_into(self, allocate: Callable[[int], memoryview], *, timeout_s: float | None = None) -> Any:
        """Receive with the frame read into memory that `allocate` returns for its size; record data refers to it."""
        assert not self.exchange.buffer.buffered_bytes, "a response was received in part"
        deadline = self._deadline(timeout_s)
        prefix = bytearray(SIZE.size)
        self._fill(memoryview(prefix), deadline)
        (size,) = SIZE.unpack(prefix)
        if not 0 < size <= self.exchange.buffer.max_frame_bytes:
            self.close()
            raise UnexpectedResponse(f"frame size {size} is not in 1..{self.exchange.buffer.max_frame_bytes}")
        frame = allocate(size)
        self._fill(frame, deadline)
        try:
            return self.exchange.response(frame)
        except UnexpectedResponse:
            self.close()
            raise

    def connect(self, *, timeout_s: float | None = None) -> None:
        """Open the connection now instead of on first use."""
        self._connected(self._deadline(timeout_s))

    def choose_version(self, request: type[Any], *, timeout_s: float | None = None) -> int:
        """Return the highest version of a request class that both sides have; ask the node the first time."""
        return self._choose_version(request, self._deadline(timeout_s))

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, message: Any, version: int, deadline: float) -> Any:
        return self._receive(deadline) if self._send(message, version, deadline) else None

    def _choose_version(self, request: type[Any], deadline: float) -> int:
        if self.exchange.node_versions is None:
            assert self.exchange.in_flight == 0, "ask for versions before sending without waiting"
            question, first = self.exchange.versions_request()
            version: int | None = first
            while version is not None:
                version = self.exchange.learn_versions(self._ask(question, version, deadline), version)
        return self.exchange.choose_version(request)

    def _send(self, message: Any, version: int, deadline: float) -> bool:
        request = self.exchange.request(message, version)
        self._write(request.frame, deadline)
        return request.answered

    def _receive(self, deadline: float) -> Any:
        try:
            while (response := self.exchange.next_response()) is None:
                self._read(deadline)
        except UnexpectedResponse:
            self.close()
            raise
        return response

    def _read(self, deadline: float) -> None:
        self.exchange.buffer.received(self._read_into(self.exchange.buffer.writable(), deadline))

    def _fill(self, room: memoryview, deadline: float) -> None:
        done = 0
        while done < len(room):
            done += self._read_into(room[done:], deadline)

    def _read_into(self, room: memoryview, deadline: float) -> int:
        connected = self._connected(deadline)
        try:
            connected.settimeout(self._left(deadline))
            size = connected.recv_into(room)
        except OSError as error:
            raise self._failed("read", error) from error
        if not size:
            self.close()
            raise ConnectionClosed(f"{self.host}:{self.port} closed the connection")
        return size

    def _write(self, data: bytes | bytearray | memoryview, deadline: float) -> None:
        connected = self._connected(deadline)
        try:
            connected.settimeout(self._left(deadline))
            connected.sendall(data)
        except OSError as error:
            raise self._failed("write", error) from error

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is not None:
            return self._socket
        if self._closed:
            raise ConnectionClosed(f"the connection to {self.host}:{self.port} was closed")
        try:
            made = socket.create_connection((self.host, self.port), timeout=self._left(deadline))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = made if self.tls is None else shake_hands(made, self.tls, self.host)
        except OSError as error:
            raise self._failed("connect", error) from error
        self._log_in(deadline)
        return self._socket

    def _renew_login(self, deadline: float) -> None:
        """Log in again when most of the session is over and nothing is in flight."""
        if self._monotonic() >= self._renew_at and not self.exchange.in_flight:
            self._log_in(deadline)

    def _log_in(self, deadline: float) -> None:
        if self.credentials is None:
            return
        conversation = log_in(self.credentials)
        try:
            request = next(conversation)
            while True:
                request = conversation.send(self._ask(*request, deadline))
        except LoginFailed:
            self.close()
            raise
        except StopIteration as end:
            self._renew_at = self._monotonic() + end.value * RENEWAL_POINT / 1000 if end.value else math.inf

    def _failed(self, what: str, error: OSError) -> ClientError:
        """Close, as it is unknown how much was sent, and return the error to raise."""
        self.close()
        kind = ClientTimeout if isinstance(error, TimeoutError) else ConnectionClosed
        return kind(f"{what} {self.host}:{self.port}: {error}")

    def _deadline(self, timeout_s: float | None) -> float:
        return self._monotonic() + (self.timeout_s if timeout_s is None else timeout_s)

    def _left(self, deadline: float) -> float:
        left = deadline - self._monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def shake_hands(connected: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    """Return the TLS socket over a connected one, which is closed when the handshake fails. Raises OSError."""
    try:
        return tls.wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise
