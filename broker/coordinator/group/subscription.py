"""Metadata that consumers exchange through the broker, as far as the broker must decode it.

    subscription = version i16 | topics array of string | user data bytes
                   | v1+: owned array of (topic string, partitions array of i32) | v2+: generation i32 | v3+: rack
    assignment   = version i16 | array of (topic string, partitions array of i32) | user data bytes

JoinGroup carries a subscription, SyncGroup an assignment, for protocol type "consumer". Offsets of a topic that a group
consumes do not expire and cannot be deleted: that needs only the topics, and every version begins with them. A group
that changes its protocol needs the rest. Metadata of any other protocol type is never decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.protocol.wire import Malformed, fits_string

CONSUMER = "consumer"

_HEAD = struct.Struct(">hi")  # version, number of topics
_SIZE = struct.Struct(">h")
_INT = struct.Struct(">i")
OWNED_FROM = 1
RACK_FROM = 3


def subscribed_topics(metadata: bytes) -> set[str]:
    """Return the topics of one member's subscription. Raises Malformed."""
    topics = set()
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count > len(metadata):
            raise Malformed(f"a subscription of version {version} with {count} topics")
        position = _HEAD.size
        for _ in range(count):
            (size,) = _SIZE.unpack_from(metadata, position)
            position += _SIZE.size
            if size < 0 or position + size > len(metadata):
                raise Malformed(f"a topic name of {size} bytes in a subscription")
            topics.add(metadata[position : position + size].decode("utf-8", "replace"))
            position += size
    except struct.error:
        raise Malformed("a subscription is cut short") from None
    return topics


class Subscription(NamedTuple):
    """The contents of a member's subscription."""

    version: int
    topics: frozenset[str]
    owned: dict[str, list[int]]
    rack_id: str | None


class _Reader:
    """Reads fields one after the other. Raises Malformed past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._position)
        except struct.error:
            raise Malformed("a subscription or assignment is cut short") from None
        self._position += layout.size
        return int(value)

    def count(self) -> int:
        count = self.number(_INT)
        if count > len(self._data):
            raise Malformed(f"an array of {count} in a subscription or assignment")
        return count

    def piece(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise Malformed(f"a field of {size} bytes in a subscription or assignment")
        piece = self._data[self._position : end]
        self._position = end
        return piece

    def text(self) -> str:
        text = self.piece(self.number(_SIZE)).decode("utf-8", "replace")
        if not fits_string(text):
            raise Malformed("a name too long for a string in a subscription or assignment")
        return text

    def nullable_text(self) -> str | None:
        position = self._position
        if self.number(_SIZE) < 0:
            return None
        self._position = position
        return self.text()

    def skip_bytes(self) -> None:
        size = self.number(_INT)
        if size > 0:
            self.piece(size)

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count()):
            topic = self.text()
            found.setdefault(topic, []).extend([self.number(_INT) for _ in range(self.count())])
        return found

    @property
    def at_end(self) -> bool:
        return self._position >= len(self._data)


def parse_subscription(metadata: bytes) -> Subscription:
    """Decode all of a member's subscription. Raises Malformed."""
    reader = _Reader(metadata)
    version = reader.number(_SIZE)
    if version < 0:
        raise Malformed(f"a subscription of version {version}")
    topics = frozenset([reader.text() for _ in range(reader.count())])
    reader.skip_bytes()
    owned = reader.partitions() if version >= OWNED_FROM and not reader.at_end else {}
    rack_id = None
    if version >= RACK_FROM:
        reader.number(_INT)  # the generation in which it owned them
        rack_id = reader.nullable_text() or None
    return Subscription(version, topics, owned, rack_id)


def parse_assignment(assignment: bytes) -> dict[str, list[int]]:
    """Return topic -> partitions; empty for a member without an assignment yet. Raises Malformed."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    if reader.number(_SIZE) < 0:
        raise Malformed("an assignment of a negative version")
    return reader.partitions()


def write_assignment(version: int, partitions: Mapping[str, Collection[int]]) -> bytes:
    """Encode an assignment as a leader does."""
    out = bytearray(_HEAD.pack(version, len(partitions)))
    for topic, indexes in sorted(partitions.items()):
        name = topic.encode()
        out += _SIZE.pack(len(name)) + name + struct.pack(f">i{len(indexes)}i", len(indexes), *sorted(indexes))
    out += _INT.pack(-1)  # no user data
    return bytes(out)
