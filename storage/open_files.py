"""How many descriptors and memory maps the logs of a broker hold: segments keep their file open, and indexes their
mapping, until others need the room.

The one that was opened first goes first, unless it was used since it was last looked at. Whoever reads from a file
holds the file itself: its descriptor closes when the last of them lets go. When the process is out of descriptors
nevertheless, or of memory maps, some are closed at once (`make_room`), so that a log can begin a segment.

A filesystem has one for all that is opened through it (`Filesystem.open_files`); a server sets its limit at the start.
Any thread may use it.

A file with unsynced bytes may be closed, too: the kernel reports an error of writing them back to whoever opens it
next, as it does to those who had it open.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import Final, Protocol

DEFAULT_LIMIT: Final = 512
MAKE_ROOM: Final = 32
"""How many are closed when the process is out of descriptors."""


class Holder(Protocol):
    """Who may be asked to close what can be opened again."""

    def let_go(self) -> bool:
        """Close it. True when it was used since it was last asked, and stays open this time."""


class OpenFiles:
    """The holders of open files, in the order of opening."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._holders: deque[weakref.ref[Holder]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """At most so many are open; those that were closed by themselves are counted until their turn comes."""
        return len(self._holders)

    def opened(self, holder: Holder) -> None:
        """`holder` has opened a file. Closes others that are too many."""
        with self._lock:
            self._holders.append(weakref.ref(holder))
            self._close(len(self._holders) - self.limit)

    def settle(self) -> None:
        """Wait until no holder is being asked: one that has just decided to keep its file has it from now on."""
        with self._lock:
            pass

    def make_room(self) -> bool:
        """Close some; False when there are none."""
        with self._lock:
            before = len(self._holders)
            self._close(MAKE_ROOM)
            return len(self._holders) < before

    def _close(self, count: int) -> None:
        patience = 2 * len(self._holders)  # used ones have been looked at twice then
        while count > 0 and patience > 0 and self._holders:
            patience -= 1
            reference = self._holders.popleft()
            holder = reference()
            if holder is not None and holder.let_go():
                self._holders.append(reference)
            else:
                count -= 1


def limit_for_logs(process_limit: int, map_limit: int, wanted: int = -1) -> int:
    """How many files and maps logs may hold: `wanted`, by default half of the descriptors that the process may have.
    The other half is for connections and what is opened for a moment.

    Not more than half of the maps, as any of them may be one: the other half is for code, threads and large objects.
    """
    return max(MAKE_ROOM, min(wanted if wanted > 0 else process_limit // 2, map_limit // 2))
