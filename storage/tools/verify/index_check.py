"""Compare the entries of the two indexes with the batches of the segment, in one pass.

If many entries are wrong, the first is reported in full, the others only by their number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from klamm.protocol.records.batch import NO_TIMESTAMP, BatchHeader

Tell = Callable[[Path, str], None]


class OffsetIndexCheck:
    """The check of an offset index: entries that wait for their batch."""

    def __init__(self, path: Path, base_offset: int, entries: list[tuple[int, int]], tell: Tell) -> None:
        self._path = path
        self._base_offset = base_offset
        self._problem = tell
        self._entries = entries
        self._next = 0
        self._wrong = 0

    def __bool__(self) -> bool:
        return self._next < len(self._entries)

    def pass_batch(self, position: int, header: BatchHeader) -> None:
        while self._next < len(self._entries):
            relative, at = self._entries[self._next]
            if at > position:
                return
            offset = self._base_offset + relative
            # Before 0.11 Kafka indexed the first offset of an append.
            if at != position or offset > header.last_offset or (offset < header.last_offset and header.magic == 2):
                self._tell(relative, at, f"the batch at {position} has the last offset {header.last_offset}")
            self._next += 1

    def finish(self) -> None:
        for relative, at in self._entries[self._next :]:
            self._tell(relative, at, "the log has no batch there")
        if self._wrong > 1:
            self._problem(self._path, f"{self._wrong} of {len(self._entries)} entries are wrong")

    def _tell(self, relative: int, at: int, why: str) -> None:
        """Report the first wrong entry in full, and count the others."""
        self._wrong += 1
        if self._wrong == 1:
            self._problem(self._path, f"offset {self._base_offset + relative} at position {at}: {why}")


class TimeIndexCheck:
    """The check of a time index: entries that wait for the batch with their offset."""

    def __init__(self, path: Path, base_offset: int, entries: list[tuple[int, int]], tell: Tell) -> None:
        self._path = path
        self._base_offset = base_offset
        self._problem = tell
        self._entries = entries
        self._next = 0
        self._wrong = 0
        self._largest = NO_TIMESTAMP
        self._before = NO_TIMESTAMP

    @property
    def is_there(self) -> bool:
        return bool(self._entries)

    @property
    def last(self) -> tuple[int, int] | None:
        return self._entries[-1] if self._entries else None

    def __bool__(self) -> bool:
        return self._next < len(self._entries)

    def pass_batch(self, position: int, header: BatchHeader) -> None:
        while self._next < len(self._entries):
            timestamp, relative = self._entries[self._next]
            if self._base_offset + relative > header.last_offset:
                break
            if timestamp != header.max_timestamp or self._largest > timestamp:
                self._tell(
                    timestamp, relative, f"the batch has {header.max_timestamp}, the ones before {self._largest}"
                )
            elif timestamp <= self._before:
                self._tell(timestamp, relative, f"not above the one before, {self._before}")
            self._before = timestamp
            self._next += 1
        self._largest = max(self._largest, header.max_timestamp)

    def finish(self) -> None:
        for timestamp, relative in self._entries[self._next :]:
            self._tell(timestamp, relative, "the log has no batch with this offset")
        if self._wrong > 1:
            self._problem(self._path, f"{self._wrong} of {len(self._entries)} entries are wrong")

    def _tell(self, timestamp: int, relative: int, why: str) -> None:
        self._wrong += 1
        if self._wrong == 1:
            self._problem(self._path, f"timestamp {timestamp} at offset {self._base_offset + relative}: {why}")
