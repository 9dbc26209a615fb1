"""Jobs that run repeatedly (`--every`), until a signal stops them."""

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
    """Start a run every `seconds` until `stop` is set; a started run is finished. Return the sum of the runs."""
    total = 0
    while not stop.is_set():
        begun_s = monotonic()
        total += run()
        stop.wait(max(seconds - (monotonic() - begun_s), 0))
    return total


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Set an event on SIGTERM or SIGINT, so that the started run can finish; a second signal does not wait."""
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
