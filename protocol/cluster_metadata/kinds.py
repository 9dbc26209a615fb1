"""The class of a cluster metadata record, by its api key; and the frame of a record.

A module is imported when the first of its records is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, NamedTuple

from klamm.protocol.schema import Message
from klamm.protocol.wire import Buffer, Malformed, put_uvarint, read_uvarint

FRAME_VERSION: Final = 1

KINDS: Final[Mapping[int, tuple[str, str]]] = {
    0: ("nodes", "RegisterBrokerRecord"),
    1: ("nodes", "UnregisterBrokerRecord"),
    2: ("topics", "TopicRecord"),
    3: ("topics", "PartitionRecord"),
    4: ("topics", "ConfigRecord"),
    5: ("topics", "PartitionChangeRecord"),
    7: ("nodes", "FenceBrokerRecord"),
    8: ("nodes", "UnfenceBrokerRecord"),
    9: ("topics", "RemoveTopicRecord"),
    10: ("access", "DelegationTokenRecord"),
    11: ("access", "UserScramCredentialRecord"),
    12: ("cluster", "FeatureLevelRecord"),
    14: ("access", "ClientQuotaRecord"),
    15: ("cluster", "ProducerIdsRecord"),
    17: ("nodes", "BrokerRegistrationChangeRecord"),
    18: ("access", "AccessControlEntryRecord"),
    19: ("access", "RemoveAccessControlEntryRecord"),
    20: ("cluster", "NoOpRecord"),
    21: ("cluster", "ZkMigrationStateRecord"),
    22: ("access", "RemoveUserScramCredentialRecord"),
    23: ("cluster", "BeginTransactionRecord"),
    24: ("cluster", "EndTransactionRecord"),
    25: ("cluster", "AbortTransactionRecord"),
    26: ("access", "RemoveDelegationTokenRecord"),
    27: ("nodes", "RegisterControllerRecord"),
    28: ("topics", "ClearElrRecord"),
    29: ("nodes", "UnregisterControllerRecord"),
}
"""By api key: the module and the class."""

CONTROL_KINDS: Final[Mapping[int, str]] = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}
"""By the type of a control record: the class in `control`."""


class UnknownRecord(Malformed):
    """A record of an unknown kind or version; `kind` is its api key."""

    def __init__(self, kind: int, version: int) -> None:
        super().__init__(f"metadata record of kind {kind} version {version} is not known")
        self.kind = kind


class Framed(NamedTuple):
    """A record and the version in which it is stored."""

    version: int
    message: Message


def record_class(kind: int) -> type[Message]:
    """Return the class of an api key. Raises KeyError when there is none."""
    module, name = KINDS[kind]
    found: type[Message] = getattr(import_module(f"klamm.protocol.cluster_metadata.{module}"), name)
    return found


def control_class(kind: int) -> type[Message]:
    """Return the class of a control record's type. Raises KeyError when there is none."""
    found: type[Message] = getattr(import_module("klamm.protocol.cluster_metadata.control"), CONTROL_KINDS[kind])
    return found


def decode(value: Buffer) -> Framed:
    """Decode the record in a value. Raises UnknownRecord for one from a newer Kafka, Malformed for bad bytes."""
    try:
        frame, pos = read_uvarint(value, 0)
        kind, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
    except IndexError:
        raise Malformed(f"{len(value)} bytes are too few for a metadata record") from None
    if frame != FRAME_VERSION:
        raise Malformed(f"a metadata record has frame version {frame}, expected {FRAME_VERSION}")
    cls = record_class(kind) if kind in KINDS else None
    if cls is None or not cls.versions[0] <= version <= cls.versions[1]:
        raise UnknownRecord(kind, version)
    message, end = cls.decode[version](value, pos)
    if end != len(value):
        raise Malformed(f"{cls.__name__} has {len(value) - end} bytes too many")
    return Framed(version, message)


def encode(message: Message, version: int | None = None) -> bytes:
    """Encode a record as a value, by default in its newest version. Raises NotEncodable."""
    kind = message.api_key
    assert kind is not None, "a record has an api key"
    version = message.versions[1] if version is None else version
    out = bytearray()
    for number in (FRAME_VERSION, kind, version):
        put_uvarint(out, number)
    return bytes(message.encode[version](message, out))
