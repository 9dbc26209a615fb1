"""Copy a closed partition directory into another log directory, at little cost where files can be shared.

Files that are written once and only replaced as a whole become hard links: the `.log` of every segment but the last,
and producer snapshots. The last segment takes appends, and indexes are rebuilt in place after a crash, so these are
copied. Across filesystems everything is copied. Left out are our own files (`klamm.*`) and the remains of a crash or a
deletion (`.deleted`, `.cleaned`, `.swap`, `.tmp`).

The source must not be open. When `copy_partition` returns, the copy is durable except for its name.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from klamm.storage import paths
from klamm.storage.filesystem import Entry, Filesystem

CHUNK_BYTES = 4 << 20
CANNOT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
OWN_PREFIX = "klamm."


@dataclass(frozen=True, slots=True)
class Copied:
    """The sizes in bytes of files that were linked and of files that were copied."""

    linked_bytes: int = 0
    copied_bytes: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.linked_bytes + other.linked_bytes, self.copied_bytes + other.copied_bytes)


def copy_partition(filesystem: Filesystem, source: Path, target: Path) -> Copied:
    """Make `target` with the files of the partition in `source`. Raises OSError; `target` may then be incomplete."""
    filesystem.make_directories(target)
    entries = [entry for entry in filesystem.list_directory(source) if not entry.is_directory and _belongs(entry.name)]
    active = max((offset for offset, suffix in map(_parsed, entries) if suffix == paths.LOG_SUFFIX), default=-1)
    done = Copied()
    for entry in entries:
        if _may_be_shared(entry.name, active):
            done += link_or_copy(filesystem, source / entry.name, target / entry.name, entry.size_bytes)
        else:
            done += Copied(copied_bytes=copy_file(filesystem, source / entry.name, target / entry.name))
    filesystem.sync_directory(target)
    return done


def link_or_copy(filesystem: Filesystem, source: Path, target: Path, size_bytes: int, *, sync: bool = True) -> Copied:
    """Hard-link a file that never changes in place, or copy it where a link is impossible."""
    try:
        filesystem.hard_link(source, target)
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        return Copied(copied_bytes=copy_file(filesystem, source, target, sync=sync))
    return Copied(linked_bytes=size_bytes)


def copy_file(filesystem: Filesystem, source: Path, target: Path, *, sync: bool = True) -> int:
    """Copy one file, and sync it if `sync`; return its size. Zeros (`preallocate`) take no space."""
    old, new = filesystem.open_read(source), filesystem.open_file(target, create=True)
    size = old.size()
    new.truncate(0)
    for start, end in old.data_ranges(0, size):
        for position in range(start, end, CHUNK_BYTES):
            data = old.read_at(min(CHUNK_BYTES, end - position), position)
            if data.count(0) < len(data):
                new.write_at(data, position)
    new.truncate(size)
    if sync:
        new.sync()
    return size


def _belongs(name: str) -> bool:
    if name.startswith(OWN_PREFIX):
        return False
    parsed = paths.parse_offset_file(name)
    if parsed is not None:
        return parsed[1] in (*paths.SEGMENT_SUFFIXES, paths.SNAPSHOT_SUFFIX)
    return name in (paths.PARTITION_METADATA, paths.LEADER_EPOCH_CHECKPOINT)


def _parsed(entry: Entry) -> tuple[int, str]:
    return paths.parse_offset_file(entry.name) or (-1, "")


def _may_be_shared(name: str, active: int) -> bool:
    parsed = paths.parse_offset_file(name)
    if parsed is None:
        return False
    offset, suffix = parsed
    return suffix == paths.SNAPSHOT_SUFFIX or (suffix == paths.LOG_SUFFIX and offset < active)
