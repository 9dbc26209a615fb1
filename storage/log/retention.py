"""Find the oldest segments that a log may delete: by time, by size, and by its log start (after DeleteRecords).

As in Apache Kafka, in this order, oldest first, stopping at the first segment that must stay:
- time: its largest timestamp is older than `retention.ms`; without timestamps, the time of the file's last write;
- size: without it the log still has `retention.bytes`;
- log start: it ends at or below the log start offset.

Time and size count only for a `cleanup.policy` with `delete`. Nothing at or above the high watermark is deleted. When
the active segment is due, too, and not empty, it is rolled first: an empty segment at the log end remains.

This module deletes nothing: `due` rolls if it must and returns the new log start. The caller makes it durable
(`LogDir.raise_log_starts`), applies it, and removes the segments (`Log.detach_unreachable`). After a crash in between,
the next round finds them below the log start.

Clocks: timestamps come from the producers or the broker. Ages are measured against `TrustedTime`, which distrusts a
wall clock that jumps ahead until it has stayed ahead for an hour. So a clock that is a day ahead for a minute deletes
nothing. A clock that is set back is believed at once, and deletes less. Nothing protects from a wrong clock at the
start of the process, or from records with wrong timestamps.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from klamm.protocol.errors import KafkaStorageError
from klamm.storage.clock import Clock
from klamm.storage.log.log import Log
from klamm.storage.log.segment import Segment
from klamm.storage.log.timestamps import last_written_ms

logger = logging.getLogger(__name__)

JUMP_MS = 60_000
"""How far the wall clock may run ahead of the monotonic one between two calls."""

TRUST_AFTER_SECONDS = 3600.0


class TrustedTime:
    """The wall clock for decisions that destroy data; see the module's docstring."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.wall_ms()
        self._monotonic = clock.monotonic()
        self._jumped_at: float | None = None

    def now_ms(self) -> int:
        wall_ms, monotonic = self._clock.wall_ms(), self._clock.monotonic()
        expected_ms = self._wall_ms + int((monotonic - self._monotonic) * 1000)
        if wall_ms - expected_ms > JUMP_MS:
            if self._jumped_at is None:
                self._jumped_at = monotonic
                logger.warning(
                    "the clock jumped ahead by %d s; deletion of old data follows it in an hour",
                    (wall_ms - expected_ms) // 1000,
                )
            if monotonic - self._jumped_at < TRUST_AFTER_SECONDS:
                return expected_ms
        self._jumped_at = None
        self._wall_ms, self._monotonic = wall_ms, monotonic
        return wall_ms


@dataclass(frozen=True, slots=True)
class Breach:
    """The oldest segments, as many as may be deleted, and the log start without them."""

    by_time: int
    by_size: int
    by_log_start: int
    size_bytes: int
    log_start_offset: int

    @property
    def count(self) -> int:
        return self.by_time + self.by_size + self.by_log_start


def breach(log: Log, now_ms: int, *, closed_only: bool = False) -> Breach | None:
    """Return what may be deleted now, or None. Looks only at these segments and the one after them."""
    segments = log.local.segments.all[: -1 if closed_only else None]
    config = log.local.config
    by_time = by_size = 0
    size_bytes = 0
    index = 0
    if config.deleted and config.retention_ms >= 0:
        while _may_go(log, segments, index) and now_ms - last_written_ms(segments[index]) > config.retention_ms:
            size_bytes += segments[index].size_bytes
            index += 1
        by_time = index
    if config.deleted and config.retention_bytes >= 0:
        excess = log.local.size_bytes - size_bytes - config.retention_bytes
        while _may_go(log, segments, index) and excess >= segments[index].size_bytes:
            excess -= segments[index].size_bytes
            size_bytes += segments[index].size_bytes
            index += 1
        by_size = index - by_time
    while _may_go(log, segments, index) and _end(log, index) <= log.log_start_offset:
        size_bytes += segments[index].size_bytes
        index += 1
    if index == 0:
        return None
    return Breach(by_time, by_size, index - by_time - by_size, size_bytes, _end(log, index - 1))


def _end(log: Log, index: int) -> int:
    segments = log.local.segments.all
    return segments[index + 1].base_offset if index + 1 < len(segments) else log.log_end_offset


def _may_go(log: Log, segments: Sequence[Segment], index: int) -> bool:
    if index >= len(segments) or (segments[index] is log.local.segments.all[-1] and segments[index].size_bytes == 0):
        return False
    return _end(log, index) <= log.high_watermark


def due(log: Log, now_ms: int) -> Breach | None:
    """Return what may be deleted now, without the active segment if no new one can be made. Raises OSError."""
    found = breach(log, now_ms)
    if found is None or found.count < len(log.local.segments.all):
        return found
    try:
        log.roll()
    except KafkaStorageError:  # logged already; deleting the others frees space on a full disk
        return breach(log, now_ms, closed_only=True)
    return found


def log_deleted(log: Log, found: Breach) -> None:
    """Log one line for the operator."""
    logger.info(
        "%s: retention deletes %d segments: by_time=%d by_size=%d by_log_start=%d size_bytes=%d log_start_offset=%d",
        log.name, found.count, found.by_time, found.by_size, found.by_log_start, found.size_bytes, log.log_start_offset,
    )  # fmt: skip
