"""Find segments that have lost their `.log`, from their other files.

Shared by the loader, `klamm verify` and `klamm repair`, so that they agree.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from klamm.storage import paths
from klamm.storage.filesystem import Filesystem
from klamm.storage.log.scan import batch_headers


def lost_segments(filesystem: Filesystem, directory: Path, names: Collection[str]) -> list[int]:
    """Return the base offsets of a partition's lost segments; `names` are the files in its directory.

    A lost segment has indexes between the first and the last segment, but no log. If another segment holds the offset,
    the indexes are mere leftovers. Raises OSError.
    """
    return [offset for offset in paths.without_log(names) if not _is_in_another(filesystem, directory, names, offset)]


def _is_in_another(filesystem: Filesystem, directory: Path, names: Collection[str], offset: int) -> bool:
    bases = [parsed[0] for name in names if (parsed := paths.parse_offset_file(name)) and parsed[1] == paths.LOG_SUFFIX]
    before = max(base_offset for base_offset in bases if base_offset < offset)
    file = filesystem.open_read(paths.offset_file(directory, before, paths.LOG_SUFFIX))
    return any(header.last_offset >= offset for _, header in batch_headers(file, 0, file.size()))
