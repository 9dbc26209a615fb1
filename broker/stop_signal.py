"""SIGTERM and SIGINT: asking the broker to stop, at any moment of its life.

    the logs are being opened         `StopRequested` is raised where the main thread is
    the loop runs                     the event of `watch` is set in the next iteration of the loop
    the loop does not turn            after `GRACE_S` `StopRequested` is raised in what keeps it, which so comes to an
                                      end; again each `GRACE_S`, and with every further signal

Python runs these handlers between two bytecodes of the main thread, whatever that is doing; a handler that the loop
calls would wait for ever for a loop that does not turn. What keeps the loop is logged with its stack. The watch holds
until the shutdown is over. It cannot interrupt code in C that does not come back.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import traceback
from types import FrameType

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
GRACE_S = 5.0


class StopRequested(BaseException):
    """A signal asks to stop, and something stands in the way. No handler of errors is to take it for one."""


class StopSignal:
    """See the module's head. In the main thread; it takes the signals at once, and SIGALRM with the first of them."""

    def __init__(self) -> None:
        self.interrupts = True
        """Whether to interrupt at once what the main thread does."""
        self.came = False
        self.has_interrupted_the_loop = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()
        self._turned = True
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def watch(self, loop: asyncio.AbstractEventLoop) -> asyncio.Event:
        """Serve the loop, until `unwatch`; the event is set when a signal comes or has come."""
        self._loop = loop
        for number in STOP_SIGNALS:
            signal.siginterrupt(number, False)  # the loop is woken up all the same, and no thread's call is cut short
        if self.came:
            self._requested.set()
        return self._requested

    def unwatch(self) -> None:
        """Interrupt nothing any more."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._loop = None

    def _on_signal(self, _: int, frame: FrameType | None) -> None:
        is_first, self.came = not self.came, True
        if self.interrupts:
            self.interrupts = False
            raise StopRequested
        if self._loop is None:
            return
        if self.has_interrupted_the_loop:
            self._look(frame)
        elif is_first:
            self._look(frame)
            signal.signal(signal.SIGALRM, lambda _, frame: self._look(frame))
            signal.siginterrupt(signal.SIGALRM, False)
            signal.setitimer(signal.ITIMER_REAL, GRACE_S, GRACE_S)

    def _look(self, frame: FrameType | None) -> None:
        """Ask the loop to turn; it has not since the last time: raise StopRequested."""
        if self._loop is None:
            return
        if self._turned:
            self._turned = False
            self._loop.call_soon_threadsafe(self._on_turn)
            return
        self.has_interrupted_the_loop = True
        stack = "".join(traceback.format_stack(frame))
        log.error("asked to stop, but the event loop is kept. What keeps it is interrupted:\n%s", stack)
        raise StopRequested

    def _on_turn(self) -> None:
        self._turned = True
        self._requested.set()
