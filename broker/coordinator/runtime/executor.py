"""A thread for computations of a state machine that are too long for the event loop, run one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from klamm.broker.coordinator.runtime.types import Now

if TYPE_CHECKING:
    from klamm.broker.coordinator.runtime.runtime import CoordinatorRuntime

T = TypeVar("T")


class CoordinatorExecutor:
    """One thread, started with the first task. While it computes, the interpreter lets the loop run every few
    milliseconds.
    """

    def __init__(self, runtime: CoordinatorRuntime[Any], thread_name: str) -> None:
        self._runtime = runtime
        self._thread_name = thread_name
        self._thread: ThreadPoolExecutor | None = None

    def run(self, compute: Callable[[], T], done: Callable[[T | None, Now], None]) -> None:
        """Compute in the thread, then call `done` on the loop with the result, or with None after a failure."""
        self._runtime.tasks.start(self._run(compute, done))

    async def _run(self, compute: Callable[[], T], done: Callable[[T | None, Now], None]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=self._thread_name)
        computed = None
        try:
            computed = await asyncio.get_running_loop().run_in_executor(self._thread, compute)
        finally:
            now = self._runtime.now()
            done(computed, now)
            self._runtime.arm(now)

    def close(self) -> None:
        """Shut down: drop tasks that have not started."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
