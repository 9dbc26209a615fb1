"""Cut a byte stream into frames, without any I/O.

A frame is `size:int32 | payload:size bytes`, big endian. `FrameBuffer` is driven in four steps per read:

    view = buffer.writable(); n = socket.recv_into(view); buffer.received(n)
    while (frame := buffer.next_frame()) is not None: ...   # a memoryview, no copy
    buffer.settle()

Where most reads bring one whole frame, `received_frame` returns it at once and saves the other steps.

Most connections are idle or have small requests. So all connections of one thread read into one shared `Scratch`, and
frames are returned as views of it. `settle()` copies an incomplete rest into a buffer of the connection's own, which
exists only while it is needed. It doubles with the bytes that arrived, never with the declared size. Once `MAP_BYTES`
have arrived, the rest of a frame is mapped, which takes memory only as it is written. The buffer is freed after a frame
above `KEEP_BYTES`.

Rules of reuse: a frame's view is valid until the next `settle()`, `writable()` or `trim()`, whichever comes first. To
use the bytes longer, call `keep`, or copy them. Memory is never resized in place (a bytearray with exported views
cannot be): a larger one is allocated, and the old one lives as long as its views.
"""

from __future__ import annotations

import mmap
import struct

SIZE = struct.Struct(">i")  # size of the payload that follows
SCRATCH_BYTES = 256 * 1024
MIN_OWN_BYTES = 4 * 1024
MAP_BYTES = 1024 * 1024  # growing a buffer copies it, which takes time, so from this size on it does not grow
KEEP_BYTES = 2 * 1024 * 1024  # a larger empty buffer is freed at once, a smaller one by trim()


class FrameError(Exception):
    """The size prefix is impossible; `prefix` holds the first bytes received, for a helpful message."""

    def __init__(self, size: int, limit: int, prefix: bytes) -> None:
        super().__init__(f"frame size {size} is not in 1..{limit}")
        self.size = size
        self.prefix = prefix


class Scratch:
    """The read buffer that all connections of one event loop share."""

    __slots__ = ("view",)

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.view = memoryview(bytearray(size))


class FrameBuffer:
    """The unread bytes of one connection; see the module docstring for the order of calls."""

    __slots__ = ("_end", "_own", "_scratch", "_start", "_view", "frames_seen", "max_frame_bytes")

    def __init__(self, scratch: Scratch, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes  # may change at any time, for example after authentication
        self.frames_seen = 0
        self._scratch = scratch.view
        self._own: memoryview | None = None
        self._view = scratch.view
        self._start = 0
        self._end = 0

    @property
    def buffered_bytes(self) -> int:
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """The memory held by this connection alone."""
        return 0 if self._own is None else len(self._own)

    @property
    def needed_bytes(self) -> int:
        """The whole size of the next frame, prefix included; 0 while its prefix is incomplete."""
        if self._end - self._start < SIZE.size:
            return 0
        size: int = SIZE.unpack_from(self._view, self._start)[0]
        return SIZE.size + size

    def has_frame(self) -> bool:
        """Whether `next_frame` would return a frame, or raise."""
        needed = self.needed_bytes
        if not needed:
            return False
        in_bounds = 0 < needed - SIZE.size <= self.max_frame_bytes
        return not in_bounds or self._end - self._start >= needed

    def writable(self) -> memoryview:
        """Return the memory for the next bytes; never empty."""
        if self._start != self._end:
            return self._room_behind_rest()
        self._start = self._end = 0
        own = self._own
        # A connection with large frames has a large buffer of its own, and avoids the copy from the scratch.
        self._view = view = self._scratch if own is None or len(own) < len(self._scratch) else own
        return view

    def received(self, size: int) -> None:
        """Record that `size` bytes were written to the start of the last `writable()`."""
        self._end += size
        assert size > 0 and self._end <= len(self._view)

    def received_frame(self, size: int) -> memoryview | None:
        """Call `received`; return the frame if it is the only data. Then nothing needs to be settled."""
        view = self._view
        if (
            self._end == 0
            and size > 4
            and view is self._scratch
            and SIZE.unpack_from(view)[0] == size - 4 <= self.max_frame_bytes
        ):
            self._start = self._end = size
            self.frames_seen += 1
            return view[4:size]
        self.received(size)
        return None

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its prefix; None when more bytes are needed. Raises FrameError."""
        start = self._start
        available = self._end - start
        if available < 4:
            return None
        size = SIZE.unpack_from(self._view, start)[0]
        if not 0 < size <= self.max_frame_bytes:
            raise FrameError(size, self.max_frame_bytes, bytes(self._view[start : min(start + 16, self._end)]))
        if available < 4 + size:
            return None
        self._start = stop = start + 4 + size
        self.frames_seen += 1
        return self._view[start + 4 : stop]

    def push_back(self, frame: memoryview) -> None:
        """Undo the last `next_frame`, which gave `frame`."""
        self._start -= SIZE.size + len(frame)
        self.frames_seen -= 1
        assert self._start >= 0

    def keep(self) -> bool:
        """Return whether views of the last frame stay valid, because the connection reads on in other memory.

        If not, they are in the scratch, and small.
        """
        if self._view is self._scratch:
            return False
        rest = self._end - self._start
        if rest:
            self._move_rest(memoryview(bytearray(max(MIN_OWN_BYTES, rest))))
        else:
            self._own = None
            self._view = self._scratch
            self._start = self._end = 0
        return True

    def settle(self) -> None:
        """Free the scratch: move the rest in it to a buffer of this connection's own."""
        rest = self._end - self._start
        own = self._own
        if not rest:
            if own is not None and len(own) > KEEP_BYTES:
                self._own = None
                self._view = self._scratch
            return
        if self._view is not self._scratch:
            return
        if own is None or len(own) < rest:
            own = memoryview(bytearray(max(MIN_OWN_BYTES, rest)))
        self._move_rest(own)

    def trim(self) -> None:
        """Free the own buffer of an idle connection; only between events."""
        if self._start == self._end and self._own is not None:
            self._own = None
            self._view = self._scratch

    def discard(self) -> None:
        """Drop everything unread."""
        self._start = self._end = 0
        self.trim()

    def _room_behind_rest(self) -> memoryview:
        assert self._view is self._own, "settle() comes before the next read"
        view, end, capacity = self._view, self._end, len(self._view)
        needed = max(self.needed_bytes, SIZE.size)
        if self._start + needed > capacity:  # the frame does not fit
            if end - self._start < capacity:
                self._move_rest(view)
            else:
                more = _mapped(needed) if capacity >= MAP_BYTES else memoryview(bytearray(min(2 * capacity, needed)))
                self._move_rest(more)
            view, end = self._view, self._end
        return view[end:]

    def _move_rest(self, target: memoryview) -> None:
        rest = self._end - self._start
        target[:rest] = self._view[self._start : self._end]
        self._own = self._view = target
        self._start, self._end = 0, rest


def _mapped(size: int) -> memoryview:
    """Return zeroed memory that is allocated only as it is written. Raises OSError when there are too many maps."""
    return memoryview(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
