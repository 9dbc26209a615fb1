"""The classes of key and value of a coordinator's record, by the kind at the start of its key.

A module is imported when the first of its kinds is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from struct import Struct as Binary
from typing import NamedTuple

from klamm.protocol.schema import Message
from klamm.protocol.wire import Buffer, Malformed

PREFIX = Binary(">h")  # the kind of a key, the version of a value
GROUPS = "klamm.protocol.coordinator_records.group"
SHARE_GROUPS = f"{__package__}.share_group"
STREAMS_GROUPS = f"{__package__}.streams_group"
TRANSACTIONS = f"{__package__}.transaction"
SHARE_STATE = f"{__package__}.share_state"

KEY_LAYOUT = 0
"""The version of every key's fields."""


class UnknownKind(Malformed):
    """A record of an unknown kind."""

    def __init__(self, kind: int) -> None:
        super().__init__(f"record kind {kind} is not known")
        self.kind = kind


class Versioned(NamedTuple):
    """A message and its prefix: the kind of a key, the version of a value."""

    version: int
    message: Message


Kinds = Mapping[int, tuple[str, str]]
"""By kind: the module, and the common name of both classes, without Key and Value."""

GROUP_KINDS: Kinds = {
    0: (GROUPS, "OffsetCommit"),
    1: (GROUPS, "OffsetCommit"),
    2: (GROUPS, "GroupMetadata"),
    3: (GROUPS, "ConsumerGroupMetadata"),
    4: (GROUPS, "ConsumerGroupPartitionMetadata"),
    5: (GROUPS, "ConsumerGroupMemberMetadata"),
    6: (GROUPS, "ConsumerGroupTargetAssignmentMetadata"),
    7: (GROUPS, "ConsumerGroupTargetAssignmentMember"),
    8: (GROUPS, "ConsumerGroupCurrentMemberAssignment"),
    10: (SHARE_GROUPS, "ShareGroupMemberMetadata"),
    11: (SHARE_GROUPS, "ShareGroupMetadata"),
    12: (SHARE_GROUPS, "ShareGroupTargetAssignmentMetadata"),
    13: (SHARE_GROUPS, "ShareGroupTargetAssignmentMember"),
    14: (SHARE_GROUPS, "ShareGroupCurrentMemberAssignment"),
    15: (SHARE_GROUPS, "ShareGroupStatePartitionMetadata"),
    16: (GROUPS, "ConsumerGroupRegularExpression"),
    17: (STREAMS_GROUPS, "StreamsGroupMetadata"),
    19: (STREAMS_GROUPS, "StreamsGroupMemberMetadata"),
    20: (STREAMS_GROUPS, "StreamsGroupTargetAssignmentMetadata"),
    21: (STREAMS_GROUPS, "StreamsGroupTargetAssignmentMember"),
    22: (STREAMS_GROUPS, "StreamsGroupCurrentMemberAssignment"),
    23: (STREAMS_GROUPS, "StreamsGroupTopology"),
}
"""The kinds of `__consumer_offsets`."""

TRANSACTION_KINDS: Kinds = {0: (TRANSACTIONS, "TransactionLog")}
"""The kinds of `__transaction_state`."""

SHARE_STATE_KINDS: Kinds = {0: (SHARE_STATE, "ShareSnapshot"), 1: (SHARE_STATE, "ShareUpdate")}
"""The kinds of `__share_group_state`."""


def classes(kinds: Kinds, kind: int) -> tuple[type[Message], type[Message]]:
    """Return the classes of key and value. Raises UnknownKind."""
    if kind not in kinds:
        raise UnknownKind(kind)
    name, beginning = kinds[kind]
    module = import_module(name)
    return getattr(module, f"{beginning}Key"), getattr(module, f"{beginning}Value")


def decode_key(kinds: Kinds, data: Buffer) -> Versioned:
    """Decode a key. Raises UnknownKind or Malformed."""
    kind = _prefix(data)
    key_class, _ = classes(kinds, kind)
    return Versioned(kind, _decode(key_class, data, KEY_LAYOUT))


def decode_value(kinds: Kinds, kind: int, data: Buffer) -> Versioned:
    """Decode the value of a record with a key of `kind`. Raises UnknownKind or Malformed."""
    _, value_class = classes(kinds, kind)
    version = _prefix(data)
    first, last = value_class.versions
    if not first <= version <= last:
        raise Malformed(f"{value_class.__name__} version {version} is not known, only {first}-{last}")
    return Versioned(version, _decode(value_class, data, version))


def _prefix(data: Buffer) -> int:
    if len(data) < PREFIX.size:
        raise Malformed(f"{len(data)} bytes are too few for a version")
    return int(PREFIX.unpack_from(data)[0])


def _decode(message_class: type[Message], data: Buffer, version: int) -> Message:
    found, _ = message_class.decode[version](memoryview(data), PREFIX.size)
    return found  # type: ignore[no-any-return]
