"""The data that consumers of the classic protocol exchange through the group: subscriptions and assignments.

To the broker both are plain bytes in JoinGroup and SyncGroup, with a version (int16) before the fields. A version newer
than the newest known one is read as that one: versions only add fields at the end. Source: Kafka 4.4's messages
ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from struct import Struct as Binary
from typing import Final, NamedTuple

from klamm.protocol.schema import Message, field, message, struct
from klamm.protocol.wire import Buffer, Bytes, Int32, Malformed, String

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = Binary(">h")


@struct
class TopicPartition:
    topic: String = field()
    partitions: list[Int32] = field()


@message(kind="data", versions="0-3")
class ConsumerProtocolSubscription(Message):
    """Version 1 adds the owned partitions, 2 the generation of that assignment (KIP-792), 3 the rack (KIP-881)."""

    topics: list[String] = field()
    user_data: Bytes | None = field(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field("1+", ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)


@message(kind="data", versions="0-3")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[TopicPartition] = field()
    user_data: Bytes | None = field(nullable="0+", default=None)


class Versioned(NamedTuple):
    """A message and the version of the layout in which it was read."""

    version: int
    message: Message


def decode(message_class: type[Message], data: Buffer) -> Versioned:
    """Decode a subscription or an assignment. Raises Malformed."""
    if len(data) < VERSION.size:
        raise Malformed(f"{len(data)} bytes are too few for a version")
    (version,) = VERSION.unpack_from(data)
    if version < message_class.versions[0]:
        raise Malformed(f"{message_class.__name__} version {version} is not known")
    version = min(version, message_class.versions[1])
    found, _ = message_class.decode[version](memoryview(data), VERSION.size)
    return Versioned(version, found)
