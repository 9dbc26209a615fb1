"""The receiving half of a connection: whether the loop watches its channel, and how its end is detected.

Its counterpart is the send queue. The connection itself reads the bytes, straight into its frame buffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from klamm.broker.network.channel import Channel


def _ignore() -> None:
    """Do nothing: the connection has closed."""


class Receiver:
    """The watch on a socket, from `resume` until `pause`."""

    __slots__ = ("_channel", "_loop", "_on_readable", "is_watching")

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel, on_readable: Callable[[], None]) -> None:
        self._loop = loop
        self._channel = channel
        self._on_readable = on_readable
        self.is_watching = False

    def resume(self) -> None:
        if not self.is_watching:
            self.is_watching = True
            self._channel.add_reader(self._loop, self._on_readable)

    def pause(self) -> None:
        if self.is_watching:
            self.is_watching = False
            self._channel.remove_reader(self._loop)

    def close(self) -> None:
        """Stop watching, and forget the owner, which closes the socket (a cycle with it would wait for
        a collection).
        """
        self.pause()
        self._on_readable = _ignore

    def leave_unread(self) -> bool:
        """Stop watching and leave the bytes in the kernel. Return whether there are none and the peer has ended its
        stream. Raises OSError when the peer has reset the connection, so that nothing is kept for a closed peer.
        """
        self.pause()
        return self._channel.has_ended_unread()

    def peer_has_gone(self) -> bool:
        return self._channel.peer_has_gone()

    def shut_down(self, room: memoryview) -> None:
        """End the stream to the peer, then read the rest of the input into `room` and drop it."""
        self._channel.half_close(room)
