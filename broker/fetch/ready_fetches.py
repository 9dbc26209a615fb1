"""Waiting fetches that are completed together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from klamm.broker.fetch.delayed_fetch import DelayedFetch
    from klamm.protocol.messages.fetch import PartitionData

SharedReads: TypeAlias = "dict[object, tuple[PartitionData, int]]"
"""Results of reads: the data of a partition and its record count, by all values that they depend on."""


class ReadyFetches:
    """The fetches completed by appends of this loop iteration. A read that several of them need is done once."""

    __slots__ = ("_fetches",)

    def __init__(self) -> None:
        self._fetches: list[DelayedFetch] = []

    def add(self, fetch: DelayedFetch) -> None:
        """Complete the fetch after the appends of this iteration."""
        if not self._fetches:
            asyncio.get_running_loop().call_soon(self._answer)
        self._fetches.append(fetch)

    def _answer(self) -> None:
        # a response may let its connection append, which completes other fetches
        fetches, self._fetches = self._fetches, []
        found: SharedReads | None = {} if len(fetches) > 1 else None
        for fetch in fetches:
            fetch.complete(found)
