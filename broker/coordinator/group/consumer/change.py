"""A change of a consumer group that does not count yet.

Whoever changes a group works on a copy of it. The copy takes the group's place when the records are in the log; what
cannot be stored has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from klamm.broker.coordinator.group.consumer.consumer_group import ConsumerGroup
from klamm.broker.coordinator.runtime.types import KeyValue


class Change:
    """`group` as it is going to be, the `records` that say so, and what else happens when it counts."""

    __slots__ = ("_effects", "counts", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group
        self.records: list[KeyValue] = []
        self.counts = False
        self._effects: list[Callable[[], None]] = []

    def then(self, effect: Callable[[], None]) -> None:
        """Put something off, like a timer, until the records are in the log."""
        self._effects.append(effect)

    def apply(self) -> None:
        """The records are in the log, and `group` is the group: do what was put off, in order."""
        self.counts = True
        for effect in self._effects:
            effect()
