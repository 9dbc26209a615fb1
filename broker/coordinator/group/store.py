"""The interface through which the group machines store records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from klamm.broker.coordinator.runtime.types import Done, Now, Records


class Store(Protocol):
    """Appends records of a group."""

    def __call__(
        self, group_id: str, records: Records, done: Done, now: Now, /, *, appended: Callable[[], None] = ...
    ) -> None:
        """Append. ``appended`` is called as soon as the records are in the log. ``done(code, now)`` is called once,
        possibly at once, when they are durable or have failed.
        """
