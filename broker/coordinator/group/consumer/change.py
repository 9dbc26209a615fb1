"""A pending change of a consumer group.

A change is made on a copy of the group. The copy replaces the group when the records are in the log; if they cannot be
stored, nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.runtime.types import KeyValue


class Change:
    """`group` after the change, its `records`, and the effects that run once it counts."""

    __slots__ = ("_effects", "counts", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[KeyValue] = []
        self.counts = False
        self._effects: list[Callable[[], None]] = []

    def then(self, effect: Callable[[], None]) -> None:
        """Defer an effect, like a timer, until the records are in the log."""
        self._effects.append(effect)

    def apply(self) -> None:
        """Run the deferred effects in order: the records are in the log, and `group` is the group."""
        self.counts = True
        for effect in self._effects:
            effect()
