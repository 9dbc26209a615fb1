"""The order of responses: which may be sent, and which request may be dispatched, while earlier ones are unanswered. No
I/O.

A request goes ahead of unanswered ones when each of them lets its kind pass (`PendingResponse.lets_pass`); any other
request waits for its predecessors. The queue is empty most of the time: responses without a pending predecessor never
enter it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from klamm.broker.network.close_reason import CloseReason
from klamm.broker.network.response import CloseConnection, PendingResponse, Response
from klamm.broker.stop_signal import StopRequested

logger = logging.getLogger(__name__)

API_KEY_BYTES = 2  # a request begins with its API key


def _ignore(_: asyncio.Future[Response | None]) -> None:
    """Do nothing: the connection this response was for has closed."""


class ResponseQueue:
    """Responses, known and pending, in the order of their requests; `bytes` is the size of the pending requests."""

    __slots__ = ("_lets_pass", "_on_done", "bytes", "responses")

    def __init__(self, on_done: Callable[[asyncio.Future[Response | None]], None]) -> None:
        self._on_done = on_done
        self._lets_pass: bytes | None = None
        self.responses: deque[tuple[Response | PendingResponse, int]] = deque()
        self.bytes = 0

    def lets_pass(self, frame: memoryview, max_inflight: int) -> bool:
        """Return whether the request in `frame` may be dispatched before earlier ones are answered."""
        if not self.responses:
            return True
        return self.is_open(max_inflight) and bytes(frame[:API_KEY_BYTES]) == self._lets_pass

    def is_open(self, max_inflight: int) -> bool:
        """Return whether any request could be dispatched now."""
        return not self.responses or (self._lets_pass is not None and len(self.responses) < max_inflight)

    def put(self, queued: PendingResponse, size: int) -> None:
        """Add the response to a request of `size` bytes, after `lets_pass` has returned True for it."""
        self.responses.append((queued, size))
        self.bytes += size
        self._lets_pass = queued.lets_pass
        queued.future.add_done_callback(self._on_done)

    def take_ready(self) -> tuple[list[Response], CloseReason | None]:
        """Take all responses that no unanswered request precedes. If a request cannot be answered, no later one may be:
        then the queue is empty, and the result has a reason to close.
        """
        responses = self.responses
        ready: list[Response] = []
        failure = None
        try:
            while responses:
                queued, size = responses[0]
                response: Response | None
                if isinstance(queued, Response):
                    response = queued
                elif queued.future.done():
                    response = queued.future.result()
                else:
                    break
                responses.popleft()
                self.bytes -= size
                if response is not None:
                    ready.append(response)
        except asyncio.CancelledError:
            failure = CloseReason("cancelled", "a request was cancelled")
        except CloseConnection as error:
            failure = CloseReason("refused", error.reason)
        except (Exception, StopRequested):
            logger.exception("a request failed")
            failure = CloseReason("bug", "internal error")
        if failure is not None:
            self.abandon()
        return ready, failure

    def close(self) -> None:
        """Call `abandon`, and forget the owner."""
        self.abandon()
        self._on_done = _ignore

    def abandon(self) -> None:
        """Drop all responses and cancel the waits. Other work runs to its end; its exception is read, or asyncio would
        report it as never retrieved.
        """
        abandoned = [queued for queued, _ in self.responses if isinstance(queued, PendingResponse)]
        self.responses.clear()
        self.bytes = 0
        for queued in abandoned:
            queued.future.remove_done_callback(self._on_done)
            queued.future.add_done_callback(_look_at)
            if queued.is_wait:
                queued.future.cancel()


def _look_at(future: asyncio.Future[Response | None]) -> None:
    if not future.cancelled():
        future.exception()
