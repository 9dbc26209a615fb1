"""The group coordinator's records in ``__consumer_offsets``.

The formats are declared in `klamm.protocol.coordinator_records.group`. Offsets are written at value version 4, which
has the topic's id. Version 1 is the only one with an expiry time, so commits with a retention time (OffsetCommit v2-4)
use it. Metadata of classic groups is written at version 3, as Kafka 4.4 does. Unknown kinds of records are ignored. A
compacted log keeps the last value of each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.runtime.types import KeyValue
from klamm.protocol.coordinator_records.group import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_record,
    encode_key,
    encode_value,
)
from klamm.protocol.schema import Message

OFFSET_KEY = 1
GROUP_KEY = 2
OFFSET_VALUE = 4
OFFSET_VALUE_WITH_EXPIRY = 1
GROUP_VALUE = 3

T = TypeVar("T")


class OffsetRecord(NamedTuple):
    """A commit; ``committed`` is None for a tombstone."""

    group: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A generation; ``value`` is None for a tombstone."""

    group: str
    value: GroupMetadataValue | None


class ConsumerRecord(NamedTuple):
    """One record of a consumer group: its kind, its member or expression, its value; None for a tombstone."""

    kind: int
    group: str
    part: str
    value: Message | None


def offset_record(group: str, topic: str, partition: int, committed: CommittedOffset) -> KeyValue:
    """Return the record of one commit."""
    expires = committed.expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms if committed.expire_timestamp_ms is not None else -1,
        topic_id=committed.topic_id,
    )
    version = OFFSET_VALUE_WITH_EXPIRY if expires else OFFSET_VALUE
    return offset_key(group, topic, partition), encode_value(value, version)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode_key(OFFSET_KEY, OffsetCommitKey(group=group, topic=topic, partition=partition))


def group_record(group: str, value: GroupMetadataValue) -> KeyValue:
    """Return the record of one generation."""
    return group_key(group), encode_value(value, GROUP_VALUE)


def group_key(group: str) -> bytes:
    return encode_key(GROUP_KEY, GroupMetadataKey(group=group))


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord | ConsumerRecord | None:
    """Decode a record; None for unknown kinds. Raises Malformed."""
    found = decode_record(key, value)
    if found is None:
        return None
    kind, named, content = found
    if isinstance(named, OffsetCommitKey):
        assert content is None or isinstance(content, OffsetCommitValue)
        return OffsetRecord(named.group, named.topic, named.partition, _committed(content))
    if isinstance(named, GroupMetadataKey):
        assert content is None or isinstance(content, GroupMetadataValue)
        return GroupRecord(named.group, content)
    return ConsumerRecord(kind, named.group_id, _part(named), content)  # type: ignore[attr-defined]


def _part(key: Message) -> str:
    """Return the member or expression of a record; empty for a record of the group."""
    for name in ("member_id", "regular_expression"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return ""


def _committed(stored: OffsetCommitValue | None) -> CommittedOffset | None:
    if stored is None:
        return None
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp if stored.expire_timestamp != -1 else None,
        stored.topic_id,
    )


def batches(records: Sequence[T], limit: int = 500) -> list[Sequence[T]]:
    """Split tombstones into pieces that fit into a batch each."""
    return [records[start : start + limit] for start in range(0, len(records), limit)]
