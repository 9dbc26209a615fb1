"""Small values that the log returns.

Values made for every produce or fetch must be cheap: a named tuple costs a third of a frozen dataclass to make, and a
class with slots made without its constructor costs half of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from klamm.protocol.regions import FileRegion


@dataclass(slots=True)
class AppendResult:
    """The outcome of an append; for a duplicate, the outcome of the first one."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


_make = object.__new__


def appended(base_offset: int, last_offset: int, log_append_time_ms: int) -> AppendResult:
    """Return the result for a batch that is no duplicate, in three quarters of the constructor's time."""
    result = _make(AppendResult)
    result.base_offset = base_offset
    result.last_offset = last_offset
    result.log_append_time_ms = log_append_time_ms
    result.duplicate = False
    return result


class LogRead(NamedTuple):
    """Bytes of a log, sent as they are."""

    region: FileRegion | None
    """None when there is nothing at that offset yet."""
    size: int
    truncated: bool
    """True when the limit cut the very first batch: the region holds no whole batch."""
    next_offset: int = -1
    """The offset after the last whole batch, or of the batch that is cut; -1 when there is no whole one."""


NOTHING = LogRead(None, 0, False)


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end offset of a leader epoch; (-1, -1) when it is not known."""

    leader_epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A damaged part of a segment: bytes [position, end_position), offsets [first_offset, next_offset)."""

    segment: int
    position: int
    end_position: int
    first_offset: int
    next_offset: int
    problem: str
