"""The comparison of the counts of several tiers, window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

LAST_MS: Final = 253_402_300_800_000  # the year 10000

Counts = Counter[tuple[str, int]]
"""Counts by topic and start of the window in milliseconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """A window of a topic, with a count for each tier in the order of the tiers."""

    topic: str
    window_start_ms: int
    counts: tuple[int, ...]

    @property
    def is_equal(self) -> bool:
        return len(set(self.counts)) <= 1

    def line(self, tiers: Sequence[str]) -> str:
        text = " ".join(f"{tier}={count}" for tier, count in zip(tiers, self.counts, strict=True))
        return f"{self.topic} {moment(self.window_start_ms)} {text}{'' if self.is_equal else ' MISMATCH'}"


def compare(tiers: Mapping[str, Counts], windows: Mapping[str, range]) -> list[Row]:
    """Return a row for each topic and window that a tier has.

    `windows` are the starts of the windows to compare, for each topic.
    """
    keys = {
        (topic, start) for counts in tiers.values() for topic, start in counts if start in windows.get(topic, range(0))
    }
    return [
        Row(topic, start, tuple(counts[topic, start] for counts in tiers.values())) for topic, start in sorted(keys)
    ]


def coarser(counts: Iterable[tuple[str, int, int]], window_ms: int) -> Counts:
    """Sum (topic, start, count) into windows of `window_ms`, which must be a multiple of theirs."""
    found: Counts = Counter()
    for topic, start, count in counts:
        found[topic, start // window_ms * window_ms] += count
    return found


def moment(milliseconds: int) -> str:
    """Return the time in UTC; as a number where the calendar ends."""
    if not 0 <= milliseconds < LAST_MS:
        return str(milliseconds)
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
