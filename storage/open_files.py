"""The descriptors and memory maps that the logs of a broker hold, and their limit.

A segment keeps its file open, and an index its mapping, until others need the room. The one opened first is closed
first, unless it was used since it was last considered. A reader holds a reference to the file itself: the descriptor
closes when the last reference is dropped. If the process runs out of descriptors or memory maps anyway, some are closed
at once (`make_room`), so that a log can start a segment.

Each filesystem has one instance for everything opened through it (`Filesystem.open_files`); a server sets its limit at
the start. Any thread may use it.

A file with unsynced bytes may be closed, too: the kernel reports a failed write-back to the next process that opens the
file, just as to those that had it open.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final, Protocol

DEFAULT_LIMIT: Final = 512
MAKE_ROOM: Final = 32
"""How many files are closed when the process is out of descriptors."""


class Holder(Protocol):
    """An object that can close its file and open it again later."""

    def let_go(self) -> bool:
        """Close the file and return False; or, if it was used since the last call, keep it open and return True."""


class OpenFiles:
    """The holders of open files, in the order of opening."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._holders: deque[weakref.ref[Holder]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return an upper bound of the open files: a holder that closed its own file counts until its turn comes."""
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """Record that `holder` has opened a file; close others above the limit."""
        with self._lock:
            self._holders.append(weakref.ref(holder))
            self._close(len(self._holders) - self.limit)

    def settle(self) -> None:
        """Wait for a running `let_go`: a holder that has just decided to keep its file keeps it from now on."""
        with self._lock:
            pass

    def make_room(self) -> bool:
        """Close some; return False when none could be closed."""
        with self._lock:
            before = len(self._holders)
            self._close(MAKE_ROOM)
            return len(self._holders) < before

    def _close(self, count: int) -> None:
        patience = 2 * len(self._holders)  # enough to consider every used one twice
        while count > 0 and patience > 0 and self._holders:
            patience -= 1
            reference = self._holders.popleft()
            holder = reference()
            if holder is not None and holder.let_go():
                self._holders.append(reference)
            else:
                count -= 1


def limit_for_logs(process_limit: int, map_limit: int, wanted: int = -1) -> int:
    """Return how many files and maps logs may hold: `wanted`, by default half of the descriptors of the process.

    The other half is for connections and for files that are open only briefly. At most half of the maps are used, since
    each of the files may be one; the rest is for code, threads and large objects.
    """
    return max(MAKE_ROOM, min(wanted if wanted > 0 else process_limit // 2, map_limit // 2))
