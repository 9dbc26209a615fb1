"""All keys that a topic may override, each with the broker keys that give its default."""

from __future__ import annotations

from typing import Final

from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import LONG_MAX, ConfigKey, Status, Type, Validator, Value
from klamm.config.rows_log import HOUR_MS
from klamm.config.validators import Range, ThrottledReplicas

NONE_STORED: Final = "remote storage does not exist here, and records kept there would be missing"


def _inherited(name: str, broker_name: str, *, default: Value = None, validator: Validator | None = None) -> ConfigKey:
    """Return a topic key with the type, default and limits of its broker key, unless others are given."""
    row = BROKER_KEYS[broker_name]
    synonyms = ((broker_name, 1), *row.fallbacks)
    default = row.default if default is None else default
    return ConfigKey(
        name, row.type, default, row.doc, validator or row.validator, "cluster-wide", "medium", row.status, "", synonyms
    )


def _own(
    name: str,
    kind: Type,
    default: Value,
    doc: str,
    validator: Validator | None = None,
    *,
    status: Status = "later",
    refuse: str = "",
) -> ConfigKey:
    """Return a topic key without a broker key."""
    return ConfigKey(name, kind, default, doc, validator, "cluster-wide", "medium", status, refuse)


_ROWS = (
    _inherited("cleanup.policy", "log.cleanup.policy"),
    _inherited("compression.gzip.level", "compression.gzip.level"),
    _inherited("compression.lz4.level", "compression.lz4.level"),
    _inherited("compression.type", "compression.type"),
    _inherited("compression.zstd.level", "compression.zstd.level"),
    _inherited("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _own(
        "errors.deadletterqueue.group.enable", Type.BOOLEAN, False, "Let share groups put undeliverable records here."
    ),
    _inherited("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _inherited("flush.messages", "log.flush.interval.messages"),
    _inherited("flush.ms", "log.flush.interval.ms", default=LONG_MAX, validator=Range(0)),
    _own(
        "follower.replication.throttled.replicas",
        Type.LIST,
        [],
        "Replicas that fetch at a limited rate.",
        ThrottledReplicas(),
    ),
    _inherited("index.interval.bytes", "log.index.interval.bytes"),
    _own("internal.segment.bytes", Type.INT, None, "A segment size below the limits, for tests.", status="works"),
    _inherited("klamm.acks.fsync", "klamm.acks.fsync"),
    _own(
        "leader.replication.throttled.replicas",
        Type.LIST,
        [],
        "Replicas that are served at a limited rate.",
        ThrottledReplicas(),
    ),
    _inherited("local.retention.bytes", "log.local.retention.bytes"),
    _inherited("local.retention.ms", "log.local.retention.ms"),
    _inherited("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _inherited("max.decompressed.message.bytes", "max.decompressed.message.bytes"),
    _inherited("max.message.bytes", "message.max.bytes"),
    _inherited("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _inherited("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _inherited("message.timestamp.type", "log.message.timestamp.type"),
    _inherited("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _inherited("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _inherited("min.insync.replicas", "min.insync.replicas"),
    _inherited("preallocate", "log.preallocate"),
    _inherited("remote.copy.lag.bytes", "log.remote.copy.lag.bytes"),
    _inherited("remote.copy.lag.ms", "log.remote.copy.lag.ms"),
    _own("remote.log.copy.disable", Type.BOOLEAN, False, "Make the remote part of a tiered log read-only."),
    _own("remote.log.delete.on.disable", Type.BOOLEAN, False, "Delete the remote part when tiering is turned off."),
    _own("remote.storage.enable", Type.BOOLEAN, False, "Keep old segments in remote storage.", refuse=NONE_STORED),
    _inherited("retention.bytes", "log.retention.bytes"),
    _inherited("retention.ms", "log.retention.ms", default=168 * HOUR_MS, validator=Range(-1)),
    _inherited("segment.bytes", "log.segment.bytes"),
    _inherited("segment.index.bytes", "log.index.size.max.bytes"),
    _inherited("segment.jitter.ms", "log.roll.jitter.ms", default=0, validator=Range(0)),
    _inherited("segment.ms", "log.roll.ms", default=168 * HOUR_MS, validator=Range(1)),
    _inherited("unclean.leader.election.enable", "unclean.leader.election.enable"),
)

TOPIC_KEYS: Final[dict[str, ConfigKey]] = {row.name: row for row in _ROWS}
