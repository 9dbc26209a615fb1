"""Check many logs at once after a crash, in worker processes (`recovery_worker`).

Every batch costs some microseconds of Python, during which a thread would block all others. So the workers are
processes, `num.recovery.threads.per.data.dir` for each log directory, started only when there is much to check. The
largest logs come first. Meanwhile the caller opens the small ones itself. It then opens those that the workers have
checked, as if they had been closed cleanly. If a worker dies, the caller checks its log.

`Progress` reports the progress: in the log every ten seconds, and in the metrics.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import subprocess
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from klamm.storage.clock import Clock
from klamm.storage.filesystem import Filesystem
from klamm.storage.paths import LOG_SUFFIX, TopicPartition, parse_offset_file
from klamm.storage.recovery.recovery_worker import Task

logger = logging.getLogger(__name__)

LARGE_BYTES: Final = 1 << 20
"""A log with less to check is opened by the caller."""

WORKER_BYTES: Final = 64 << 20
"""If all large logs together have less, no process is started: that would take longer."""

SAY_EVERY_SECONDS: Final = 10.0
COMMAND: Final = (sys.executable, "-P", "-m", "klamm.storage.recovery.recovery_worker")


@dataclass(slots=True)
class Progress:
    """The progress of the recovery of one log directory. Several threads set the numbers, each under the lock."""

    directory: str
    clock: Clock
    logs: int = 0
    remaining_logs: int = 0
    size_bytes: int = 0
    remaining_bytes: int = 0
    remaining_segments: dict[int, int] = field(default_factory=dict)
    """For each worker, of the log that it is checking."""
    _said_at: float = 0.0
    _began_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, logs: int, size_bytes: int) -> None:
        self.logs = self.remaining_logs = logs
        self.size_bytes = self.remaining_bytes = size_bytes
        self._began_at = self._said_at = self.clock.monotonic()

    def log_begun(self, worker: int, segments: int) -> None:
        with self._lock:
            self.remaining_segments[worker] = segments

    def segment_done(self, worker: int, size_bytes: int) -> None:
        with self._lock:
            self.remaining_segments[worker] = max(0, self.remaining_segments.get(worker, 0) - 1)
            self.remaining_bytes = max(0, self.remaining_bytes - size_bytes)
            self._say()

    def log_done(self, worker: int | None = None) -> None:
        """Count a log that a worker has checked or, without its number, one that the caller has opened."""
        with self._lock:
            if worker is not None:
                self.remaining_segments[worker] = 0
            self.remaining_logs = max(0, self.remaining_logs - 1)
            self._say()

    def end(self) -> None:
        seconds = self.clock.monotonic() - self._began_at
        self.remaining_logs = self.remaining_bytes = 0
        self.remaining_segments = dict.fromkeys(self.remaining_segments, 0)
        logger.info(
            "%s: recovery done: logs=%d size_bytes=%d seconds=%.2f", self.directory, self.logs, self.size_bytes, seconds
        )

    def _say(self) -> None:
        now = self.clock.monotonic()
        if now - self._said_at >= SAY_EVERY_SECONDS:
            self._said_at = now
            logger.info(
                "%s: recovery: logs=%d of %d size_bytes=%d of %d", self.directory, self.logs - self.remaining_logs,
                self.logs, self.size_bytes - self.remaining_bytes, self.size_bytes,
            )  # fmt: skip


def unchecked(filesystem: Filesystem, directory: Path, recovery_point: int) -> tuple[int, int]:
    """Return how many segments of an unclean log are to be checked, and their bytes."""
    found = sorted(
        (parsed[0], entry.size_bytes)
        for entry in filesystem.list_directory(directory)
        if entry.name.endswith(LOG_SUFFIX) and (parsed := parse_offset_file(entry.name)) is not None
    )
    first = max(0, bisect_left(found, (recovery_point, 0)) - 1)
    return len(found) - first, sum(size for _, size in found[first:])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a log: `recovered`, or offline for a `reason`; if neither, the caller opens it."""

    partition: TopicPartition
    recovered: bool
    reason: str | None


class RecoveryPool:
    """A pool that runs the tasks in `workers` processes; `outcomes` waits for them, `close` ends those in progress."""

    def __init__(self, tasks: Sequence[tuple[TopicPartition, Task]], workers: int, progress: Progress) -> None:
        self._names = {str(partition) for partition, _ in tasks}
        self._waiting = sorted(tasks, key=lambda item: item[1].size_bytes)  # the largest is taken first
        self._progress = progress
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._drive, args=(number,), daemon=True, name=f"klamm-recovery-{number}")
            for number in range(min(workers, len(tasks)))
        ]
        for thread in self._threads:
            thread.start()

    def __contains__(self, name: str) -> bool:
        """Return whether the log in the directory of this name is checked by the pool."""
        return name in self._names

    def outcomes(self) -> Iterator[Outcome]:
        """Yield one outcome for each task, in the order of completion. Blocks."""
        for _ in self._names:
            yield self._done.get()

    def close(self) -> None:
        """Kill workers that are not done. Idempotent."""
        with self._lock:
            self._closed = True
            self._waiting = []
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()

    def _drive(self, number: int) -> None:
        """Run a worker process on one task after the other, until there are none. Runs in a thread."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while (item := self._next()) is not None:
                partition, task = item
                outcome = Outcome(partition, False, None)
                try:
                    if process is None:
                        process = self._start()
                    self._progress.log_begun(number, task.segments)
                    outcome = self._ask(process, number, partition, task)
                except Exception as error:  # whatever it was, the caller opens the log
                    if not self._closed:
                        logger.warning("%s: its recovery worker failed: %r", partition, error)
                    if process is not None:
                        process.kill()
                        self._end(process)
                        process = None
                self._progress.log_done(number)
                self._done.put(outcome)
        finally:
            if process is not None:
                self._end(process)

    def _next(self) -> tuple[TopicPartition, Task] | None:
        with self._lock:
            return self._waiting.pop() if self._waiting else None

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise OSError("closed")
            process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(process)
            return process

    def _ask(self, process: subprocess.Popen[bytes], number: int, partition: TopicPartition, task: Task) -> Outcome:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(task.encode())
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if "log" in message:
                level, name, text = message["log"]
                logging.getLogger(name).log(level, "%s", text)
            elif "segment" in message:
                self._progress.segment_done(number, message["segment"])
            elif "offline" in message:
                return Outcome(partition, False, message["offline"])
            else:
                return Outcome(partition, True, None)
        raise OSError(f"it ended with code {process.wait()}")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()  # the worker ends when its input ends
        process.wait()
        process.stdout.close()
        with self._lock:
            self._processes.remove(process)
