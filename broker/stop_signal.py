"""SIGTERM and SIGINT: stop the broker at any moment of its life.

    the logs are being opened         `StopRequested` is raised in the main thread
    the loop runs                     the event of `watch` is set in the next iteration of the loop
    the loop is blocked               after `GRACE_S` `StopRequested` is raised in the blocking code, which ends it;
                                      again after each `GRACE_S`, and with every further signal

Python runs these handlers between two bytecodes of the main thread, in any code; a handler called by the loop would
wait for ever for a blocked loop. The blocking code is logged with its stack. The watch lasts until the shutdown is
over. It cannot interrupt C code that does not return.
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
    """A signal asks to stop, and running code must be interrupted. Error handlers must not catch it."""


class StopSignal:
    """See the module's head. For the main thread; it handles the signals at once, and SIGALRM from the first one on."""

    def __init__(self) -> None:
        self.interrupts = True
        """Whether a signal interrupts the main thread at once."""
        self.came = False
        self.has_interrupted_the_loop = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()
        self._turned = True
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def watch(self, loop: asyncio.AbstractEventLoop) -> asyncio.Event:
        """Watch the loop, until `unwatch`. The returned event is set when a signal comes or has come."""
        self._loop = loop
        for number in STOP_SIGNALS:
            # the loop is still woken up, and no system call of a thread is interrupted
            signal.siginterrupt(number, False)
        if self.came:
            self._requested.set()
        return self._requested

    def unwatch(self) -> None:
        """Stop interrupting."""
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
        """Schedule a callback in the loop. If the last one has not run, raise StopRequested."""
        if self._loop is None:
            return
        if self._turned:
            self._turned = False
            self._loop.call_soon_threadsafe(self._on_turn)
            return
        self.has_interrupted_the_loop = True
        stack = "".join(traceback.format_stack(frame))
        log.error("asked to stop, but the event loop is blocked. The blocking code is interrupted:\n%s", stack)
        raise StopRequested

    def _on_turn(self) -> None:
        self._turned = True
        self._requested.set()
