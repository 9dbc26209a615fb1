"""The settings of one log, resolved from the topic and broker configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds; -1 means no limit where Kafka defines it so."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    file_delete_delay_ms: int = 60_000
    compacted: bool = False
    deleted: bool = True
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * 3600 * 1000
    max_decompressed_bytes: int = 100 << 20
    preallocate: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> LogConfig:
        """Return the settings for typed topic configs under Kafka's names; missing ones have Kafka's defaults.

        `klamm.acks.fsync` means a flush for every message: a producer that waits for the disk waits for all earlier
        batches.
        """

        default = cls()

        def number(name: str, default: int) -> int:
            value = values.get(name, default)
            assert isinstance(value, int), f"{name}: {value!r} is not a number"
            return value

        ratio = values.get("min.cleanable.dirty.ratio", default.min_cleanable_dirty_ratio)
        assert isinstance(ratio, int | float), f"min.cleanable.dirty.ratio: {ratio!r} is not a number"
        policy = values.get("cleanup.policy", "delete")
        policies = policy.split(",") if isinstance(policy, str) else list(policy)  # type: ignore[call-overload]
        policies = [str(name).strip() for name in policies]
        compacted = "compact" in policies
        max_lag_ms = number("max.compaction.lag.ms", default.max_compaction_lag_ms)
        segment_ms = number("segment.ms", default.segment_ms)
        return cls(
            segment_bytes=number("segment.bytes", default.segment_bytes),
            segment_ms=min(segment_ms, max_lag_ms) if compacted else segment_ms,  # the active one is never compacted
            segment_jitter_ms=number("segment.jitter.ms", default.segment_jitter_ms),
            segment_index_bytes=number("segment.index.bytes", default.segment_index_bytes),
            index_interval_bytes=number("index.interval.bytes", default.index_interval_bytes),
            flush_messages=1 if values.get("klamm.acks.fsync") else number("flush.messages", default.flush_messages),
            flush_ms=number("flush.ms", default.flush_ms),
            retention_ms=number("retention.ms", default.retention_ms),
            retention_bytes=number("retention.bytes", default.retention_bytes),
            file_delete_delay_ms=number("file.delete.delay.ms", default.file_delete_delay_ms),
            compacted=compacted,
            deleted="delete" in policies,
            min_cleanable_dirty_ratio=float(ratio),
            min_compaction_lag_ms=number("min.compaction.lag.ms", default.min_compaction_lag_ms),
            max_compaction_lag_ms=max_lag_ms,
            delete_retention_ms=number("delete.retention.ms", default.delete_retention_ms),
            max_decompressed_bytes=number("max.decompressed.message.bytes", default.max_decompressed_bytes),
            preallocate=bool(values.get("preallocate", default.preallocate)),
        )
