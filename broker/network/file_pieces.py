"""Record data on the way from the page cache to a socket, without disk waits on the event loop.

A `FilePiece` is the unsent rest of a `FileRegion`. A thread (`FileThreads`) sends large ones. It may wait for the disk
and, shortly, for the peer: `sendfile` runs without the GIL, so large fetches use more than one core. When the peer does
not keep up, the loop sends the rest.

A read of pages that are not in memory blocks the caller. So before the loop reads a stretch of a file it asks
`preadv(RWF_NOWAIT)` for single bytes of it, one every `PROBE_STRIDE`: the kernel evicts and reads ahead in runs far
longer than that. A miss is counted and a thread reads the stretch; then the loop goes on. On a filesystem without this
flag (tmpfs), all data count as cached.

A file object may declare that its newest bytes need no probe: its optional attribute `hot_position` is the start of the
bytes that were just written.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from klamm.protocol.regions import FileRegion

COPY_BYTES = 64 * 1024  # up to this size one pread and a common send are faster than a send of its own
WINDOW_BYTES = 1024 * 1024  # probed, and read ahead, at once
PROBE_STRIDE = 64 * 1024
THREADS = 4
THREAD_BYTES = 256 * 1024  # from this size on a thread sends a piece
THREAD_TURNS = 256  # large pieces that threads send after other traffic
PEER_WAIT_MS = 2  # how long a thread waits for the peer to read
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

Memory: TypeAlias = "bytes | bytearray | memoryview"
Part: TypeAlias = "bytes | bytearray | memoryview | FilePiece"


class ShortFile(Exception):
    """The file ends before the region does, so the response can never be completed."""


class FilePiece:
    """The unsent part of a region; up to position `warm_until` no read will block."""

    __slots__ = ("by_thread", "file", "position", "size", "warm_until")

    def __init__(self, region: FileRegion) -> None:
        self.file = region.file
        self.position = region.position
        self.size = region.size
        self.by_thread = region.size >= THREAD_BYTES
        hot: int | None = getattr(region.file, "hot_position", None)
        self.warm_until = region.position + region.size if hot is not None and region.position >= hot else -1

    def advance(self, sent: int) -> None:
        self.position += sent
        self.size -= sent
        assert self.size >= 0

    def copy_into(self, buffer: bytearray | memoryview) -> bool:
        """Copy all of the bytes, unless that could block. Raises ShortFile. For small pieces."""
        if self.warm_until >= self.position + self.size or NOWAIT is None:
            return self._copy_blocking(buffer)
        try:
            count = os.preadv(self.file.fileno(), [buffer], self.position, NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in UNSUPPORTED:
                return self._copy_blocking(buffer)
            raise
        if count == 0:
            raise ShortFile(f"file ends before position {self.position}")
        return count == self.size  # else a page is not in memory, or the file ends

    def _copy_blocking(self, buffer: bytearray | memoryview) -> bool:
        if os.preadv(self.file.fileno(), [buffer], self.position) != self.size:
            raise ShortFile(f"file ends before position {self.position + self.size}")
        return True

    def is_warm(self, size: int) -> bool:
        """Return whether `size` bytes from the position on can be sent without blocking."""
        stop = self.position + size
        return self.warm_until >= stop or is_cached(self.file.fileno(), self.position, stop)

    def warm_bytes(self) -> int:
        """Return how many bytes from the position on can be sent without blocking; 0 for none."""
        if self.warm_until <= self.position:
            stop = self.position + min(self.size, WINDOW_BYTES)
            if not is_cached(self.file.fileno(), self.position, stop):
                return 0
            self.warm_until = stop
        return min(self.size, self.warm_until - self.position)


def in_memory(region: FileRegion) -> FileRegion | bytearray:
    """Return the bytes of the region if reading them does not block, else the region itself."""
    data = bytearray(region.size)
    with suppress(OSError, ShortFile):  # sending the region raises them again
        if FilePiece(region).copy_into(data):
            return data
    return region


def is_cached(descriptor: int, position: int, stop: int) -> bool:
    """Return whether [position, stop) is most likely in the page cache. Makes at most `WINDOW_BYTES / PROBE_STRIDE + 1`
    short calls.
    """
    if NOWAIT is None:
        return True
    probe = [bytearray(1)]
    try:
        for sample in range(position, stop - 1, PROBE_STRIDE):
            os.preadv(descriptor, probe, sample, NOWAIT)
        os.preadv(descriptor, probe, stop - 1, NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return True
        raise
    return True


DoneCallback = Callable[[Any, BaseException | None], None]
"""Receives the result of a thread's work, or its error."""


class FileThreads:
    """Threads that send large pieces, and read stretches of files into the page cache; started on first use.

    An executor would work, too, but costs more time per piece than the kernel does. `busy` counts unfinished work.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = THREADS) -> None:
        self._loop = loop
        self._count = threads
        self._threads: list[threading.Thread] = []
        self._given: SimpleQueue[tuple[DoneCallback, Callable[..., Any], tuple[object, ...]] | None] = SimpleQueue()
        self._finished: deque[tuple[DoneCallback, Any, BaseException | None]] = deque()
        self.busy = 0
        self.misses = 0
        self._turns_left = THREAD_TURNS

    def note_other_traffic(self) -> None:
        """Note that something other than a large piece was sent: threads get the next THREAD_TURNS large pieces."""
        self._turns_left = THREAD_TURNS

    def take_thread_turn(self) -> bool:
        """Return whether a thread shall send the next large piece, and count it. If only large pieces are sent, threads
        make no response faster and large ones more expensive.
        """
        if self._turns_left:
            self._turns_left -= 1
            return True
        return False

    def send(
        self,
        duplicate: Callable[[], socket.socket],
        parts: Sequence[Part],
        then: Callable[[int, BaseException | None], None],
    ) -> None:
        """Send as much of the parts as the peer reads. Call `then` on the loop with the bytes sent, or the error.
        `duplicate` makes a descriptor for the thread."""

        def done(result: tuple[int, int] | None, error: BaseException | None) -> None:
            sent, misses = result or (0, 0)
            self.misses += misses
            then(sent, error)

        self._start()
        self._give(done, _send, duplicate(), parts)

    def read(self, piece: FilePiece, then: Callable[[BaseException | None], None]) -> None:
        """Read the next window of the piece, then call `then` on the loop with the error, if any."""
        self.misses += 1
        stop = piece.position + min(piece.size, WINDOW_BYTES)

        def done(_: None, error: BaseException | None) -> None:
            if error is None:
                piece.warm_until = stop
            then(error)

        self._start()
        # The thread holds the file object, so the descriptor cannot be closed and reused meanwhile.
        self._give(done, _read, piece.file, piece.position, stop)

    def settle(self) -> None:
        """Report all finished work; the loop does so by itself, a little later."""
        while self._finished:
            on_done, result, error = self._finished.popleft()
            self.busy -= 1
            on_done(result, error)

    def close(self) -> None:
        """End the threads after the work they have."""
        for _ in self._threads:
            self._given.put(None)
        self._threads = []

    def _give(self, on_done: DoneCallback, work: Callable[..., Any], *what: object) -> None:
        self.busy += 1
        self._given.put((on_done, work, what))

    def _start(self) -> None:
        """Start as many threads as possible, once. Raises OSError when no thread can be started."""
        if self._threads:
            return
        try:
            for number in range(self._count):
                thread = threading.Thread(target=self._run, name=f"files-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:  # a limit of the machine
            if not self._threads:
                raise OSError(errno.ENOMEM, str(error)) from error

    def _run(self) -> None:
        """Do the work of a thread."""
        while (given := self._given.get()) is not None:
            on_done, work, what = given
            try:
                self._finished.append((on_done, work(*what), None))
            except Exception as error:
                self._finished.append((on_done, None, error))
            del given, on_done, work, what  # keep no file open
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.settle)


def _send(channel: socket.socket, parts: Sequence[Part]) -> tuple[int, int]:
    """Send the parts, in a thread. Return the bytes sent, and how many windows came from the disk. Closes `channel`."""
    writable = select.poll()
    writable.register(channel, select.POLLOUT)
    sent = misses = 0
    with channel:
        for number, part in enumerate(parts, 1):
            if isinstance(part, FilePiece):
                of_part, cold = _send_piece(channel, part, writable)
                misses += cold
                size = part.size
            else:
                of_part, size = _send_memory(channel, part, writable, MSG_MORE if number < len(parts) else 0), len(part)
            sent += of_part
            if of_part < size:
                break
    return sent, misses


def _send_memory(channel: socket.socket, data: Memory, writable: select.poll, flags: int) -> int:
    view, sent = memoryview(data), 0
    while sent < len(view):
        try:
            sent += channel.send(view[sent:], flags)
        except BlockingIOError:
            if not writable.poll(PEER_WAIT_MS):
                break
    return sent


def _send_piece(channel: socket.socket, piece: FilePiece, writable: select.poll) -> tuple[int, int]:
    out, descriptor = channel.fileno(), piece.file.fileno()
    position, end = piece.position, piece.position + piece.size
    misses, probed = 0, end if piece.warm_until > position else position
    while position < end:
        if position >= probed:
            misses += not is_cached(descriptor, position, position + 1)
            probed = position + WINDOW_BYTES
        try:
            sent = os.sendfile(out, descriptor, position, min(end, probed) - position)
        except BlockingIOError:
            if not writable.poll(PEER_WAIT_MS):
                break
            continue
        if not sent:
            raise ShortFile(f"file ends at or before position {position}")
        position += sent
    return position - piece.position, misses


def _read(file: FileLike, position: int, stop: int) -> None:
    """Read a stretch of a file, in a thread."""
    descriptor = file.fileno()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, position, stop - position, os.POSIX_FADV_WILLNEED)
    data = bytearray(PROBE_STRIDE)
    while position < stop:
        count = os.preadv(descriptor, [data], position)
        if not count:
            return  # a short file: its sender notices
        position += count


if TYPE_CHECKING:
    from klamm.protocol.regions import HasFileno as FileLike
