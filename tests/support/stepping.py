"""Threads and processes that take a step when a test calls `step`, so that one seed gives one interleaving.

`StepExecutor` stands for a thread pool of one thread. `SteppedWorker` stands for the worker process of compaction: it
is a thread, but only ever runs while `step` waits for it; it pauses wherever the real one would wait for the throttle.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from klamm.storage.compaction.cleaner import Cleaner, Job, Result
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.cleaned_segment import Cleaned

T = TypeVar("T")


class StepExecutor(Executor):
    """Work that is submitted waits, in order, for `step`."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def submit(self, work: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.append((future, partial(work, *arguments, **named)))
        return future

    def step(self) -> None:
        future, work = self._waiting.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)


class _Killed(BaseException):
    """The state that a worker finds when it continues."""


class SteppedWorker:
    """One run of the cleaner. `news` is set when there is something in `groups`, or at the end."""

    def __init__(self, job: Job, filesystem: Filesystem) -> None:
        self.job = job
        self.groups: deque[Cleaned] = deque()
        self.result: Result | None = None
        self.error: Exception | None = None
        self.news = asyncio.Event()
        self.is_over = False
        self._filesystem = filesystem
        self._is_killed = False
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let it run up to its next pause."""
        self._turn.release()
        self._back.acquire()
        if self.is_over:
            self._thread.join()
        if self.is_over or self.groups:
            self.news.set()

    def kill(self) -> None:
        self._is_killed = True
        while not self.is_over:
            self.step()

    def _pause(self, _: int = 0) -> None:
        self._back.release()
        self._wait()

    def _wait(self) -> None:
        self._turn.acquire()
        if self._is_killed:
            raise _Killed

    def _run(self) -> None:
        try:
            self._wait()
            self.result = Cleaner(self.job, self._filesystem, self._pause).run(self.groups.append)
        except _Killed:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.is_over = True
            self._back.release()
