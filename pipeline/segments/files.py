"""The segments of one partition directory while a broker may change them.

A segment reaches up to the base offset of the next. Compaction replaces several files with one. The new file is
complete once its name ends in `.swap`, and counts here from then on, since the old ones are removed one after another.
(If a split makes several new ones, those at or above a `.cleaned` file do not count: all the old ones are there.) A
listing is accepted only if a second one agrees, because a name that changes meanwhile may show twice or never.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final, Self

import numpy as np

from klamm.protocol.errors import CorruptMessage
from klamm.protocol.records.batch import MIN_BATCH_BYTES, BatchHeader, crc_is_valid, read_header
from klamm.protocol.records.columnar.batch_headers import Int64s
from klamm.storage.paths import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, parse_offset_file

LISTINGS: Final = 100
"""The most listings of a directory until two agree."""
HEAD_BYTES: Final = 128
"""Enough for a batch header, and for a whole end transaction marker."""
WINDOW_BYTES: Final = 64 << 10
SMALL_BATCH_BYTES: Final = 4 << 10


class Vanished(Exception):
    """A listed file is gone, or is another one now: list again."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file. `next_base_offset` is None for the last one. `is_swap`: its files end in `.swap`."""

    directory: Path
    base_offset: int
    next_base_offset: int | None
    is_swap: bool = False

    @property
    def path(self) -> Path:
        return self.file(LOG_SUFFIX)

    def file(self, suffix: str) -> Path:
        return self.directory / f"{self.base_offset:020d}{suffix}{SWAP_SUFFIX if self.is_swap else ''}"


def segments(directory: Path) -> list[Segment]:
    """Return all segments, by offset. Raises Vanished when the directory is gone, or does not stop changing."""
    names = _names(directory)
    for _ in range(LISTINGS):
        again = _names(directory)
        if again == names:
            return _segments(directory, names)
        names = again
    raise Vanished(f"{directory} changes all the time")


def _names(directory: Path) -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(directory) if LOG_SUFFIX in name)
    except FileNotFoundError:
        raise Vanished(f"{directory} is gone") from None


def _segments(directory: Path, names: frozenset[str]) -> list[Segment]:
    cleaned = min(_offsets(names, CLEANED_SUFFIX), default=None)
    swaps = {offset for offset in _offsets(names, SWAP_SUFFIX) if cleaned is None or offset < cleaned}
    bases = sorted(_offsets(names, "") | swaps)
    return [
        Segment(directory, base, after, base in swaps)
        for base, after in zip_longest(bases, bases[1:])
        if base is not None
    ]


def _offsets(names: frozenset[str], suffix: str) -> set[int]:
    """Return the base offsets of the logs with this suffix after `.log`."""
    parsed = (parse_offset_file(name.removesuffix(suffix)) for name in names if name.endswith(LOG_SUFFIX + suffix))
    return {found[0] for found in parsed if found is not None}


def covering(listed: list[Segment], offset: int) -> Segment | None:
    """Return the segment with the offset, or None if it is below the first."""
    found = None
    for segment in listed:
        if segment.base_offset > offset:
            break
        found = segment
    return found


class OpenSegment:
    """An open segment; on opening, its file was the one that `segments` lists.

    The file stays the same (but grows, if it is the last) when its name changes.
    """

    def __init__(self, segment: Segment, *, check: bool = True) -> None:
        """Open the file. Raises Vanished. Without `check` it may be another file of that name by now."""
        self.segment = segment
        try:
            self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Vanished(f"{segment.path} is gone") from None
        try:
            if check and not (segment in segments(segment.directory) and self.is_at(segment.path)):
                raise Vanished(f"{segment.path} is another file now")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_at(self, path: Path) -> bool:
        """Return whether `path` names this very file."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(path))
        except FileNotFoundError:
            return False

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer; read fewer bytes only at the end of the file."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._fd, [buffer[done:]], position + done)
            if not count:
                break
            done += count
        return done

    def read_at(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def batch_headers(self, position: int) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Yield (position, header, first bytes) of each batch from `position` on, until one is cut short or damaged.

        Many small batches are read at once; of larger ones only the headers are read.
        """
        size = self.size()
        window, start, length = b"", 0, HEAD_BYTES
        while size - position >= MIN_BATCH_BYTES:
            at = position - start
            if at + HEAD_BYTES > len(window):
                window, start, at = self.read_at(length, position), position, 0
            data = window[at : at + HEAD_BYTES]
            try:
                header = read_header(data)
            except CorruptMessage:
                return
            if header.size_bytes > size - position:
                return
            yield position, header, data
            position += header.size_bytes
            length = WINDOW_BYTES if header.size_bytes < SMALL_BATCH_BYTES else HEAD_BYTES

    def valid_header(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`, if there is a batch with a correct CRC."""
        for _, header, _ in self.batch_headers(position):
            return header if crc_is_valid(self.read_at(header.size_bytes, position), header) else None
        return None

    def position_of(self, offset: int) -> int:
        """Return a position at or before the batch with the offset, from the index; 0 if the index has none."""
        entries = index_entries(self.segment)
        row = int(np.searchsorted(entries[:, 0], offset, "right")) - 1
        if row < 0:
            return 0
        position = int(entries[row, 1])
        header = self.valid_header(position)
        is_right = header is not None and self.segment.base_offset <= header.base_offset <= entries[row, 0]
        return position if is_right else 0


def index_entries(segment: Segment) -> Int64s:
    """Return (offset, position) in rows, as far as they ascend.

    The index may belong to another file by now, so check the batch at the position.
    """
    try:
        content = segment.file(INDEX_SUFFIX).read_bytes()
    except FileNotFoundError:
        content = b""
    rows = np.frombuffer(content[: len(content) // 8 * 8], ">i4").astype(np.int64).reshape(-1, 2)
    wrong = (np.diff(rows, axis=0, prepend=-1) <= 0).any(axis=1) | (rows < 0).any(axis=1)
    if wrong.any():
        rows = rows[: int(wrong.argmax())]
    return np.add(rows, (segment.base_offset, 0), dtype=np.int64)
