"""Sets of offsets as half-open intervals, ascending and not adjacent."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Interval = tuple[int, int]
Offsets = npt.NDArray[np.int64]


def runs(offsets: Offsets) -> tuple[Interval, ...]:
    """Return the intervals of ascending offsets."""
    if not len(offsets):
        return ()
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same offsets as ascending intervals, whatever their order and overlap."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def without(intervals: Iterable[Interval], taken: Iterable[Interval]) -> list[Interval]:
    """Return the offsets of the first that are not in the second."""
    left = merged(intervals)
    for low, high in merged(taken):
        left = [
            part
            for start, end in left
            for part in ((start, min(end, low)), (max(start, high), end))
            if part[0] < part[1]
        ]
    return left


def common(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return the offsets in both."""
    whole = merged(intervals)
    return without(whole, without(whole, others))


def count(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def shown(intervals: Iterable[Interval], most: int = 10) -> str:
    """Format inclusive ranges, as people read them: 3, 7-9."""
    items = list(intervals)
    texts = [str(start) if end == start + 1 else f"{start}-{end - 1}" for start, end in items[:most]]
    return ", ".join(texts) + (f" and {len(items) - most} more ranges" if len(items) > most else "")
