"""Cluster-wide records: feature levels, producer ids, the brackets of a metadata transaction (KIP-868)."""

from __future__ import annotations

from klamm.protocol.schema import Message, field, message
from klamm.protocol.wire import Int8, Int16, Int32, Int64, String


@message(key=12, kind="metadata", versions="0", flexible="0+")
class FeatureLevelRecord(Message):
    name: String = field()
    feature_level: Int16 = field()


@message(key=15, kind="metadata", versions="0", flexible="0+")
class ProducerIdsRecord(Message):
    broker_id: Int32 = field()
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64 = field()


@message(key=20, kind="metadata", versions="0", flexible="0+")
class NoOpRecord(Message):
    """A record without fields."""


@message(key=23, kind="metadata", versions="0", flexible="0+")
class BeginTransactionRecord(Message):
    name: String | None = field(nullable="0+", default=None, tag=0)


@message(key=24, kind="metadata", versions="0", flexible="0+")
class EndTransactionRecord(Message):
    """A record without fields."""


@message(key=25, kind="metadata", versions="0", flexible="0+")
class AbortTransactionRecord(Message):
    reason: String | None = field(nullable="0+", default=None, tag=0)


@message(key=21, kind="metadata", versions="0", flexible="0+")
class ZkMigrationStateRecord(Message):
    zk_migration_state: Int8 = field()
