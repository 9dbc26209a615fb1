"""Files with more than one name: snapshots, exports and copies share closed segments by hard links.

A shared file must never change in place, or its other names would change too. In a partition, these change in place:

- a `.log`: it is appended to while its segment is active; truncation, recovery and repair cut it;
- `.index`, `.timeindex`, `.txnindex`: these are also rebuilt in place, so they are never shared, but copied
  (`copying.py`).

Everything else is replaced by rename (producer snapshots, checkpoints, compacted segments) or only unlinked, which
leaves the other names as they are. The active segment is never shared when a copy is made. But a shared segment can
become the active one: a truncation, a repair or a power cut shortens the log, or the copy itself is opened. So
`unshare_files` is called wherever a segment is cut or becomes the active one, and gives it files of its own first.
"""

from __future__ import annotations

from pathlib import Path

from klamm.storage import paths
from klamm.storage.copying import copy_file
from klamm.storage.filesystem import Filesystem

IN_PLACE_SUFFIXES = paths.SEGMENT_SUFFIXES
"""The suffixes of files that change in place."""


def unshare_files(filesystem: Filesystem, directory: Path, base_offset: int) -> bool:
    """Give a segment files that nobody else shares; return whether any was shared. Blocks. Raises OSError.

    After a crash each file is either the shared one or our own, whole. Open files must be opened again.
    """
    names = {paths.offset_file(directory, base_offset, suffix).name for suffix in IN_PLACE_SUFFIXES}
    shared = [
        entry.name for entry in filesystem.list_directory(directory) if entry.name in names and entry.link_count > 1
    ]
    for name in shared:
        temporary = directory / (name + paths.TEMPORARY_SUFFIX)
        copy_file(filesystem, directory / name, temporary)
        filesystem.rename(temporary, directory / name)
    if shared:
        filesystem.sync_directory(directory)
    return bool(shared)
