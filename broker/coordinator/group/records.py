"""The records of ``__consumer_offsets``: what of a group survives a restart.

    key   = version i16 | fields        the version tells what the record is about
    value = version i16 | fields        null: a tombstone

    key 0, 1  OffsetCommitKey    group, topic, partition      value OffsetCommitValue 0-4
    key 2     GroupMetadataKey   group                        value GroupMetadataValue 0-4

The formats are Kafka's, so its tools read our topic and we read its. Key 0 is what 0.8.2 wrote. Offsets are written
at value version 4, which has the topic's id; version 1 is the only one with an expiry of its own, so commits with a
retention time (OffsetCommit v2-4) use it. Group metadata is written at version 3, as Kafka 4.4 does. Records
with other key versions (newer kinds of groups) are left to others. A compacted log keeps the last value of each key.
"""

from __future__ import annotations

import struct as binary
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import ZERO_UUID, Bytes, Int32, Int64, Malformed, String, Uuid

OFFSET_KEYS = (0, 1)
OFFSET_KEY = 1
GROUP_KEY = 2
OFFSET_VALUE = 4
OFFSET_VALUE_WITH_EXPIRY = 1
GROUP_VALUE = 3

T = TypeVar("T")
_VERSION = binary.Struct(">h")


@message(key=1, kind="coordinator-key", versions="0")
class OffsetCommitKey(Message):
    """Of both key versions; on the disk the key's version is the kind of record."""

    group: String = field()
    topic: String = field()
    partition: Int32 = field()


@message(key=1, kind="coordinator-value", versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """Version 3 adds the leader epoch (KIP-320), 4 the topic's id."""

    offset: Int64 = field()
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String = field()
    commit_timestamp: Int64 = field()
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, tagged="4+", ignorable=True)


@message(key=2, kind="coordinator-key", versions="0")
class GroupMetadataKey(Message):
    """One group."""

    group: String = field()


@struct
class MemberMetadata:
    """One member of the generation; ``subscription`` is its metadata for the protocol that was chosen."""

    member_id: String = field()
    group_instance_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)
    client_id: String = field()
    client_host: String = field()
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32 = field()
    subscription: Bytes = field()
    assignment: Bytes = field()


@message(key=2, kind="coordinator-value", versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A generation. Version 1 adds rebalance timeouts, 2 the time of the last change, 3 static members."""

    protocol_type: String = field()
    generation: Int32 = field()
    protocol: String | None = field(nullable="0+")
    leader: String | None = field(nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field()


KeyValue = tuple[bytes, bytes | None]


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


def offset_record(group: str, topic: str, partition: int, committed: CommittedOffset) -> KeyValue:
    """The record of one commit."""
    expires = committed.expire_timestamp_ms is not None
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms if committed.expire_timestamp_ms is not None else -1,
        topic_id=committed.topic_id,
    )
    return offset_key(group, topic, partition), encode(
        value, OFFSET_VALUE_WITH_EXPIRY if expires else OFFSET_VALUE, OFFSET_VALUE_WITH_EXPIRY if expires else None
    )


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode(OffsetCommitKey(group=group, topic=topic, partition=partition), OFFSET_KEY, 0)


def group_record(group: str, value: GroupMetadataValue) -> KeyValue:
    """The record of one generation."""
    return group_key(group), encode(value, GROUP_VALUE)


def group_key(group: str) -> bytes:
    return encode(GroupMetadataKey(group=group), GROUP_KEY, 0)


def encode(content: Message, version: int, layout: int | None = None) -> bytes:
    """The version, then the fields; the layout of a key is always that of version 0."""
    out = bytearray(_VERSION.pack(version))
    type(content).encode[version if layout is None else layout](content, out)
    return bytes(out)


def decode(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord | None:
    """What a record says; None for kinds that are not known here. Raises Malformed."""
    if key is None or len(key) < _VERSION.size:
        raise Malformed("a record of __consumer_offsets without a key")
    (kind,) = _VERSION.unpack_from(key)
    if kind in OFFSET_KEYS:
        named, _ = OffsetCommitKey.decode[0](memoryview(key), _VERSION.size)
        return OffsetRecord(named.group, named.topic, named.partition, _committed(value))
    if kind == GROUP_KEY:
        grouped, _ = GroupMetadataKey.decode[0](memoryview(key), _VERSION.size)
        if value is None:
            return GroupRecord(grouped.group, None)
        version = _version(value, GroupMetadataValue.versions)
        generation, _ = GroupMetadataValue.decode[version](memoryview(value), _VERSION.size)
        return GroupRecord(grouped.group, generation)
    return None


def _committed(value: bytes | None) -> CommittedOffset | None:
    if value is None:
        return None
    version = _version(value, OffsetCommitValue.versions)
    stored, _ = OffsetCommitValue.decode[version](memoryview(value), _VERSION.size)
    return CommittedOffset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp if stored.expire_timestamp != -1 else None,
        stored.topic_id if version >= OFFSET_VALUE else ZERO_UUID,
    )


def _version(value: bytes, known: tuple[int, int]) -> int:
    if len(value) < _VERSION.size:
        raise Malformed("a value of __consumer_offsets without a version")
    version: int = _VERSION.unpack_from(value)[0]
    if not known[0] <= version <= known[1]:
        raise Malformed(f"value version {version} is not known, only {known[0]}-{known[1]}")
    return version


def batches(records: Sequence[T], limit: int = 500) -> list[Sequence[T]]:
    """Many tombstones in pieces that fit into a batch each."""
    return [records[start : start + limit] for start in range(0, len(records), limit)]
