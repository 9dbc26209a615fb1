"""The disk space that a log directory keeps for the time when the disk is full: the file `klamm.reserve`.

On a full disk, even a deletion must write a little: checkpoints and metadata. Then the reserve is released, and the
failed write is repeated. Until the reserve is made again, nothing may be appended to the directory, or producers would
take that space, too. It is made again when twice as much space is free.

The file has allocated blocks, not a hole. A file of size 0 is a released reserve, perhaps by a process that has died
since. Where there was never room for it, there is no file, and the directory works without. A crash at any step leaves
one of these states.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from klamm.storage import paths
from klamm.storage.filesystem import NO_SPACE, Filesystem, describe, unlink_if_exists

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Reserve:
    """The reserve of one log directory, of `size_bytes`; 0 disables it. Any thread may use it.

    `on_change` is called when the reserve is released, and when a released one is made again.
    """

    __slots__ = ("_directory", "_filesystem", "_lock", "_on_change", "_path", "is_held", "is_lent", "size_bytes")

    def __init__(
        self, filesystem: Filesystem, directory: Path, size_bytes: int, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._path = directory / paths.RESERVE
        self._lock = threading.Lock()
        self._on_change = on_change
        self.size_bytes = size_bytes
        self.is_held = False
        self.is_lent = False

    def open(self) -> None:
        """Open the existing reserve, or make it. Raises OSError."""
        if self.size_bytes == 0:
            unlink_if_exists(self._filesystem, self._path)
            return
        if self._filesystem.exists(self._path):
            size_bytes = self._filesystem.open_read(self._path).size()
            if size_bytes > self.size_bytes:
                self._filesystem.open_file(self._path).truncate(self.size_bytes)
            self.is_held = size_bytes >= self.size_bytes or (size_bytes > 0 and not self._has_room())
            self.is_lent = size_bytes == 0
        if not self.is_held and not self.make():
            logger.warning(
                "%s: no room for a reserve of %d bytes%s", self._directory, self.size_bytes,
                ": nothing is appended until there is" if self.is_lent else ": a full disk has to be emptied by hand",
            )  # fmt: skip

    @property
    def is_missing(self) -> bool:
        return self.size_bytes > 0 and not self.is_held

    def is_scarce(self) -> bool:
        """Return whether less than its size is free, so that a start or a close should release it first."""
        return self.is_held and self._free_bytes() < self.size_bytes

    def make(self) -> bool:
        """Make the reserve if there is room; return whether it exists."""
        with self._lock:
            if self.is_missing and self._has_room():
                self.is_held = self._allocate()
                self.is_lent = self.is_lent and not self.is_held
            return self.is_held

    def renew(self) -> None:
        """Make the reserve again if there is room for it. Blocks."""
        was_lent = self.is_lent
        if self.make() and was_lent:
            logger.info("%s: there is room again, and the reserve is made", self._directory)
            self._on_change()

    def _has_room(self) -> bool:
        return self._free_bytes() >= 2 * self.size_bytes

    def _free_bytes(self) -> int:
        """Return the free space, 0 if the disk does not report it."""
        try:
            return self._filesystem.free_bytes(self._directory)
        except OSError:
            return 0

    def _allocate(self) -> bool:
        try:
            file = self._filesystem.open_file(self._path, create=True)
            try:
                file.truncate(0)
                file.allocate(self.size_bytes)
                file.sync()
                self._filesystem.sync_directory(self._directory)
            except OSError:
                if self.is_lent:
                    file.truncate(0)
                else:
                    self._filesystem.unlink(self._path)
                raise
        except OSError as error:
            logger.warning("%s: no reserve of %d bytes: %s", self._directory, self.size_bytes, describe(error))
            return False
        return True

    def let_go(self) -> bool:
        """Release the space for writes on a full disk; return False when there is nothing to release.

        Nothing is appended to the directory until `renew` succeeds.
        """
        with self._lock:
            if not self.is_held:
                return False
            try:
                self._filesystem.open_file(self._path).truncate(0)
            except OSError as error:
                logger.error("%s: the reserve cannot be released: %s", self._directory, describe(error))
                return False
            self.is_held, self.is_lent = False, True
        logger.error(
            "%s: the disk is full: %d bytes of reserve are released; nothing is appended until twice as many are free",
            self._directory, self.size_bytes,
        )  # fmt: skip
        self._on_change()
        return True

    def lend_to(self, work: Callable[[], T]) -> T:
        """Call `work`; if it fails on a full disk, release the reserve and call it again. Raises OSError."""
        try:
            return work()
        except OSError as error:
            if error.errno not in NO_SPACE or not self.let_go():
                raise
        return work()
