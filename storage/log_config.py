"""The settings of one log, resolved from the topic and broker configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Sizes in bytes, times in milliseconds; -1 means no limit where Kafka has it so."""

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
    preallocate: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> LogConfig:
        """From topic configs under Kafka's names, typed; what is missing has Kafka's default."""

        default = cls()

        def number(name: str, default: int) -> int:
            value = values.get(name, default)
            assert isinstance(value, int), f"{name}: {value!r} is not a number"
            return value

        policy = values.get("cleanup.policy", "delete")
        policies = policy.split(",") if isinstance(policy, str) else list(policy)  # type: ignore[call-overload]
        policies = [str(name).strip() for name in policies]
        return cls(
            segment_bytes=number("segment.bytes", default.segment_bytes),
            segment_ms=number("segment.ms", default.segment_ms),
            segment_jitter_ms=number("segment.jitter.ms", default.segment_jitter_ms),
            segment_index_bytes=number("segment.index.bytes", default.segment_index_bytes),
            index_interval_bytes=number("index.interval.bytes", default.index_interval_bytes),
            flush_messages=number("flush.messages", default.flush_messages),
            flush_ms=number("flush.ms", default.flush_ms),
            retention_ms=number("retention.ms", default.retention_ms),
            retention_bytes=number("retention.bytes", default.retention_bytes),
            file_delete_delay_ms=number("file.delete.delay.ms", default.file_delete_delay_ms),
            compacted="compact" in policies,
            deleted="delete" in policies,
            preallocate=bool(values.get("preallocate", False)),
        )
