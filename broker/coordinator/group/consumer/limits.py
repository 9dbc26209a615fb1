"""Limits and settings of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of one group; Kafka's keys beginning with ``group.consumer.`` or, for a single group, ``consumer.``."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Limits for all groups."""

    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration: str = "bidirectional"
    classic_max_size: int = 2**31 - 1
