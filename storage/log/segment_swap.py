"""The swap of compacted segments into a log that is being read and written (files and crashes: `swap_manifest.py`).

`begin` runs on the loop, `swap_files` in a thread, `finish` on the loop. Code that must cut the log in between waits
for the thread, and then finishes the swap itself.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.storage import paths
from klamm.storage.filesystem import Filesystem, describe
from klamm.storage.log.segment import Segment
from klamm.storage.log.segment_list import SegmentList
from klamm.storage.log.swap_manifest import SwapManifest, announce, carry_out, withdraw

if TYPE_CHECKING:
    from klamm.storage.log.cleaned_segment import Cleaned


class SwapStuck(OSError):
    """The swap is half done: the log must go offline, the next start finishes it."""


class SegmentSwap:
    """The one swap that may be in progress in a log."""

    __slots__ = ("_directory", "_filesystem", "_new", "_old", "_segments", "cut_count")

    def __init__(self, filesystem: Filesystem, directory: Path, segments: SegmentList) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._segments = segments
        self._old: list[Segment] = []
        self._new: Segment | None = None
        self.cut_count = 0
        """How often the log was cut. A compacted segment made before a cut no longer fits the log."""

    @property
    def is_under_way(self) -> bool:
        return bool(self._old)

    def begin(self, cleaned: Cleaned, recovery_point: int) -> bool:
        """Reserve the segments that a compacted one is to replace; return False when they are gone."""
        if cleaned.cut_count != self.cut_count:
            return False
        sources = set(cleaned.sources)
        old = [segment for segment in self._segments.all[:-1] if segment.base_offset in sources]
        if self._old or len(old) != len(sources):
            return False
        if any(segment.base_offset >= recovery_point for segment in old):  # a flush may find them being renamed
            return False
        self._old = old
        return True

    def swap_files(self, cleaned: Cleaned, new_segment: Callable[[int], Segment]) -> list[Path]:
        """Move the compacted files into place, durably; return the files to unlink later. Blocks.

        Raises OSError when nothing has changed, and SwapStuck when something has, or may have.
        """
        swap = SwapManifest(
            cleaned.base_offset, cleaned.sources, size_bytes=cleaned.size_bytes, record_count=cleaned.record_count
        )
        try:
            self._look_at(cleaned)
            for segment in self._old:
                segment.freeze()
            announce(self._filesystem, self._directory, swap)
        except OSError:
            self._give_up()
            raise
        try:
            deleted = carry_out(self._filesystem, self._directory, swap)
            segment = new_segment(cleaned.base_offset)
            segment.open_existing(cleaned.size_bytes)
        except OSError as error:
            raise SwapStuck(error.errno, f"compacted segments were not swapped: {describe(error)}") from error
        self._new = segment
        return deleted

    def _look_at(self, cleaned: Cleaned) -> None:
        """Raise OSError unless the file has the size that the cleaner has verified. Costs almost nothing."""
        path = paths.offset_file(self._directory, cleaned.base_offset, paths.LOG_SUFFIX + paths.CLEANED_SUFFIX)
        size = self._filesystem.open_read(path).size()
        if size != cleaned.size_bytes:
            raise OSError(errno.EIO, f"{size} bytes instead of {cleaned.size_bytes}", str(path))

    def _give_up(self) -> None:
        try:
            withdraw(self._filesystem, self._directory)
        except OSError as error:  # the manifest may or may not be durable: nothing may change before a restart
            raise SwapStuck(error.errno, f"compacted segments were not swapped: {describe(error)}") from error
        for segment in self._old:
            segment.is_frozen = False
        self._old = []

    def finish(self) -> bool:
        """Show the compacted segment to readers, if its files are in place; return whether they are."""
        if self._new is None:
            return False
        self._segments.substitute(self._old, [self._new])
        self._new = None
        self._old = []
        return True
