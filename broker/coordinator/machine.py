"""What the state machines of all coordinators have in common: they are told the time, and told later what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode


class Now(NamedTuple):
    """The time, twice: ``ms`` never jumps and is for deadlines, ``wall_ms`` is for records."""

    ms: int
    wall_ms: int


Done = Callable[[ErrorCode, Now], None]
"""Called when records are as durable as acks=all makes them, or cannot be stored."""

KeyValue = tuple[bytes, bytes | None]
"""A record to be stored; a value of None is a tombstone."""
