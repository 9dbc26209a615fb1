"""The receiving half of a connection's socket: whether the loop watches it, and how its end is seen.

Its counterpart is the send queue. The bytes themselves are read by the connection, straight into its frame buffer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

TCP_CLOSE, TCP_CLOSE_WAIT = 7, 8  # linux/tcp.h: it was reset, or the peer has closed
DRAIN_READS = 16  # reads that empty the socket before it is closed, so that the peer sees FIN and not RST


def _ignore() -> None:
    """Do nothing: the connection has closed."""


class Receiver:
    """Watches from `resume` until `pause`."""

    __slots__ = ("_loop", "_on_readable", "_socket", "is_watching")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, channel: socket.socket, on_readable: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._socket = channel
        self._on_readable = on_readable
        self.is_watching = False

    def resume(self) -> None:
        if not self.is_watching:
            self.is_watching = True
            self._loop.add_reader(self._socket, self._on_readable)

    def pause(self) -> None:
        if self.is_watching:
            self.is_watching = False
            self._loop.remove_reader(self._socket)

    def close(self) -> None:
        """Watch no more, and forget the owner, who closes the socket (a cycle with it would wait for a collection)."""
        self.pause()
        self._on_readable = _ignore

    def leave_unread(self) -> bool:
        """Leave bytes in the kernel and watch no more; whether there are none, and the peer has ended its stream.
        Raises OSError when the peer has reset the connection, so that nothing is kept for a peer that is gone."""
        self.pause()
        with suppress(BlockingIOError, InterruptedError):
            return not self._socket.recv(1, socket.MSG_PEEK)
        return False

    def peer_has_gone(self) -> bool:
        """Whether the peer has ended its stream, perhaps after bytes that are unread: nothing else shows it then."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return info[0] in (TCP_CLOSE, TCP_CLOSE_WAIT)

    def shut_down(self, room: memoryview) -> None:
        """Send FIN, then read into `room` what nobody wants any more."""
        with suppress(OSError):  # would block, or reset: nothing more to be had
            self._socket.shutdown(socket.SHUT_WR)
            for _ in range(DRAIN_READS):
                if not self._socket.recv_into(room):
                    break
