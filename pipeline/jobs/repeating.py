"""Jobs that run again and again (`--every`), until a signal asks them to end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def repeated(
    run: Callable[[], int], seconds: float, stop: threading.Event, *, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Begin a run every so many seconds, until `stop`; one that has begun is finished. Returns the sum of the runs."""
    total = 0
    while not stop.is_set():
        begun_s = monotonic()
        total += run()
        stop.wait(max(seconds - (monotonic() - begun_s), 0))
    return total


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """SIGTERM and SIGINT let the run that has begun end; a second one does not wait."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
