"""A region of a file that stands for bytes: record data that goes from page cache to socket without being read."""

from __future__ import annotations

import os
from typing import Protocol


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class FileRegion:
    """`size` bytes of `file` from `position`. Holding the region keeps the file object, hence its descriptor, alive."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: HasFileno, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Return the bytes, for code that cannot use `sendfile`. Raises EOFError when the file is shorter."""
        chunks = []
        position, left = self.position, self.size
        while left:
            chunk = os.pread(self.file.fileno(), left, position)
            if not chunk:
                raise EOFError(f"{self!r}: file ends at {position}")
            chunks.append(chunk)
            position += len(chunk)
            left -= len(chunk)
        return b"".join(chunks)

    def __repr__(self) -> str:
        return f"FileRegion(fd={self.file.fileno()}, position={self.position}, size={self.size})"
