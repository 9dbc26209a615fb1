"""The declared records of coordinators against the definitions inside Apache Kafka's jars."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from klamm.protocol.coordinator_records import kinds
from klamm.protocol.coordinator_records.group import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from klamm.protocol.coordinator_records.kinds import GROUP_KINDS, SHARE_STATE_KINDS, TRANSACTION_KINDS, Kinds
from klamm.protocol.coordinator_records.transaction import TransactionLogKey, TransactionLogValue
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed
from tests.support.definitions import Definition, FieldLayout, declared_layout, layout, parse_definition
from tests.support.jars import jar

JARS = {
    "kafka-group-coordinator-4": GROUP_KINDS,
    "kafka-transaction-coordinator-": TRANSACTION_KINDS,
    "kafka-share-coordinator-": SHARE_STATE_KINDS,
}
LEGACY = 0
"""The kind of commits that Kafka declares as messages of their own: the same layouts under another name."""


@cache
def definitions(jar_name: str) -> dict[str, Definition]:
    found = {}
    with zipfile.ZipFile(jar("broker", jar_name)) as archive:
        for entry in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", entry):
                definition = parse_definition(archive.read(entry).decode())
                found[definition.name] = replace(
                    definition,
                    fields=_with_versions(definition.fields),
                    structs={name: _with_versions(fields) for name, fields in definition.structs.items()},
                )
    return found


def _with_versions(fields: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """A tagged field that names no versions has those in which it is tagged."""
    return tuple({"versions": field.get("taggedVersions"), **field} for field in fields)


def all_kinds() -> list[tuple[str, Kinds, int]]:
    return [(jar_name, known, kind) for jar_name, known in JARS.items() for kind in known]


@pytest.mark.java
@pytest.mark.parametrize("jar_name", JARS)
def test_every_record_of_kafka_is_declared(jar_name: str) -> None:
    theirs = {
        (d.api_key, d.kind.removeprefix("coordinator-"))
        for d in definitions(jar_name).values()
        if d.kind.startswith("coordinator-")
    }
    assert theirs == {(kind, part) for kind in JARS[jar_name] for part in ("key", "value")}


@pytest.mark.java
@pytest.mark.parametrize(("jar_name", "known", "kind"), all_kinds())
def test_layouts_are_kafkas(jar_name: str, known: Kinds, kind: int) -> None:
    for declared in kinds.classes(known, kind):
        definition = definitions(jar_name)[declared.__name__]
        assert declared.versions == definition.valid
        if not (known is GROUP_KINDS and kind == LEGACY):
            assert declared.api_key == definition.api_key == kind
        for version in range(declared.versions[0], declared.versions[1] + 1):
            ours, theirs = declared_layout(declared, version), layout(definition, version)
            assert tuple(map(_with_kafkas_names, ours)) == theirs, f"{declared.__name__} {version}"


def _with_kafkas_names(field: FieldLayout) -> FieldLayout:
    """Two messages of one module have a struct of the same name."""
    return replace(field, type={"TargetTaskIds": "TaskIds"}.get(field.type, field.type))


def encoded(prefix: int, content: Message, version: int = 0) -> bytes:
    out = bytearray(kinds.PREFIX.pack(prefix))
    type(content).encode[version](content, out)
    return bytes(out)


def test_a_transaction_is_read_at_both_versions() -> None:
    key = TransactionLogKey(transactional_id="tx")
    value = TransactionLogValue(producer_id=4, producer_epoch=2, transaction_partitions=None, next_producer_id=5)
    assert kinds.decode_key(TRANSACTION_KINDS, encoded(0, key)) == (0, key)
    assert kinds.decode_value(TRANSACTION_KINDS, 0, encoded(1, value, 1)) == (1, value)
    value.next_producer_id = -1
    assert kinds.decode_value(TRANSACTION_KINDS, 0, encoded(0, value, 0)) == (0, value)


def test_golden_bytes_of_a_transaction() -> None:
    data = bytes.fromhex(
        "0001"  # value version
        "0000000000000007"  # producer id
        "0003"  # producer epoch
        "0000ea60"  # timeout
        "01"  # status: ongoing
        "02"  # one topic
        "0274"  # "t"
        "02 00000001"  # one partition, 1
        "00"  # no tagged fields of the topic
        "0000018bcfe56800"  # last update
        "0000018bcfe56800"  # start
        "02"  # tagged fields: two
        "00 08 0000000000000006"  # 0: previous producer id
        "02 02 0002"  # 2: client's transaction version
    )
    _, value = kinds.decode_value(TRANSACTION_KINDS, 0, data)
    assert isinstance(value, TransactionLogValue)
    assert (value.producer_id, value.previous_producer_id, value.next_producer_id) == (7, 6, -1)
    assert (value.client_transaction_version, value.transaction_status) == (2, 1)
    assert [(t.topic, t.partition_ids) for t in value.transaction_partitions or []] == [("t", [1])]
    assert encoded(1, value, 1) == data


@pytest.mark.parametrize(
    ("classic", "tags"),
    [
        (None, "01 00 01 00"),  # a null struct in a tagged field is 0, not -1 as elsewhere
        (ClassicMemberMetadata(session_timeout_ms=4), "01 00 07 01 00000004 01 00"),
        (ClassicMemberMetadata(), "00"),
    ],
)
def test_golden_bytes_of_a_nullable_struct_in_a_tagged_field(classic: ClassicMemberMetadata | None, tags: str) -> None:
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, server_assignor=None, classic_member_metadata=classic
    )
    data = bytes.fromhex("0000 00 00 01 01 01 01 ffffffff 00" + tags)
    assert encoded(0, value) == data
    assert kinds.decode_value(GROUP_KINDS, 5, data) == (0, value)


@pytest.mark.parametrize("data", ["", "00", "0009"])
def test_what_is_no_record_is_refused(data: str) -> None:
    with pytest.raises(Malformed):
        kinds.decode_key(GROUP_KINDS, bytes.fromhex(data))


def test_an_unknown_kind_and_version_are_named() -> None:
    with pytest.raises(kinds.UnknownKind, match="18"):
        kinds.decode_key(GROUP_KINDS, b"\0\x12")
    with pytest.raises(Malformed, match="version 2 is not known, only 0-1"):
        kinds.decode_value(TRANSACTION_KINDS, 0, b"\0\2")
