"""Files with more than one name: snapshots, exports and copies share closed segments by hard links.

What is shared must never change in place, or the others would see it. Of a partition that is

- a `.log`: appended to as long as its segment is the active one; cut by truncation, by recovery and by repair;
- `.index`, `.timeindex`, `.txnindex`: besides, rebuilt in place. So these are never shared, but copied (`copying.py`).

Everything else is replaced by rename (snapshots of producers, checkpoints, compacted segments) or only unlinked, which
leaves the other names as they are. The active segment is never shared when a copy is made. But a shared segment can
become the active one (the end of the log is cut, by a truncation, a repair or a power cut; or the copy itself is
opened), so it gets files of its own before: `unshare_files` is called wherever a segment is cut or becomes the active
one.
"""

from __future__ import annotations

from pathlib import Path

from klamm.storage import paths
from klamm.storage.copying import copy_file
from klamm.storage.filesystem import Filesystem

IN_PLACE_SUFFIXES = paths.SEGMENT_SUFFIXES
"""Of the files that change in place."""


def unshare_files(filesystem: Filesystem, directory: Path, base_offset: int) -> bool:
    """Let the files of a segment be nobody else's; whether any was shared. Blocks, OSError.

    After a crash each file is the shared one or our own, whole. Files that are open must be opened again.
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
