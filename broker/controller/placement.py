"""Placement of the replicas of new partitions on brokers.

Leaders are assigned round-robin from a random start, so every broker leads its share. The other replicas follow at a
distance that grows each round, so the followers of one broker are spread, too. Brokers are ordered with alternating
racks, which puts the replicas of a partition on different racks as far as possible (KIP-36).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

from klamm.broker.metadata.image import BrokerImage


class ReplicaPlacer:
    """A placer of replicas. ``random_below(n)`` returns a number in [0, n)."""

    def __init__(self, random_below: Callable[[int], int]) -> None:
        self._random_below = random_below

    def place(self, brokers: Mapping[int, BrokerImage], partition_count: int, factor: int) -> list[tuple[int, ...]]:
        """Return the replicas of each partition, the preferred leader first. There must be at least
        ``factor`` brokers.
        """
        order = alternate_racks(brokers)
        count = len(order)
        assert 1 <= factor <= count
        if count == 1:
            return [(order[0],)] * partition_count
        start, shift = self._random_below(count), self._random_below(count)
        placed = []
        for index in range(partition_count):
            if index and index % count == 0:
                shift += 1
            first = (start + index) % count
            others = ((first + 1 + (shift + step) % (count - 1)) % count for step in range(factor - 1))
            placed.append((order[first], *(order[other] for other in others)))
        return placed


def alternate_racks(brokers: Mapping[int, BrokerImage]) -> list[int]:
    """Return the ids of the brokers, one of each rack in turn."""
    racks: dict[str, list[int]] = {}
    for node_id in sorted(brokers):
        racks.setdefault(brokers[node_id].rack or "", []).append(node_id)
    columns = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [node_id for column in columns for node_id in column if node_id is not None]
