"""The process that verifies segments in the background, `klamm.storage.scrub.scrub_worker`, started by the broker.

It reads lines of JSON, each a `Job`, and answers `{"damage": [...], "read": bytes}`, `{"gone": true}` when the file is
no longer the one meant (it was compacted or cut), or `{"failed": why}`. It verifies one segment after the other and
ends when its standard input ends. It runs at low priority and keeps to the given bytes per second.

Its reads evict nothing from the page cache: pages that it brought in are dropped again, and nothing is read ahead.
Cached pages are verified as they are, since readers get these.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from klamm.storage.filesystem import Buffer, File, OsFilesystem, describe
from klamm.storage.log.results import DamagedRange
from klamm.storage.recovery.damage import find_damage

NICENESS: Final = 10
STEP_BYTES: Final = 64 << 10
PAGE_BYTES: Final = 4096
MAX_CREDIT_SECONDS: Final = 0.1
MAX_RANGES: Final = 100
"""At most so many for one segment: the answer is one line, and readers search all of them."""
NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


@dataclass(frozen=True, slots=True)
class Job:
    """The first `end_position` bytes of a segment; `device` and `inode` identify the file."""

    path: str
    base_offset: int
    end_position: int
    end_offset: int
    device: int
    inode: int
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings; None: another file has the name now."""

    damage: tuple[DamagedRange, ...] | None
    read_bytes: int


class ScrubFailed(Exception):
    """The segment could not be read this time."""


class Pace:
    """A limit of bytes per second, kept by sleeping; unused allowance expires quickly."""

    def __init__(self) -> None:
        self.bytes_per_second = 1.0
        self._due = 0.0

    def spend(self, size_bytes: int) -> None:
        now = time.monotonic()
        self._due = max(self._due, now - MAX_CREDIT_SECONDS) + size_bytes / self.bytes_per_second
        if self._due > now:
            time.sleep(self._due - now)


class CarefulFile:
    """A file that is read at a pace and leaves the page cache as it was."""

    def __init__(self, path: Path, pace: Pace) -> None:
        self._file = OsFilesystem().open_read(path)
        self._pace = pace
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def fileno(self) -> int:
        return self._file.fileno()

    def size(self) -> int:
        return self._file.size()

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        return self._file.data_ranges(start, end)

    def modified_ms(self) -> int:
        return self._file.modified_ms()

    def read_at(self, size: int, position: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.read_into(buffer, position)])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        view = memoryview(buffer)
        done = 0
        while done < len(view):
            count = self._read(view[done:], position + done)
            if not count:
                break
            done += count
        self._pace.spend(done)
        return done

    def _read(self, view: memoryview, position: int) -> int:
        if NOWAIT is not None and hasattr(os, "preadv"):
            try:
                return os.preadv(self.fileno(), [view], position, NOWAIT)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
                return os.preadv(self.fileno(), [view], position)  # a filesystem in memory
        size = STEP_BYTES - position % PAGE_BYTES
        count = os.preadv(self.fileno(), [view[:size]], position)
        if hasattr(os, "posix_fadvise"):
            start = position - position % PAGE_BYTES
            stop = -(-(position + count) // PAGE_BYTES) * PAGE_BYTES
            os.posix_fadvise(self.fileno(), start, stop - start, os.POSIX_FADV_DONTNEED)
        return count

    def write_at(self, data: Buffer, position: int) -> None:
        raise OSError(errno.EBADF, "opened for reading")

    def allocate(self, size: int) -> None:
        raise OSError(errno.EBADF, "opened for reading")

    def truncate(self, size: int) -> None:
        raise OSError(errno.EBADF, "opened for reading")

    def sync(self) -> None:
        raise OSError(errno.EBADF, "opened for reading")


def verify(job: Job, pace: Pace) -> Verified:
    """Verify the segment of a job. Raises OSError."""
    pace.bytes_per_second = job.bytes_per_second
    try:
        file = CarefulFile(Path(job.path), pace)
    except FileNotFoundError:
        return Verified(None, 0)
    stat = os.fstat(file.fileno())
    if (stat.st_dev, stat.st_ino) != (job.device, job.inode):
        return Verified(None, 0)
    damage = damaged_ranges(file, job)
    if file.size() < job.end_position:
        return Verified(None, job.end_position)
    return Verified(damage, job.end_position)


def damaged_ranges(file: File, job: Job) -> tuple[DamagedRange, ...]:
    """Return the damaged ranges of a file. Raises OSError."""
    found = [
        DamagedRange(
            job.base_offset, each.position, each.end_position, each.first_offset, each.next_offset, each.problem
        )
        for each in find_damage(file, job.base_offset, job.end_position, end_offset=job.end_offset)
    ]
    return tuple(joined(found, MAX_RANGES))


def joined(ranges: Sequence[DamagedRange], most: int) -> Iterator[DamagedRange]:
    """Yield at most `most` ranges: if there are more, those with the fewest good bytes between them are joined."""

    def good_bytes_before(index: int) -> int:
        return ranges[index].position - ranges[index - 1].end_position

    widest = sorted(range(1, len(ranges)), key=good_bytes_before, reverse=True)[: most - 1]
    bounds = sorted({0, *widest, len(ranges)})
    for start, stop in pairwise(bounds):
        last = ranges[stop - 1]
        yield replace(ranges[start], end_position=last.end_position, next_offset=last.next_offset)


def decode_answer(line: bytes) -> Verified:
    """Decode an answer. Raises ScrubFailed, also for an empty one: the worker has died."""
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        raise ScrubFailed("the worker died") from None
    if "failed" in fields:
        raise ScrubFailed(fields["failed"])
    if "gone" in fields:
        return Verified(None, fields["read"])
    return Verified(tuple(DamagedRange(**each) for each in fields["damage"]), fields["read"])


def answer(line: bytes, pace: Pace) -> dict[str, Any]:
    job = Job(**json.loads(line))
    try:
        verified = verify(job, pace)
    except OSError as error:
        return {"failed": f"{job.path}: {describe(error)}"}
    if verified.damage is None:
        return {"gone": True, "read": verified.read_bytes}
    return {"damage": [asdict(each) for each in verified.damage], "read": verified.read_bytes}


def _read_jobs(jobs: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


def main() -> None:
    os.nice(NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    pace = Pace()
    while True:
        line = json.dumps(answer(jobs.get(), pace)) + "\n"
        try:
            os.write(sys.stdout.fileno(), line.encode())
        except BrokenPipeError:  # the broker was killed
            os._exit(1)


if __name__ == "__main__":
    main()
