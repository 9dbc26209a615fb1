"""Types that the state machines of all coordinators share. Callers pass in the time and report durable writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from klamm.protocol.errors import ErrorCode


class Now(NamedTuple):
    """The time from two clocks: ``ms`` never jumps and is for deadlines, ``wall_ms`` is for records."""

    ms: int
    wall_ms: int


TimerKey = tuple[str, ...]
"""The key of a deadline: its kind, then names."""

Done = Callable[[ErrorCode, Now], None]
"""Called when records are as durable as acks=all makes them, or cannot be stored."""

KeyValue = tuple[bytes, bytes | None]
"""A record to store; a value of None is a tombstone."""

Records = Callable[[], Sequence[KeyValue]]
"""Makes the records of one batch. An exception makes the write fail."""


def coordinator_error(code: ErrorCode, *, too_large: ErrorCode) -> ErrorCode:
    """Return the coordinator's error code for a failed append, as clients receive it."""
    if code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return too_large
    return code
