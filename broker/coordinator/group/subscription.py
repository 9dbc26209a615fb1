"""What the members of consumer groups say to each other through the broker, as far as the broker must understand it.

    subscription = version i16 | topics array of string | ...    what JoinGroup carries for protocol type "consumer"

The broker needs the topics alone: offsets of a topic that the group consumes do not expire and cannot be deleted.
Every version begins like version 0 (KIP-429 and later only add to it), so that prefix is what is read. Members of any
other protocol type are never looked into.
"""

from __future__ import annotations

import struct

from klamm.protocol.wire import Malformed

CONSUMER = "consumer"

_HEAD = struct.Struct(">hi")  # version, number of topics
_SIZE = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str]:
    """The topics of one member's subscription. Raises Malformed."""
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
