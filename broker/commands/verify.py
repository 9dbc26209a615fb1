"""`klamm verify`: verifies that the log dirs are in the state in which a broker leaves them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from klamm.broker.commands import CannotBeDone
from klamm.cli.program import EXIT_OK
from klamm.config.load import load

if TYPE_CHECKING:
    from klamm.storage.filesystem import Filesystem, Lock

DESCRIPTION: Final = """\
Verify whole log dirs: the checksum and the offsets of every batch, indexes, producers' snapshots, transaction indexes,
leader epochs, checkpoints, leftovers. With --deep every record is read, too. Only reads: copies, snapshots of
`klamm snapshot` and read-only media will do. The broker must not be running on them.

One line for each finding: a broker never leaves a PROBLEM; a note is harmless, or a start corrects it.
The last line sums up. Uses all processors. Progress goes to stderr.

Exit code: 0 no problem; 1 problems; 2 a bad command line or config; 3 it cannot be done (the reason is one line).

examples:
  klamm verify --config server.properties
  klamm verify --deep --log-dirs /disk1/klamm,/disk2/klamm
"""

EXIT_PROBLEMS: Final = 1
BAR_WIDTH: Final = 40
STEP_PERCENT: Final = 10
LONG_BYTES: Final = 256 << 20


def declare(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--config", metavar="server.properties", help="the broker's config file, which names log.dirs")
    where.add_argument("--log-dirs", type=_directories, metavar="a,b", help="the log dirs themselves")
    parser.add_argument("--deep", action="store_true", help="read every record, too")
    parser.add_argument("--workers", type=_count, metavar="n", help="how many processes (one for each processor)")


def run(options: argparse.Namespace) -> int:
    from klamm.storage.clock import SystemClock
    from klamm.storage.filesystem import OsFilesystem, describe
    from klamm.storage.tools.verify.run import verify

    log_dirs: Sequence[Path] = options.log_dirs or load(options.config, (), os.environ).log_dirs
    filesystem, clock = OsFilesystem(), SystemClock()
    workers = options.workers or len(os.sched_getaffinity(0))
    progress = Progress(sys.stderr)
    started = clock.monotonic()
    try:
        with _locked(filesystem, log_dirs):
            result = verify(filesystem, log_dirs, deep=options.deep, workers=workers, on_progress=progress.show)
    except BlockingIOError as error:
        raise CannotBeDone(f"{error.filename}: held by a running broker: stop it, or verify a snapshot") from error
    except OSError as error:
        raise CannotBeDone(f"{error.filename or log_dirs[0]}: {describe(error)}") from error
    finally:
        progress.end()
    took_s = clock.monotonic() - started
    for finding in result.findings:
        print(finding)
    problems = result.problem_count
    print(
        f"verified log_dirs={len(log_dirs)} partitions={result.partitions} segments={result.segments} "
        f"batches={result.batches} records={result.records} bytes={result.size_bytes} problems={problems} "
        f"notes={len(result.findings) - problems} took_s={took_s:.2f} "
        f"gb_per_s={result.size_bytes / max(took_s, 1e-9) / 1e9:.2f}"
    )
    return EXIT_PROBLEMS if problems else EXIT_OK


@contextmanager
def _locked(filesystem: Filesystem, log_dirs: Sequence[Path]) -> Iterator[None]:
    """Lock the log dirs, so that no broker starts. A log dir without a lock file, or on a read-only medium, is not
    locked.
    """
    from klamm.storage.paths import LOCK

    locks: list[Lock] = []
    try:
        for path in log_dirs:
            file = path / LOCK
            if filesystem.exists(file):
                with suppress(PermissionError):
                    locks.append(_lock(filesystem, file))
        yield
    finally:
        for lock in locks:
            lock.release()


def _lock(filesystem: Filesystem, file: Path) -> Lock:
    import errno

    try:
        return filesystem.lock_file(file)
    except BlockingIOError as error:
        error.filename = str(file)
        raise
    except OSError as error:
        if error.errno == errno.EROFS:
            raise PermissionError from error
        raise


class Progress:
    """A progress bar on a terminal, else a line for every tenth of a long run."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._percent = 0
        self._open = False

    def show(self, done: int, total: int) -> None:
        percent = done * 100 // total if total else 100
        if percent <= self._percent:
            return
        if self._is_terminal:
            filled = percent * BAR_WIDTH // 100
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            print(f"\r[{bar}] {percent:3d}%  {done >> 20} of {total >> 20} MiB", end="", file=self._out, flush=True)
            self._open = True
        elif total >= LONG_BYTES and percent // STEP_PERCENT > self._percent // STEP_PERCENT:
            print(f"verified {percent}%, {done >> 20} of {total >> 20} MiB", file=self._out, flush=True)
        self._percent = percent

    def end(self) -> None:
        if self._open:
            print(file=self._out)


def _directories(text: str) -> list[Path]:
    found = [Path(name) for name in text.split(",") if name]
    if not found:
        raise argparse.ArgumentTypeError("no directory is named")
    return found


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return count
