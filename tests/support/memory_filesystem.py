"""A filesystem in memory that loses unsynced changes at a crash, and fails on demand.

It models the promises of `storage.filesystem`, and no more:
- bytes survive `crash` (a power cut) as of the last `File.sync`, names as of the last `sync_directory`;
- with a random generator, `crash` instead keeps any part of the unsynced writes, torn at 512 bytes, and any prefix of
  the unsynced changes of each directory, as real disks do;
- `kill` is the death of the process: nothing is lost but locks and open files.
Files that were open before either of them answer with an error afterwards.

Faults: `inject` makes calls fail, `space_bytes` is the free space of the disk, and `crash_after` raises `Crash` in
place of the n-th change from now, so that a test can stop at each of its steps. `before_change` is called at each such
step, when the change is not made yet: a `clone` taken there can be crashed in many ways while the test goes on.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from klamm.storage.filesystem import Buffer, Entry
from klamm.storage.log_loading import BOOT_ID
from klamm.storage.open_files import OpenFiles

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Crash(BaseException):
    """The power goes at this call."""


@dataclass(eq=False)
class Inode:
    """A file: the content that readers see, the content on the platter, and the writes in between."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)  # (position, data), or a new size
    modified_ms: int = 0


@dataclass(eq=False)
class Directory:
    """A directory: its names, and those that are on the platter."""

    names: dict[str, Inode | Directory] = field(default_factory=dict)
    synced: dict[str, Inode | Directory] = field(default_factory=dict)
    pending: list[dict[str, Inode | Directory]] = field(default_factory=list)  # the names after each change

    def change(self, name: str, target: Inode | Directory | None) -> None:
        if target is None:
            del self.names[name]
        else:
            self.names[name] = target
        self.pending.append(dict(self.names))


@dataclass
class Fault:
    """Calls of `operation` on paths that end with `suffix` fail: after `skip` of them, `times` times."""

    operation: str
    code: int
    suffix: str
    skip: int
    times: float


class MemoryFile:
    """An open file."""

    def __init__(self, filesystem: MemoryFilesystem, path: Path, inode: Inode) -> None:
        self._filesystem = filesystem
        self._generation = filesystem.generation
        self.path = path
        self._inode = inode
        self._fd = -1

    def fileno(self) -> int:
        """A real descriptor with the content of this moment."""
        if self._fd < 0:
            self._fd = os.memfd_create(self.path.name)
        os.pwrite(self._fd, self._inode.data, 0)
        return self._fd

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def _use(self, operation: str) -> None:
        if self._generation != self._filesystem.generation:
            raise OSError(errno.EBADF, "opened before the crash")
        self._filesystem.use(operation, self.path)

    def read_at(self, size: int, position: int) -> bytes:
        if position < 0:
            raise OSError(errno.EINVAL, "negative position")
        self._use("read")
        return bytes(self._inode.data[position : position + size])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self.read_at(len(buffer), position)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def write_at(self, data: Buffer, position: int) -> None:
        content = bytes(data)
        self._use("write")
        inode = self._inode
        room = self._filesystem.take_space(max(0, position + len(content) - len(inode.data)))
        written = content if room is None else content[: max(0, len(inode.data) + room - position)]
        _write(inode.data, written, position)
        inode.pending.append((position, written))
        inode.modified_ms = self._filesystem.now_ms()
        if len(written) < len(content):
            raise OSError(errno.ENOSPC, "no space left")

    def truncate(self, size: int) -> None:
        self._use("truncate")
        self._filesystem.give_back(max(0, len(self._inode.data) - size))
        _resize(self._inode.data, size)
        self._inode.pending.append(size)

    def allocate(self, size: int) -> None:
        self._use("allocate")
        missing = size - len(self._inode.data)
        room = self._filesystem.take_space(missing)
        _resize(self._inode.data, size if room is None else len(self._inode.data) + room)
        self._inode.pending.append(len(self._inode.data))
        if room is not None:
            raise OSError(errno.ENOSPC, "no space left")

    def size(self) -> int:
        return len(self._inode.data)

    def data_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges as a disk with pages of 4 KiB would."""
        found: list[tuple[int, int]] = []
        end = min(end, len(self._inode.data))
        while start < end:
            stop = min(end, start + PAGE_BYTES - start % PAGE_BYTES)
            if any(self._inode.data[start:stop]):
                if found and found[-1][1] == start:
                    start = found.pop()[0]
                found.append((start, stop))
            start = stop
        return found

    def modified_ms(self) -> int:
        return self._inode.modified_ms

    def sync(self) -> None:
        self._use("sync")
        self._filesystem.syncs += 1
        self._inode.synced = bytes(self._inode.data)
        self._inode.pending.clear()


class MemoryLock:
    """A lock, held until it is released or the process dies."""

    def __init__(self, filesystem: MemoryFilesystem, path: Path) -> None:
        self._filesystem = filesystem
        self._path = path

    def release(self) -> None:
        self._filesystem.locks.discard(self._path)


class MemoryFilesystem:
    """A filesystem in memory, the twin of `OsFilesystem`."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.open_files = OpenFiles()
        self.generation = 0
        self.syncs = 0
        self.reads = 0
        self.directory_syncs = 0
        self.changes = 0
        self.space_bytes: int | None = None
        self.locks: set[Path] = set()
        self.before_change: Callable[[], None] | None = None
        self._faults: list[Fault] = []
        self._crash_at: int | None = None
        self._root = Directory()
        self._has_links = False
        self._boots = 0
        self.make_directories(BOOT_ID.parent)
        self._boot()

    # Faults and crashes

    def inject(
        self, operation: str, code: int, suffix: str = "", *, skip: int = 0, times: float = float("inf")
    ) -> Fault:
        """Let calls of `open read write truncate sync rename link unlink sync_directory list` fail from now on."""
        fault = Fault(operation, code, suffix, skip, times)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        self._faults.clear()
        self._crash_at = None

    def crash_after(self, changes: int) -> None:
        self._crash_at = self.changes + changes

    def clone(self) -> MemoryFilesystem:
        """The same disk, with the same unsynced changes, and nothing open."""
        other = MemoryFilesystem(self.now_ms)
        other._root = _cloned(self._root, {})  # type: ignore[assignment]
        other._boots = self._boots
        other._has_links = self._has_links
        return other

    def fingerprint(self) -> bytes:
        """The same for two disks with the same names and bytes."""
        digest = hashlib.blake2b(digest_size=16)
        _feed(digest, "", self._root)
        return digest.digest()

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power: keep synced writes, and, with `rng`, any part of the others."""
        self._restore(self._root, rng, {})
        self._boot()
        self.kill()

    def kill(self) -> None:
        """Let the process die."""
        self.generation += 1
        self.locks.clear()
        self.heal()

    def _restore(self, directory: Directory, rng: random.Random | None, done: dict[int, bool]) -> None:
        states = [directory.synced, *directory.pending]
        directory.names = dict(states[0] if rng is None else rng.choice(states))
        directory.synced = dict(directory.names)
        directory.pending.clear()
        for target in directory.names.values():
            if isinstance(target, Directory):
                self._restore(target, rng, done)
            elif not done.setdefault(id(target), False):
                done[id(target)] = True
                data = bytearray(target.synced)
                for change in target.pending if rng is not None else ():
                    _maybe_apply(data, change, rng)  # type: ignore[arg-type]
                target.data = data
                target.synced = bytes(data)
                target.pending.clear()

    def _boot(self) -> None:
        self._boots += 1
        content = f"boot-{self._boots}\n".encode()
        node = self._root
        for part in BOOT_ID.parent.parts[1:]:
            node.synced = dict(node.names)
            node = node.names.setdefault(part, Directory())  # type: ignore[assignment]
        node.names[BOOT_ID.name] = node.synced[BOOT_ID.name] = Inode(bytearray(content), content)

    def use(self, operation: str, path: Path) -> None:
        """Account for one call: fail, crash, or let it pass."""
        self.reads += operation == "read"
        if operation not in ("read", "list", "open"):
            self.changes += 1
            if self.before_change is not None:
                self.before_change()
            if self._crash_at is not None and self.changes > self._crash_at:
                raise Crash(f"{operation} {path}")
        for fault in self._faults:
            if fault.operation == operation and str(path).endswith(fault.suffix) and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                raise OSError(fault.code, os.strerror(fault.code), str(path))

    def take_space(self, size: int) -> int | None:
        """None when `size` more bytes fit, else how many do."""
        if self.space_bytes is None:
            return None
        taken = min(size, self.space_bytes)
        self.space_bytes -= taken
        return None if taken == size else taken

    def give_back(self, size: int) -> None:
        if self.space_bytes is not None:
            self.space_bytes += size

    def free_bytes(self, path: Path) -> int:
        return self.space_bytes if self.space_bytes is not None else 1 << 40

    # The seam

    def _find(self, path: Path) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for part in path.parts[1:]:
            node = node.names.get(part) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return node

    def _file(self, path: Path) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return node

    def open_file(self, path: Path, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        self.use("open", path)
        if exclusive and self._find(path) is not None:
            raise FileExistsError(errno.EEXIST, "exists", str(path))
        if create and self._find(path) is None:
            parent = self._directory(path.parent)
            self.use("create", path)
            parent.change(path.name, Inode(modified_ms=self.now_ms()))
        return MemoryFile(self, path, self._file(path))

    def open_read(self, path: Path) -> MemoryFile:
        return self.open_file(path)

    def read_bytes(self, path: Path) -> bytes:
        self.use("read", path)
        return bytes(self._file(path).data)

    def map_file(self, path: Path) -> Buffer:
        return self.read_bytes(path)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def list_directory(self, path: Path) -> list[Entry]:
        self.use("list", path)
        return [
            Entry(name, False, len(node.data), node.modified_ms, id(node), self._link_count(node))
            if isinstance(node, Inode)
            else Entry(name, True, 0, 0)
            for name, node in self._directory(path).names.items()
        ]

    def _link_count(self, inode: Inode) -> int:
        if not self._has_links:
            return 1
        count, directories = 0, [self._root]
        while directories:
            for node in directories.pop().names.values():
                count += node is inode
                if isinstance(node, Directory):
                    directories.append(node)
        return count

    def make_directories(self, path: Path) -> None:
        node = self._root
        for part in path.parts[1:]:
            if part not in node.names:
                self.use("mkdir", path)
                node.change(part, Directory())
            following = node.names[part]
            if not isinstance(following, Directory):
                raise FileExistsError(errno.EEXIST, "is a file", str(path))
            node = following

    def rename(self, old: Path, new: Path) -> None:
        self.use("rename", old)
        node = self._find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(old))
        source, target = self._directory(old.parent), self._directory(new.parent)
        if source is target:  # one step, or a crash could find neither name
            del source.names[old.name]
        self._replaced(target.names.get(new.name))
        target.change(new.name, node)
        if source is not target:
            source.change(old.name, None)

    def hard_link(self, path: Path, new: Path) -> None:
        self.use("link", path)
        node, target = self._file(path), self._directory(new.parent)
        if new.name in target.names:
            raise FileExistsError(errno.EEXIST, "exists", str(new))
        target.change(new.name, node)
        self._has_links = True

    def _replaced(self, node: Inode | Directory | None) -> None:
        """Free the space of a file that has lost its last name (as if nobody had it open)."""
        if isinstance(node, Inode) and self._link_count(node) == 1:
            self.give_back(len(node.data))

    def unlink(self, path: Path) -> None:
        file = self._file(path)
        self.use("unlink", path)
        self._replaced(file)
        self._directory(path.parent).change(path.name, None)

    def remove_directory(self, path: Path) -> None:
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, "not empty", str(path))
        self.use("rmdir", path)
        self._directory(path.parent).change(path.name, None)

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self.use("sync_directory", path)
        self.directory_syncs += 1
        directory.synced = dict(directory.names)
        directory.pending.clear()

    def lock_file(self, path: Path) -> MemoryLock:
        self.open_file(path, create=True)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        self.locks.add(path)
        return MemoryLock(self, path)


def _cloned(node: Inode | Directory, known: dict[int, Inode | Directory]) -> Inode | Directory:
    copy = known.get(id(node))
    if copy is not None:
        return copy
    if isinstance(node, Inode):
        copy = known[id(node)] = Inode(bytearray(node.data), node.synced, list(node.pending), node.modified_ms)
        return copy
    copy = known[id(node)] = Directory()
    copy.names, copy.synced, *copy.pending = (
        {name: _cloned(target, known) for name, target in names.items()}
        for names in (node.names, node.synced, *node.pending)
    )
    return copy


def _feed(digest: hashlib.blake2b, name: str, node: Inode | Directory) -> None:
    if isinstance(node, Inode):
        digest.update(f"{name} {len(node.data)}\n".encode() + node.data)
        return
    digest.update(f"{name}/ {len(node.names)}\n".encode())
    for child in sorted(node.names):
        if child != BOOT_ID.name:  # another at every start of the machine
            _feed(digest, child, node.names[child])


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _write(data: bytearray, content: bytes, position: int) -> None:
    if position > len(data):
        _resize(data, position)
    data[position : position + len(content)] = content


def _maybe_apply(data: bytearray, change: tuple[int, bytes] | int, rng: random.Random) -> None:
    """Apply an unsynced change wholly, in part, or not at all."""
    fate = rng.random()
    if isinstance(change, int):
        if fate < 0.5:
            _resize(data, change)
        return
    position, content = change
    if fate < 0.5:
        _write(data, content, position)
    elif fate < 0.75:  # the sectors of one write reach the disk in any order
        for at in range(0, len(content), SECTOR_BYTES):
            if rng.random() < 0.5:
                _write(data, content[at : at + SECTOR_BYTES], position + at)
