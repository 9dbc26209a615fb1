"""The only place where storage opens a path: the `Filesystem` and `File` seams and their implementation.

Every crash story in this package relies on these rules:
- written bytes survive the death of the process (they are in the page cache); they survive a power cut only after
  `File.sync`;
- a new name, a rename or an unlink survives a power cut only after `sync_directory` of the directory;
- `replace_file` writes a small file so that after any crash either the old or the new content is there, whole.

The twin in `tests/support/memory_filesystem.py` forgets everything that was not synced, and fails on demand.

One file holds the seam and its only real implementation, because they are read and changed together.

A file is closed when its last reference is dropped. A response that is being sent holds the file of its region, so a
segment may be deleted meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from klamm.protocol.errors import KafkaStorageError
from klamm.storage.open_files import OpenFiles

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview

TRANSIENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}
)
"""Errors that pass (space is freed, descriptors are closed): refuse this request, and try again with the next."""


class File(Protocol):
    """An open regular file. Positions and sizes are bytes."""

    def fileno(self) -> int: ...

    def read_at(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer only at the end of the file."""

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fill the buffer; return how many bytes were read, fewer only at the end of the file."""

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`. Raises OSError; a part may then have been written."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Extend the file to `size` bytes: zeros with space on the disk. Raises OSError."""

    def size(self) -> int: ...

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of [start, end) that may hold bytes other than zero, in order.

        The gaps hold only zeros: a hole, or preallocated space that was never written. Ask before reading: a range that
        was read may count as data.
        """

    def modified_ms(self) -> int:
        """Return the time of the last write."""

    def sync(self) -> None:
        """Make the bytes and the size durable. After an error they may be lost, and a later success proves nothing."""


class LockedByUs(BlockingIOError):
    """This process already holds the lock, through `path`, which may be another name of the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EAGAIN, "this process holds it", str(path))
        self.path = path


class Lock(Protocol):
    def release(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. `inode` identifies the file; `link_count` is the number of its names."""

    name: str
    is_directory: bool
    size_bytes: int
    modified_ms: int
    inode: int = 0
    link_count: int = 1


class Filesystem(Protocol):
    @property
    def open_files(self) -> OpenFiles:
        """The files that logs hold open through this filesystem, and their limit."""

    def open_file(self, path: Path, *, create: bool = False, exclusive: bool = False) -> File:
        """Open for reading and writing. `exclusive`, with `create`: raise FileExistsError when the name exists."""

    def open_read(self, path: Path) -> File: ...

    def read_bytes(self, path: Path) -> bytes: ...

    def map_file(self, path: Path) -> Buffer | mmap.mmap:
        """Return the current content of the file, mapped to be read in place."""

    def exists(self, path: Path) -> bool: ...

    def list_directory(self, path: Path) -> list[Entry]: ...

    def free_bytes(self, path: Path) -> int:
        """Return how many more bytes fit on the disk that holds the directory."""

    def make_directories(self, path: Path) -> None: ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename `old`, replacing `new` atomically."""

    def hard_link(self, path: Path, new: Path) -> None:
        """Give the file a second name. Raises FileExistsError when the name exists."""

    def unlink(self, path: Path) -> None: ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: Path) -> None: ...

    def lock_file(self, path: Path) -> Lock:
        """Lock the file. Raises BlockingIOError when another process holds it, LockedByUs when this one does."""


class OsFile:
    """A file of the operating system; its descriptor closes with the last reference."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def read_at(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if 0 < len(data) < size:  # end of file, or more bytes than the kernel moves in one call
            parts = [data]
            done = len(data)
            while done < size and (data := os.pread(self._fd, size - done, position + done)):
                parts.append(data)
                done += len(data)
            return b"".join(parts)
        return data

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        done = os.preadv(self._fd, [buffer], position)
        if 0 < done < len(buffer):
            view = memoryview(buffer)
            while done < len(view) and (count := os.preadv(self._fd, [view[done:]], position + done)):
                done += count
        return done

    def write_at(self, data: Buffer, position: int) -> None:
        done = os.pwrite(self._fd, data, position)
        if done != len(data):
            rest = memoryview(data)[done:]
            while rest:
                position += done
                done = os.pwrite(self._fd, rest, position)
                rest = rest[done:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        found = []
        try:
            while start < end and (data := os.lseek(self._fd, start, os.SEEK_DATA)) < end:
                start = os.lseek(self._fd, data, os.SEEK_HOLE)
                found.append((data, min(start, end)))
        except OSError as error:
            if error.errno == errno.EINVAL:  # the filesystem does not support it
                return [(start, end)]
            if error.errno != errno.ENXIO:  # ENXIO: no data follows
                raise
        return found

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def __del__(self) -> None:
        if os is not None:  # when the interpreter exits, modules may be gone
            os.close(self._fd)

    def __repr__(self) -> str:
        return f"OsFile({str(self.path)!r})"


class OsLock:
    """A lock by `fcntl.lockf`, which Java respects.

    It does not exclude the own process, and closing any descriptor of the file drops it. So `take` opens a file only
    once, and recognizes it by device and inode.
    """

    __slots__ = ("__weakref__", "_file", "path")

    held: Final[weakref.WeakValueDictionary[tuple[int, int], OsLock]] = weakref.WeakValueDictionary()

    def __init__(self, file: OsFile) -> None:
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = file.path
        self._file: OsFile | None = file
        self.held[_identity(os.fstat(file.fileno()))] = self

    @classmethod
    def take(cls, filesystem: OsFilesystem, path: Path) -> OsLock:
        with suppress(FileNotFoundError):
            ours = cls.held.get(_identity(os.stat(path)))
            if ours is not None:
                raise LockedByUs(ours.path)
        return cls(filesystem.open_file(path, create=True))

    def release(self) -> None:
        if self._file is not None:
            del self.held[_identity(os.fstat(self._file.fileno()))]
            self._file = None


def _identity(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_dev, stat.st_ino


class OsFilesystem:
    """The filesystem of the machine, and the files that one broker holds open in it."""

    __slots__ = ("open_files",)

    def __init__(self) -> None:
        self.open_files = OpenFiles()

    def open_file(self, path: Path, *, create: bool = False, exclusive: bool = False) -> OsFile:
        return OsFile(
            path, self._open(path, os.O_RDWR | (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0))
        )

    def open_read(self, path: Path) -> OsFile:
        return OsFile(path, self._open(path, os.O_RDONLY))

    def read_bytes(self, path: Path) -> bytes:
        with open(self._open(path, os.O_RDONLY), "rb", buffering=0) as file:
            return file.read() or b""

    def map_file(self, path: Path) -> Buffer | mmap.mmap:
        fd = self._open(path, os.O_RDONLY)
        try:
            if os.fstat(fd).st_size == 0:
                return b""
            return self._with_room(lambda: mmap.mmap(fd, 0, access=mmap.ACCESS_READ))  # mmap duplicates the descriptor
        finally:
            os.close(fd)

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: Path) -> list[Entry]:
        with self._with_room(lambda: os.scandir(path)) as names:
            found = []
            for name in names:
                stat = name.stat(follow_symlinks=True)
                modified_ms = stat.st_mtime_ns // 1_000_000
                found.append(Entry(name.name, name.is_dir(), stat.st_size, modified_ms, stat.st_ino, stat.st_nlink))
            return found

    def free_bytes(self, path: Path) -> int:
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize

    def make_directories(self, path: Path) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def hard_link(self, path: Path, new: Path) -> None:
        os.link(path, new)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock_file(self, path: Path) -> OsLock:
        return OsLock.take(self, path)

    def _open(self, path: Path, flags: int) -> int:
        return self._with_room(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def _with_room(self, open_it: Callable[[], T]) -> T:
        """Call `open_it`. If descriptors or maps run out, close some that logs hold, and try once more."""
        try:
            return open_it()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOMEM) or not self.open_files.make_room():
                raise
        return open_it()


def replace_file(
    filesystem: Filesystem, path: Path, content: bytes, *, sync: bool = True, sync_directory: bool = True
) -> None:
    """Write `content` under `path` so that after a crash either the old or the new content is there.

    Without `sync_directory` the new content is durable only when the caller syncs the directory. Without `sync` a power
    cut may leave garbage.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = filesystem.open_file(temporary, create=True)
    file.truncate(0)
    file.write_at(content, 0)
    if sync:
        file.sync()
    del file
    filesystem.rename(temporary, path)
    if sync and sync_directory:
        filesystem.sync_directory(path.parent)


def make_durable_directory(filesystem: Filesystem, path: Path) -> None:
    """Make a directory and its missing parents so that they survive a power cut."""
    missing = []
    while not filesystem.exists(path):
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        filesystem.make_directories(directory)
        filesystem.sync_directory(directory.parent)


def unlink_if_exists(filesystem: Filesystem, path: Path) -> bool:
    try:
        filesystem.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_tree(filesystem: Filesystem, directory: Path) -> None:
    """Remove a directory and everything in it, if it exists. Raises OSError."""
    if not filesystem.exists(directory):
        return
    for entry in filesystem.list_directory(directory):
        if entry.is_directory:
            remove_tree(filesystem, directory / entry.name)
        else:
            filesystem.unlink(directory / entry.name)
    filesystem.remove_directory(directory)


def is_transient(error: OSError) -> bool:
    return error.errno in TRANSIENT_ERRNOS


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class NoSpace(KafkaStorageError):
    """The disk is full: operations that delete may use the reserve."""


@contextmanager
def storage_errors(subject: str) -> Iterator[None]:
    """Turn an OSError into KafkaStorageError, the error that clients understand."""
    try:
        yield
    except OSError as error:
        kind = NoSpace if error.errno in NO_SPACE else KafkaStorageError
        raise kind(f"{subject}: {describe(error)}") from error


def describe(error: OSError) -> str:
    return f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, error.errno)})"
