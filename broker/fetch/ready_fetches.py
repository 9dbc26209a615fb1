"""Fetches that waited for the same are answered together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from klamm.broker.fetch.delayed_fetch import DelayedFetch
    from klamm.protocol.messages.fetch import PartitionData

SharedReads: TypeAlias = "dict[object, tuple[PartitionData, int]]"
"""What one of them has found in a partition, with the number of records, by all that it depends on."""


class ReadyFetches:
    """Those that the appends of this turn of the loop have woken. What several of them ask for is read once."""

    __slots__ = ("_fetches",)

    def __init__(self) -> None:
        self._fetches: list[DelayedFetch] = []

    def add(self, fetch: DelayedFetch) -> None:
        """Have it answered when the appends of this turn are done."""
        if not self._fetches:
            asyncio.get_running_loop().call_soon(self._answer)
        self._fetches.append(fetch)

    def _answer(self) -> None:
        fetches, self._fetches = self._fetches, []  # an answer may let its connection append, and wake others
        found: SharedReads | None = {} if len(fetches) > 1 else None
        for fetch in fetches:
            fetch.complete(found)
