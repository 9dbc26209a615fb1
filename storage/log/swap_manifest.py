"""The replacement of segments by a compacted one, so that a crash leaves either the old or the new segments.

A plain file `klamm.compaction` (JSON) in the partition directory describes the swap in progress:
    {"version": 1, "base_offset": 0, "sources": [0, 1200, 2500], "size_bytes": 8000, "records": 70}
Where one segment is split into several (`recovery/split.py`), it lists all of them:
    {"version": 2, "targets": [0, 5000000000], "sources": [0]}
The steps of a swap, each durable before the next:
1. the new files exist, complete, as `0.log.cleaned` and so on;
2. the manifest is written: from here on the swap will be finished, after a crash by the next start (`finish`);
3. the new files become `0.log.swap` ...: if Apache Kafka took over now, it would finish them by its own rules;
4. the files of the other sources and their producer snapshots become `.deleted`;
5. the new files take their names, replacing the old ones of the first source;
6. the manifest is removed.
The order within steps 3 and 4 is for Apache Kafka, which does not know the manifest. It drops a `.swap` at or above any
`.cleaned`, so the highest target is renamed first; otherwise Kafka would take the first half of a split for the whole.
And it keeps a source that begins at or above the end of the new segment, so the lowest source goes first: a value is
gone before the tombstone above it.

The file names show which steps are done: while `0.log.swap` or `0.log.cleaned` exists, `0.log` is the old segment. A
`.cleaned` file without a manifest is dropped. A start that finds a manifest first checks the new segment against it; if
they do not match, nothing is changed. A `.swap` file without a manifest comes from Apache Kafka, and Kafka's rules
apply: it replaces the segments with base offsets in its range, unless it is at or above a `.cleaned` file; then it is
dropped.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from klamm.protocol.errors import CorruptMessage
from klamm.storage import paths
from klamm.storage.filesystem import Filesystem, replace_file, unlink_if_exists
from klamm.storage.log.cleaned_segment import Cleaned, check
from klamm.storage.log.log_config import LONG_MAX
from klamm.storage.log.scan import batch_headers

NEW_SUFFIXES = (paths.INDEX_SUFFIX, paths.TIME_INDEX_SUFFIX, paths.TXN_INDEX_SUFFIX, paths.LOG_SUFFIX)
VERSION = 1
SPLIT_VERSION = 2


class SwapManifestError(Exception):
    """The files present do not show how to finish the swap."""


@dataclass(frozen=True, slots=True)
class SwapManifest:
    """A segment (with `others`, several) and the `sources` it replaces, the one with its own base offset first."""

    base_offset: int
    sources: tuple[int, ...]
    others: tuple[int, ...] = ()
    size_bytes: int = -1
    """The size of the new segment, -1 when it is not known; likewise `record_count`."""
    record_count: int = -1

    @property
    def targets(self) -> tuple[int, ...]:
        return (self.base_offset, *self.others)

    def format(self) -> bytes:
        if self.sources[:1] != (self.base_offset,) or self.others:
            split = {"version": SPLIT_VERSION, "targets": self.targets, "sources": self.sources}
            return json.dumps(split).encode()
        fields: dict[str, object] = {"version": VERSION, "base_offset": self.base_offset, "sources": self.sources}
        if self.size_bytes >= 0:
            fields |= {"size_bytes": self.size_bytes, "records": self.record_count}
        return json.dumps(fields).encode()

    @classmethod
    def parse(cls, content: bytes) -> SwapManifest:
        """Parse a manifest. Raises SwapManifestError."""
        try:
            fields = json.loads(content)
            sources = tuple(int(offset) for offset in fields["sources"])
            if fields.get("version") == SPLIT_VERSION:
                first, *others = (int(offset) for offset in fields["targets"])
                return cls(first, sources, tuple(others))
            size_bytes, record_count = int(fields.get("size_bytes", -1)), int(fields.get("records", -1))
            swap = cls(int(fields["base_offset"]), sources, size_bytes=size_bytes, record_count=record_count)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SwapManifestError(f"{paths.COMPACTION_MANIFEST} is not a manifest: {content[:60]!r}") from error
        if fields.get("version") != VERSION or swap.sources[:1] != (swap.base_offset,):
            raise SwapManifestError(f"{paths.COMPACTION_MANIFEST} is not a manifest: {content[:60]!r}")
        return swap


def announce(filesystem: Filesystem, directory: Path, swap: SwapManifest) -> None:
    """Do steps 1 and 2: the synced files exist as `.cleaned`. After an OSError, `withdraw` decides the outcome."""
    filesystem.sync_directory(directory)
    replace_file(filesystem, directory / paths.COMPACTION_MANIFEST, swap.format())


def withdraw(filesystem: Filesystem, directory: Path) -> None:
    """Remove the manifest durably, when no later step was done. After an OSError it may or may not exist."""
    unlink_if_exists(filesystem, directory / paths.COMPACTION_MANIFEST)
    filesystem.sync_directory(directory)


def finish(filesystem: Filesystem, directory: Path, names: Collection[str]) -> bool:
    """Finish or drop an interrupted swap at a start; return whether anything changed. `names` are in the directory.

    Raises SwapManifestError: nothing was changed.
    """
    if paths.COMPACTION_MANIFEST in names:
        swap = SwapManifest.parse(filesystem.read_bytes(directory / paths.COMPACTION_MANIFEST))
        _check_new(filesystem, directory, swap, names)
        carry_out(filesystem, directory, swap)
        return True
    swapped = _with_suffix(names, paths.SWAP_SUFFIX)
    if not swapped:
        return False
    cleaned = min((offset for offset, _ in _with_suffix(names, paths.CLEANED_SUFFIX)), default=None)
    for offset, suffix in sorted(swapped):
        if cleaned is not None and offset >= cleaned:
            filesystem.unlink(_file(directory, offset, suffix, paths.SWAP_SUFFIX))
        elif suffix == paths.LOG_SUFFIX:
            _finish_foreign(filesystem, directory, offset, names)
        elif (offset, paths.LOG_SUFFIX) not in swapped:  # its log already has its name
            filesystem.rename(_file(directory, offset, suffix, paths.SWAP_SUFFIX), _file(directory, offset, suffix))
    filesystem.sync_directory(directory)
    return True


def _check_new(filesystem: Filesystem, directory: Path, swap: SwapManifest, names: Collection[str]) -> None:
    """Raise SwapManifestError unless the new segment, which may already have its own name, matches the manifest."""
    if swap.size_bytes < 0:
        return
    marks = (paths.CLEANED_SUFFIX, paths.SWAP_SUFFIX, "")
    candidates = (_file(directory, swap.base_offset, paths.LOG_SUFFIX, mark) for mark in marks)
    path = next((path for path in candidates if path.name in names), None)
    if path is None:
        raise SwapManifestError(f"{paths.COMPACTION_MANIFEST}: the segment {swap.base_offset} that it names is missing")
    expected = Cleaned(swap.base_offset, swap.sources, swap.size_bytes, swap.record_count, end_offset=LONG_MAX)
    try:
        check(filesystem.open_read(path), expected)
    except CorruptMessage as error:
        raise SwapManifestError(f"{path.name} is not what {paths.COMPACTION_MANIFEST} says: {error.message}") from error


def _finish_foreign(filesystem: Filesystem, directory: Path, base_offset: int, names: Iterable[str]) -> None:
    file = filesystem.open_read(_file(directory, base_offset, paths.LOG_SUFFIX, paths.SWAP_SUFFIX))
    size, end, next_offset = file.size(), 0, base_offset
    for position, header in batch_headers(file, 0, size):
        end, next_offset = position + header.size_bytes, header.next_offset
    if end != size:
        raise SwapManifestError(f"{base_offset:020d}.log.swap: batches end at {end} of {size} bytes")
    known = sorted(parsed[0] for parsed in map(paths.parse_offset_file, names) if parsed and parsed[1] == ".log")
    others = [offset for offset in known if base_offset < offset < next_offset]
    swap = SwapManifest(base_offset, (base_offset, *others))
    replace_file(filesystem, directory / paths.COMPACTION_MANIFEST, swap.format())
    carry_out(filesystem, directory, swap)


def carry_out(filesystem: Filesystem, directory: Path, swap: SwapManifest) -> list[Path]:
    """Do those of the steps 3 to 6 that are not done yet. Return the files to unlink later."""
    for base_offset, suffix in product(reversed(swap.targets), NEW_SUFFIXES):
        with suppress(FileNotFoundError):
            filesystem.rename(
                _file(directory, base_offset, suffix, paths.CLEANED_SUFFIX),
                _file(directory, base_offset, suffix, paths.SWAP_SUFFIX),
            )
    filesystem.sync_directory(directory)
    deleted = []
    for offset in sorted(set(swap.sources) - set(swap.targets)):
        for suffix in (*paths.SEGMENT_SUFFIXES, paths.SNAPSHOT_SUFFIX):
            target = _file(directory, offset, suffix, paths.DELETED_SUFFIX)
            with suppress(FileNotFoundError):
                filesystem.rename(_file(directory, offset, suffix), target)
                deleted.append(target)
    filesystem.sync_directory(directory)
    for base_offset, suffix in product(swap.targets, NEW_SUFFIXES):
        with suppress(FileNotFoundError):
            filesystem.rename(
                _file(directory, base_offset, suffix, paths.SWAP_SUFFIX), _file(directory, base_offset, suffix)
            )
    filesystem.sync_directory(directory)
    unlink_if_exists(filesystem, directory / paths.COMPACTION_MANIFEST)
    filesystem.sync_directory(directory)
    return deleted


def _with_suffix(names: Iterable[str], mark: str) -> set[tuple[int, str]]:
    """Return (offset, suffix) of the segment files that have a mark after their name."""
    parsed = (paths.parse_offset_file(name.removesuffix(mark)) for name in names if name.endswith(mark))
    return {known for known in parsed if known is not None and known[1] in paths.SEGMENT_SUFFIXES}


def _file(directory: Path, offset: int, suffix: str, mark: str = "") -> Path:
    return paths.offset_file(directory, offset, suffix + mark)
