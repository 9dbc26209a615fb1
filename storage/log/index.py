"""The sparse indexes of a segment: offset to position (`.index`), timestamp to offset (`.timeindex`).

Formats (Apache Kafka's; big endian, fixed-size entries, in ascending order):
    offset index  8 bytes: int32 offset - base offset, int32 position of the batch with that LAST offset
    time index   12 bytes: int64 timestamp, int32 offset - base offset
A time entry (T, o) means: T is the largest timestamp up to the batch with the last offset o, and that batch is the
first that has it. (As in Kafka's code; the KIP speaks of the record, not of the batch.)

The newest entries are kept in memory and written in blocks, so an append makes no system call for them. Entries in the
file are mapped when a lookup needs them. Apache Kafka preallocates zeros after the entries and leaves them when it is
killed: they are ignored, and cut off by the next write. Writing through a shared mapping, as the JVM does, would be no
faster here, and kills the process when the disk is full. These files need not be complete: after an unclean shutdown
they are rebuilt from the segment, and while the disk refuses writes the entries stay in memory.
"""

from __future__ import annotations

import logging
import mmap
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from klamm.storage.filesystem import Buffer, File, Filesystem, describe

logger = logging.getLogger(__name__)

OFFSET_ENTRY = Struct(">ii")  # offset - base offset, position
TIME_ENTRY = Struct(">qi")  # timestamp, offset - base offset

NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1

TAIL_BYTES = 8192
"""How many bytes of entries are collected in memory before they are written."""

_OFFSET_KEY = Struct(">i")
_POSITION = Struct(">4xi")
_TIME_KEY = Struct(">q")


class EntryFile:
    """Fixed-size entries in a file, the newest of them in memory. A subclass gives the entries their meaning."""

    __slots__ = (
        "__weakref__",
        "_filesystem",
        "_is_frozen",
        "_key",
        "_map",
        "_size",
        "_tail",
        "_tail_first",
        "_written",
        "count",
        "path",
    )

    def __init__(self, filesystem: Filesystem, path: Path, entry: Struct, key: Struct) -> None:
        self._filesystem = filesystem
        self.path = path
        self._size = entry.size
        self._key = key
        self.count = 0
        self._written = 0  # entries in the file
        self._tail = bytearray()  # entries _tail_first .. count
        self._tail_first = 0
        self._map: Buffer | mmap.mmap = b""
        self._is_frozen = False

    def open_existing(self, size_bytes: int) -> None:
        """Take over the entries in the file; read only the last one now, unless zeros follow the entries."""
        self.count = self._written = size_bytes // self._size
        self._tail_first = max(0, self.count - 1)
        self._tail = bytearray()
        if self.count:
            self._tail += self._filesystem.open_read(self.path).read_at(self._size, self._tail_first * self._size)
            if self.count > 1 and not any(self._tail):
                self._drop_zeros()

    def _drop_zeros(self) -> None:
        """Find the end of the entries in a preallocated file. Only the first entry may be all zeros."""
        content = self._filesystem.map_file(self.path)
        size = self._size
        zeros = bytes(size)
        count = bisect_left(range(1, self.count), True, key=lambda i: content[i * size : (i + 1) * size] == zeros) + 1
        if count == 1 and content[:size] == zeros:
            count = 0
        self.count = self._written = count
        self._tail_first = max(0, count - 1)
        self._tail = bytearray(content[self._tail_first * size : count * size])

    def write_out(self) -> File:
        """Write all entries and cut the file after them; return it to be synced. Raises OSError if the disk refuses."""
        file = self._filesystem.open_file(self.path, create=True)
        self._write_tail_to_file(file)
        if file.size() != self.count * self._size:
            file.truncate(self.count * self._size)
        return file

    def freeze(self) -> None:
        """Map everything that is in the file now, so that it need not be opened again."""
        self._is_frozen = True
        self._filesystem.open_files.settle()
        if self._tail_first * self._size > len(self._map):
            self._map = self._filesystem.map_file(self.path)

    def let_go(self) -> bool:
        """Drop the mapping, unless frozen. See `open_files.Holder`."""
        if not self._is_frozen:
            self._map = b""
        return False

    def clear(self) -> None:
        """Forget all entries; new ones overwrite the file."""
        self._cut(0)

    def _grown(self) -> None:
        self.count += 1
        if len(self._tail) >= TAIL_BYTES:
            self._spill()

    def _spill(self) -> None:
        try:
            self._write_tail_to_file(self._filesystem.open_file(self.path, create=True))
        except OSError as error:
            logger.warning("%s: index entries stay in memory: %s", self.path, describe(error))
            return
        keep = TAIL_BYTES // 2 // self._size
        del self._tail[: max(0, self.count - self._tail_first - keep) * self._size]
        self._tail_first = max(self._tail_first, self.count - keep)

    def _write_tail_to_file(self, file: File) -> None:
        if self._written < self.count:
            start = (self._written - self._tail_first) * self._size
            file.write_at(bytes(self._tail[start:]), self._written * self._size)
            self._written = self.count

    def _at(self, index: int) -> tuple[Buffer | mmap.mmap, int]:
        """Return the buffer and the position of entry `index`."""
        assert 0 <= index < self.count, f"{self.path}: entry {index} of {self.count}"
        if index >= self._tail_first:
            return self._tail, (index - self._tail_first) * self._size
        mapped, position = self._map, index * self._size
        if position + self._size > len(mapped):
            mapped = self._map = self._filesystem.map_file(self.path)
            self._filesystem.open_files.opened(self)
        return mapped, position

    def _key_at(self, index: int) -> int:
        buffer, position = self._at(index)
        return int(self._key.unpack_from(buffer, position)[0])

    def _floor(self, value: int, field: Struct | None = None) -> int:
        """Return the index of the last entry with a key (or `field`, also ascending) of at most `value`, or -1."""
        unpack = (field or self._key).unpack_from
        first = self._tail_first  # of the entries in memory
        if first and (first == self.count or value < unpack(self._tail)[0]):
            return self._floor_between(0, first, value, unpack)
        return self._floor_between(first, self.count, value, unpack)

    def _floor_between(self, first: int, end: int, value: int, unpack: Callable[..., tuple[int, ...]]) -> int:
        """Return `_floor` among entries that are all in memory, or all in the file.

        Keys grow almost evenly, so the search starts at the interpolated entry and widens from there.
        """
        last = end - 1
        if last < 0:
            return -1
        buffer, position = self._at(last)
        size = self._size
        origin = position - last * size
        lowest, highest = unpack(buffer, origin + first * size)[0], unpack(buffer, position)[0]
        if value >= highest:
            return last
        if value < lowest:
            return first - 1
        low, high = first, last  # keys[low] <= value < keys[high]
        at = low + (value - lowest) * (high - low) // (highest - lowest)
        step = 1
        while at < high and unpack(buffer, origin + at * size)[0] <= value:
            low = at
            at += step
            step *= 2
        if step > 1:
            high = min(at, high)
        else:
            while at > low and unpack(buffer, origin + at * size)[0] > value:
                high = at
                at -= step
                step *= 2
            low = max(at, low)
        if high - low == 1:
            return low
        return low + bisect_right(range(low + 1, high), value, key=lambda i: unpack(buffer, origin + i * size)[0])

    def _cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        if count < self._tail_first:
            self._tail.clear()
            self._tail_first = count
        else:
            del self._tail[(count - self._tail_first) * self._size :]
        self.count = count
        self._written = min(self._written, count)
        self._map = b""


class OffsetIndex(EntryFile):
    """The offset index: the position in the segment from which to read for an offset."""

    __slots__ = ("_base_offset",)

    def __init__(self, filesystem: Filesystem, path: Path, base_offset: int) -> None:
        super().__init__(filesystem, path, OFFSET_ENTRY, _OFFSET_KEY)
        self._base_offset = base_offset

    def append(self, last_offset: int, position: int) -> None:
        self._tail += OFFSET_ENTRY.pack(last_offset - self._base_offset, position)
        self._grown()

    def lookup(self, offset: int) -> int:
        """Return the greatest indexed position at or before the batch that holds `offset`; 0 when there is none."""
        if not self.count:
            return 0
        index = self._floor(min(offset - self._base_offset, MAX_RELATIVE_OFFSET))
        return self.entry(index)[1] if index >= 0 else 0

    def floor_of_position(self, position: int) -> int:
        """Return the greatest indexed position that is at most `position`; 0 when there is none."""
        index = self._floor(position, _POSITION)
        return int(_POSITION.unpack_from(*self._at(index))[0]) if index >= 0 else 0

    def entry(self, index: int) -> tuple[int, int]:
        """Return (offset, position) of an entry."""
        relative, position = OFFSET_ENTRY.unpack_from(*self._at(index))
        return self._base_offset + relative, position

    def truncate(self, offset: int) -> None:
        """Forget entries for `offset` and above."""
        self._cut(bisect_left(range(self.count), offset - self._base_offset, key=self._key_at))


class TimeIndex(EntryFile):
    """The time index: the offset from which to search for a timestamp."""

    __slots__ = ("_base_offset", "_last_timestamp")

    def __init__(self, filesystem: Filesystem, path: Path, base_offset: int) -> None:
        super().__init__(filesystem, path, TIME_ENTRY, _TIME_KEY)
        self._base_offset = base_offset
        self._last_timestamp: int | None = NO_TIMESTAMP

    def open_existing(self, size_bytes: int) -> None:
        super().open_existing(size_bytes)
        self._last_timestamp = None

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is above the last one."""
        if self._last_timestamp is None:
            self._last_timestamp = self.last()[0]
        if timestamp > self._last_timestamp:
            self._tail += TIME_ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_timestamp = timestamp
            self._grown()

    def last(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry; (-1, base offset) when there is none."""
        return self.entry(self.count - 1) if self.count else (NO_TIMESTAMP, self._base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return the last entry with a timestamp of at most `timestamp`, or (-1, base offset)."""
        index = self._floor(timestamp) if self.count else -1
        return self.entry(index) if index >= 0 else (NO_TIMESTAMP, self._base_offset)

    def entry(self, index: int) -> tuple[int, int]:
        """Return (timestamp, offset) of an entry."""
        timestamp, relative = TIME_ENTRY.unpack_from(*self._at(index))
        return timestamp, self._base_offset + relative

    def truncate(self, offset: int) -> None:
        """Forget entries for `offset` and above."""
        relative = offset - self._base_offset
        self._cut(bisect_left(range(self.count), relative, key=lambda i: self.entry(i)[1] - self._base_offset))
        self._last_timestamp = None

    def clear(self) -> None:
        super().clear()
        self._last_timestamp = None
