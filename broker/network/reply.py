"""What the network layer and the dispatcher say to each other.

`Dispatcher` is called for every frame, in order. It answers with a `Reply`, with None (nothing is sent, as for acks=0),
or with a future of one of these; it raises `CloseConnection` to have the connection closed once everything before has
been answered. The frame's view is valid only until the dispatcher returns, unless `Connection.keep_frame` says more.

When the connection is gone, a pending future is cancelled, so that a long poll ends; a task is left to finish.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from klamm.broker.network.connection import Connection
    from klamm.protocol.regions import FileRegion


class Reply:
    """A response: `head` begins with the size prefix, which counts the regions, too; each region is spliced into
    the head at its position, in ascending order, and is sent from the page cache without being read."""

    __slots__ = ("head", "regions")

    def __init__(self, head: bytearray | bytes, regions: list[tuple[int, FileRegion]] | None = None) -> None:
        self.head = head
        self.regions = regions


class CloseConnection(Exception):
    """The peer must go: malformed input, an unknown API, acks=0 with an error. Earlier requests are answered."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


Answer: TypeAlias = "Reply | asyncio.Future[Reply | None] | None"


class KnownRequest(Protocol):
    """A request that a connection repeats: `answer` knows it again, or says None and has done nothing.

    `learned` counts what the connection has had to learn, of every kind.
    """

    learned: int

    def answer(self, connection: Connection, frame: memoryview, started: float, /) -> Reply | None: ...


class Dispatcher(Protocol):
    def __call__(self, connection: Connection, frame: memoryview, /) -> Answer: ...
