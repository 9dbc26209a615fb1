"""The interface between the network layer and the dispatcher.

`Dispatcher` is called for every frame, in order. It returns a `Response`, None (nothing is sent, as for acks=0), or a
`PendingResponse` of one of these. It raises `CloseConnection` to close the connection after all earlier requests are
answered. The view of the frame is valid only until the dispatcher returns, unless `Connection.keep_frame` extends it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from klamm.broker.network.connection import Connection
    from klamm.protocol.regions import FileRegion


class Response:
    """A response. `head` begins with the size prefix, which includes the regions. Each region is inserted into the head
    at its position, in ascending order, and is sent from the page cache without being read.
    """

    __slots__ = ("head", "regions")

    def __init__(self, head: bytearray | bytes, regions: list[tuple[int, FileRegion]] | None = None) -> None:
        self.head = head
        self.regions = regions


_make = object.__new__


def plain_response(head: bytearray | bytes) -> Response:
    """Return `Response(head)`, a little faster; for the shortest paths."""
    response = _make(Response)
    response.head = head
    response.regions = None
    return response


class PendingResponse:
    """A response that comes later, as the result of `future`.

    `lets_pass` is the API key of the requests that may be dispatched before this response is known, as the bytes at the
    start of their frames; None holds back all. With `is_wait` only a wait is left, such as a long poll or a flush: it
    is cancelled when the connection closes. All other work runs to its end.
    """

    __slots__ = ("future", "is_wait", "lets_pass")

    def __init__(self, future: asyncio.Future[Response | None], *, lets_pass: bytes | None, is_wait: bool) -> None:
        self.future = future
        self.lets_pass = lets_pass
        self.is_wait = is_wait


def reply_before_others(response: Response | None, loop: asyncio.AbstractEventLoop) -> PendingResponse:
    """The reply as one that leaves in the next turn of the loop, before another request of its connection is looked
    at: it has throttled the connection."""
    future: asyncio.Future[Response | None] = loop.create_future()
    future.set_result(response)
    return PendingResponse(future, lets_pass=None, is_wait=False)


class CloseConnection(Exception):
    """The connection must be closed: malformed input, an unknown API, acks=0 with an error. Earlier requests are
    answered.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


DispatchResult: TypeAlias = "Response | PendingResponse | None"


class RequestMemo(Protocol):
    """A memo of a request that a connection repeats: `answer` recognizes it, or returns None without effect.

    `memoized_count` counts the requests of every kind that the connection has memoized.
    """

    memoized_count: int

    def answer(self, connection: Connection, frame: memoryview, started: float, /) -> Response | None: ...


class Dispatcher(Protocol):
    def __call__(self, connection: Connection, frame: memoryview, /) -> DispatchResult: ...
