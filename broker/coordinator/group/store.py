"""Where the machines of all groups put their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from klamm.broker.coordinator.runtime.types import Done, Now, Records


class Store(Protocol):
    """Where records go."""

    def __call__(
        self, group_id: str, records: Records, done: Done, now: Now, /, *, appended: Callable[[], None] = ...
    ) -> None:
        """Append. ``appended`` is called at once when they are in the log, ``done(code, now)`` once, maybe at once,
        when they are durable or have failed."""
