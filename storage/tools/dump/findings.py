"""The problems that a dump finds, in the words of Apache Kafka's tool where it has some: printed at the end, to stderr.

Kafka's tool always exits with 0. Ours reports problems by its exit code. Gaps between offsets are only notes, since
compaction makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROBLEM = "PROBLEM: "
"""The prefix of Klamm's own lines."""


MISMATCHES: Final = "Mismatches in :"
TIME_MISMATCHES: Final = "Found timestamp mismatch in :"
NOT_ASCENDING: Final = "Found out of order timestamp in :"
NOT_FOUND: Final = "The following indexed offsets are not found in the log."
GAPS: Final = "Non-consecutive offsets in "
HEADS: Final = (MISMATCHES, TIME_MISMATCHES, NOT_ASCENDING, NOT_FOUND, GAPS)


class Findings:
    """The findings of all files of a dump."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._lists: dict[tuple[str, bool], list[str]] = {}

    @property
    def is_clean(self) -> bool:
        return not self._problems and not any(is_problem for _, is_problem in self._lists)

    def problem(self, path: Path, what: str) -> None:
        self._problems.append(f"{PROBLEM}{path}: {what}")

    def index_mismatch(self, path: Path, offset: int, found: int) -> None:
        self._add(f"{MISMATCHES}{path.absolute()}", f"  Index offset: {offset}, log offset: {found}")

    def time_mismatch(self, path: Path, timestamp: int, found: int) -> None:
        header = f"{TIME_MISMATCHES}{path.absolute()}"
        self._add(header, f"  Index timestamp: {timestamp}, log timestamp: {found}")

    def time_not_ascending(self, path: Path, timestamp: int, before: int) -> None:
        header = f"{NOT_ASCENDING}{path.absolute()}"
        self._add(header, f"  Index timestamp: {timestamp}, Previously indexed timestamp: {before}")

    def offset_not_found(self, offset: int, found: int) -> None:
        self._add(NOT_FOUND, f"Indexed offset: {offset}, found log offset: {found}")

    def gap(self, path: Path, offset: int, following: int) -> None:
        header = f"{GAPS}{path.absolute()}"
        self._add(header, f"  {offset} is followed by {following}", is_problem=False)

    def _add(self, header: str, line: str, *, is_problem: bool = True) -> None:
        self._lists.setdefault((header, is_problem), []).append(line)

    def lines(self) -> Iterator[str]:
        """Yield Klamm's own lines first, then the others in the order of Kafka's tool."""
        yield from self._problems
        for (header, _), lines in sorted(self._lists.items(), key=lambda item: _rank(item[0][0])):
            yield header
            yield from lines


def _rank(header: str) -> int:
    return next(rank for rank, beginning in enumerate(HEADS) if header.startswith(beginning))
