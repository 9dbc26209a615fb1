"""The report of a running job: progress bars in a terminal, lines of `key=value` elsewhere, and metrics.

    with Report.from_options(options) as report:
        report.event("planned", topics=3, tasks=12)
        with report.progress("load", total=1_000_000) as progress:
            progress.advance(4096, size_bytes=409_600)

Metrics are Prometheus text: `klamm_pipeline_records_total`, `klamm_pipeline_bytes_total` and
`klamm_pipeline_remaining_records`, each by `job`, and the time of the last success. They are served from a port, or
written to a file that is replaced atomically, for the text file collector of the node exporter. Only the driver
reports; tasks report through their results. stdout is for results, so this writes to stderr only.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, Self, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile

from klamm.pipeline.errors import BadOption

INTERVAL_S: Final = 5.0
"""The time between two lines of progress without a terminal, and between two writes of the metrics file."""
MODES: Final = ("auto", "bar", "log", "none")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every job has."""
    group = parser.add_argument_group("reporting")
    group.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="bars, lines of key=value, or nothing (auto: bars in a terminal)",
    )
    group.add_argument("--metrics-file", metavar="PATH", help="keep Prometheus text in this file")
    group.add_argument("--metrics-port", metavar="PORT", type=int, help="serve Prometheus text on 127.0.0.1:PORT")


def reporting(job: Callable[[argparse.Namespace, Report], int]) -> Callable[[argparse.Namespace], int]:
    """Make a command of a job: pass it a report that follows its options."""

    @functools.wraps(job)
    def run(options: argparse.Namespace) -> int:
        with Report.from_options(options) as report:
            return job(options, report)

    return run


class Progress:
    """One bar, or a line from time to time. `total` may be unknown, and may grow."""

    def __init__(self, report: Report, job: str, total: int | None) -> None:
        self.done = 0
        self.total = total
        self._report = report
        self._job = job

    def advance(self, records: int, *, size_bytes: int = 0) -> None:
        """Count this many more records (and bytes) as done."""
        self.done += records
        self._report.advanced(self._job, self, records, size_bytes)

    def grow(self, total: int) -> None:
        """Raise the total: more work was found."""
        self.total = total
        self._report.advanced(self._job, self, 0, 0)


class Report:
    """The bars, lines and metrics of one job. Not for use by several threads at once."""

    def __init__(
        self,
        *,
        mode: str = "none",
        metrics_file: str | None = None,
        metrics_port: int | None = None,
        stream: TextIO | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = CollectorRegistry()
        self._records = Counter("klamm_pipeline_records", "Records that are through.", ["job"], registry=self.registry)
        self._bytes = Counter("klamm_pipeline_bytes", "Their bytes, as read.", ["job"], registry=self.registry)
        self._remaining = Gauge(
            "klamm_pipeline_remaining_records", "Planned, and not through yet.", ["job"], registry=self.registry
        )
        self._success = Gauge(
            "klamm_pipeline_last_success_timestamp_seconds", "When a run ended well.", ["job"], registry=self.registry
        )
        self._stream = stream or sys.stderr
        self._monotonic = monotonic
        self._file = metrics_file
        self._port = metrics_port
        self._bars: Any = None
        self._tasks: dict[int, Any] = {}
        self._printed_s = monotonic()
        self._written_s = monotonic()
        self._stack = ExitStack()
        self.mode = ("bar" if self._stream.isatty() else "log") if mode == "auto" else mode

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        return cls(mode=options.progress, metrics_file=options.metrics_file, metrics_port=options.metrics_port)

    # -- what jobs call

    def event(self, what: str, **facts: object) -> None:
        """Print an event that an operator wants to know."""
        if self.mode == "none":
            return
        line = " ".join([what, *(f"{key}={_shown(value)}" for key, value in facts.items())])
        if self._bars is not None:
            self._bars.console.print(line, highlight=False, markup=False)
        else:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            print(f"{stamp} {line}", file=self._stream, flush=True)

    @contextmanager
    def progress(self, job: str, total: int | None = None) -> Iterator[Progress]:
        """Show a bar that ends with the block."""
        progress = Progress(self, job, total)
        if self.mode == "bar":
            self._tasks[id(progress)] = self._started_bars().add_task(job, total=total)
        try:
            yield progress
            if self.mode == "log":
                self.event(f"{job} done", records=progress.done)
        finally:
            if (task := self._tasks.pop(id(progress), None)) is not None:
                self._bars.stop_task(task)
            self._write()

    def advanced(self, job: str, progress: Progress, records: int, size_bytes: int) -> None:
        """Count and show the advance of a `Progress`."""
        self._records.labels(job).inc(records)
        self._bytes.labels(job).inc(size_bytes)
        if progress.total is not None:
            self._remaining.labels(job).set(max(progress.total - progress.done, 0))
        now_s = self._monotonic()
        if (task := self._tasks.get(id(progress))) is not None:
            self._bars.update(task, completed=progress.done, total=progress.total)
        elif self.mode == "log" and now_s - self._printed_s >= INTERVAL_S:
            self._printed_s = now_s
            of = {} if progress.total is None else {"of": progress.total}
            self.event(job, records=progress.done, **of)
        if now_s - self._written_s >= INTERVAL_S:
            self._write()

    def succeeded(self, job: str) -> None:
        """Record that the job succeeded: set the time that alerts use."""
        self._success.labels(job).set_to_current_time()
        self._write()

    # -- life

    def __enter__(self) -> Self:
        if self._port is not None:
            try:
                server, thread = start_http_server(self._port, "127.0.0.1", self.registry)
            except OSError as error:
                raise BadOption(f"--metrics-port {self._port}: {error.strerror}") from None
            self._stack.callback(thread.join)
            self._stack.callback(server.server_close)
            self._stack.callback(server.shutdown)
        self._write()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._stack.close()
        if kind is None:
            self._write()

    def _write(self) -> None:
        self._written_s = self._monotonic()
        if self._file is not None:
            try:
                write_to_textfile(self._file, self.registry)
            except OSError as error:
                raise BadOption(f"--metrics-file {self._file}: {error.strerror}") from None

    def _started_bars(self) -> Any:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=Console(file=self._stream))
            self._bars.start()
        return self._bars


def _shown(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return f'"{text}"' if " " in text or not text else text.replace(os.linesep, " ")
