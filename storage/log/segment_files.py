"""The files of a segment, the `.log` and its indexes: open, create, complete, freeze, delete.

With `preallocate`, a new file gets its full size on disk, so that appends neither run out of space nor fragment it. It
then has zeros after `size_bytes`. They are cut off when the segment is rolled or closed, and after a crash by recovery.
If the disk lacks the space, the segment does without.

Readers hold the file itself, not the segment: its descriptor closes when the last reference is dropped.
"""

from __future__ import annotations

import logging
from pathlib import Path

from klamm.storage import paths
from klamm.storage.filesystem import File, Filesystem, describe, unlink_if_exists
from klamm.storage.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from klamm.storage.log.transaction_index import TransactionIndex

logger = logging.getLogger(__name__)


class SegmentFiles:
    """The files of the segment at `base_offset`; the first `size_bytes` of the `.log` are batches."""

    __slots__ = (
        "__weakref__",
        "_file",
        "_filesystem",
        "_log_path",
        "_preallocate_bytes",
        "_suffix",
        "_was_used",
        "base_offset",
        "directory",
        "is_frozen",
        "is_preallocated",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
        "writable",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: Path,
        base_offset: int,
        *,
        size_bytes: int,
        suffix: str,
        preallocate_bytes: int,
    ) -> None:
        self._filesystem = filesystem
        self.directory = directory
        self.base_offset = base_offset
        self._suffix = suffix
        self._log_path = paths.offset_file(directory, base_offset, paths.LOG_SUFFIX + suffix)
        self._file: File | None = None
        self.size_bytes = size_bytes
        self.offset_index = OffsetIndex(
            filesystem, paths.offset_file(directory, base_offset, paths.INDEX_SUFFIX + suffix), base_offset
        )
        self.time_index = TimeIndex(
            filesystem, paths.offset_file(directory, base_offset, paths.TIME_INDEX_SUFFIX + suffix), base_offset
        )
        self.transaction_index = TransactionIndex(
            filesystem, paths.offset_file(directory, base_offset, paths.TXN_INDEX_SUFFIX + suffix)
        )
        self.writable = True
        self._was_used = False
        self.is_frozen = False
        self._preallocate_bytes = preallocate_bytes
        self.is_preallocated = False

    @property
    def path(self) -> Path:
        return self._log_path

    @property
    def file(self) -> File:
        """The `.log` file, opened on first use."""
        self._was_used = True
        file = self._file
        if file is None:
            file = self._file = self._filesystem.open_file(self._log_path)
            self._filesystem.open_files.opened(self)
        return file

    def let_go(self) -> bool:
        """Drop the file, unless it is in use or frozen. See `open_files.Holder`."""
        if self._was_used and self._file is not None:
            self._was_used = False
            return True
        if not self.is_frozen:
            self._file = None
        return False

    def create(self, *, exclusive: bool = False) -> None:
        """Create the file of a new, empty segment.

        Indexes of that name are leftovers. So is a `.log`, unless `exclusive`: then it raises FileExistsError.
        """
        self.transaction_index.clear()
        file = self._filesystem.open_file(self._log_path, create=True, exclusive=exclusive)
        if file.size():
            file.truncate(0)
        self._file = file
        self._filesystem.open_files.opened(self)
        if self._preallocate_bytes:
            self._preallocate(file)

    def _preallocate(self, file: File) -> None:
        try:
            file.allocate(self._preallocate_bytes)
            self.is_preallocated = True
        except OSError as error:
            logger.warning(
                "%s: %d bytes not preallocated: %s", self._log_path, self._preallocate_bytes, describe(error)
            )
            file.truncate(0)

    def trim(self) -> None:
        """Cut off the preallocated zeros after the batches."""
        if self.is_preallocated:
            self.file.truncate(self.size_bytes)
            self.is_preallocated = False

    def write_indexes(self) -> list[File]:
        """Write out the complete indexes of a segment that takes no more appends; return their files to be synced.

        Raises OSError when the disk refuses.
        """
        self.trim()
        files = [self.offset_index.write_out(), self.time_index.write_out()]
        if self.transaction_index.is_in_use:
            files.append(self.transaction_index.write_out())
        return files

    @property
    def index_bytes(self) -> tuple[int, int]:
        """The sizes of the offset and the time index, without preallocated zeros."""
        return self.offset_index.count * OFFSET_ENTRY.size, self.time_index.count * TIME_ENTRY.size

    def sync_indexes(self) -> None:
        for file in self.write_indexes():
            file.sync()

    def sync(self) -> None:
        """Make the batches durable."""
        self.file.sync()

    def close(self) -> None:
        """Drop the file; it closes when the last reader is done."""
        self._file = None

    def files(self) -> list[Path]:
        """Return the names of its files, the log first: without it the others are leftovers. Indexes may be missing."""
        return [
            paths.offset_file(self.directory, self.base_offset, suffix + self._suffix)
            for suffix in paths.SEGMENT_SUFFIXES
        ]

    def freeze(self) -> None:
        """Keep the files open for readers, as they are: others will take their names. Nothing is written any more."""
        self.is_frozen = True
        self._filesystem.open_files.settle()
        assert self.file is not None
        self.offset_index.freeze()
        self.time_index.freeze()
        self.transaction_index.freeze()

    def delete(self) -> None:
        for path in self.files():
            unlink_if_exists(self._filesystem, path)
        self.close()

    def _cut_back(self, position: int) -> None:
        """Undo a partial write. If even that fails, nothing may be written after the torn bytes."""
        try:
            self.file.truncate(position)
        except OSError:
            self.writable = False
