"""How the bytes of a connection reach its socket: as they are (`PlainChannel`), or by TLS (`tls_channel.TlsChannel`).

Bytes are read and sent through `recv_into`, `send` and `send_file`, which behave as those of a non-blocking socket.
Nobody but the channel has the socket, so no way leads around TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from klamm.broker.network.limits import plain_address

if TYPE_CHECKING:
    from klamm.protocol.regions import HasFileno

TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8  # linux/tcp.h: it was reset, or the peer has closed
DRAIN_READS = 16  # reads that empty the socket before it is closed, so that the peer sees FIN and not RST

Bytes = bytes | bytearray | memoryview


class Channel(Protocol):
    """Raises BlockingIOError when nothing can be read or sent now, and other errors of the socket. After `send` or
    `send_file` could not send all, the next call begins with the bytes that were not sent."""

    sends_by_thread: bool

    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: Bytes, flags: int = 0, /) -> int: ...
    def send_file(self, file: HasFileno, position: int, size: int, /) -> int: ...
    def add_reader(self, loop: asyncio.AbstractEventLoop, on_readable: Callable[[], None], /) -> None: ...
    def remove_reader(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def add_writer(self, loop: asyncio.AbstractEventLoop, on_writable: Callable[[], None], /) -> None: ...
    def remove_writer(self, loop: asyncio.AbstractEventLoop, /) -> None: ...
    def duplicate(self) -> socket.socket: ...
    def has_ended_unread(self) -> bool: ...
    def peer_has_gone(self) -> bool: ...
    def half_close(self, room: memoryview, /) -> None: ...
    def local_address(self) -> tuple[str, int]: ...
    def close(self) -> None: ...


class PlainChannel:
    """The socket's own methods, looked up once."""

    __slots__ = ("_socket", "close", "recv_into", "send")

    sends_by_thread = True

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.recv_into: Callable[[memoryview], int] = connected.recv_into
        self.send = connected.send
        self.close = connected.close

    def send_file(self, file: HasFileno, position: int, size: int, /) -> int:
        """Send from the page cache; 0 at the end of the file."""
        return os.sendfile(self._socket.fileno(), file.fileno(), position, size)

    def add_reader(self, loop: asyncio.AbstractEventLoop, on_readable: Callable[[], None], /) -> None:
        loop.add_reader(self._socket, on_readable)

    def remove_reader(self, loop: asyncio.AbstractEventLoop, /) -> None:
        loop.remove_reader(self._socket)

    def add_writer(self, loop: asyncio.AbstractEventLoop, on_writable: Callable[[], None], /) -> None:
        loop.add_writer(self._socket, on_writable)

    def remove_writer(self, loop: asyncio.AbstractEventLoop, /) -> None:
        loop.remove_writer(self._socket)

    def duplicate(self) -> socket.socket:
        """A descriptor for a thread, which the connection cannot close and have reused under it."""
        own = self._socket
        return socket.socket(own.family, own.type, own.proto, os.dup(own.fileno()))

    def has_ended_unread(self) -> bool:
        return has_ended_unread(self._socket)

    def peer_has_gone(self) -> bool:
        return peer_has_gone(self._socket)

    def half_close(self, room: memoryview, /) -> None:
        half_close(self._socket, room)

    def local_address(self) -> tuple[str, int]:
        return local_address(self._socket)


def local_address(connected: socket.socket) -> tuple[str, int]:
    """The address that the peer dialled, as far as this machine knows."""
    host, port = connected.getsockname()[:2]
    return plain_address(host), port


def has_ended_unread(connected: socket.socket) -> bool:
    """Whether nothing is left to read and the peer has ended its stream. Raises OSError when it has reset the
    connection, so that nothing is kept for a peer that is gone."""
    with suppress(BlockingIOError, InterruptedError):
        return not connected.recv(1, socket.MSG_PEEK)
    return False


def peer_has_gone(connected: socket.socket) -> bool:
    """Whether the peer has ended its stream, perhaps after bytes that are unread: nothing else shows it then."""
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return True
    return info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)


def half_close(connected: socket.socket, room: memoryview) -> None:
    """Send FIN, then read into `room` what nobody wants any more."""
    with suppress(OSError):  # would block, or reset: nothing more to be had
        connected.shutdown(socket.SHUT_WR)
        for _ in range(DRAIN_READS):
            if not connected.recv_into(room):
                break
