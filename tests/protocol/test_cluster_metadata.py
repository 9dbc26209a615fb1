"""The declared records of the cluster metadata against the definitions inside Apache Kafka's jars."""

from __future__ import annotations

import dataclasses
import re
import zipfile
from functools import cache

import pytest

from klamm.protocol.cluster_metadata import kinds
from klamm.protocol.cluster_metadata.cluster import FeatureLevelRecord, NoOpRecord
from klamm.protocol.cluster_metadata.kinds import CONTROL_KINDS, KINDS
from klamm.protocol.cluster_metadata.topics import PartitionChangeRecord, PartitionRecord
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed
from tests.support.definitions import Definition, FieldLayout, declared_layout, layout, parse_definition
from tests.support.jars import jar

TOPIC_ID = bytes(range(16))


@cache
def definitions(beginning: str, folder: str) -> dict[str, Definition]:
    found = {}
    with zipfile.ZipFile(jar("broker", beginning)) as archive:
        for entry in archive.namelist():
            if re.fullmatch(rf"common/{folder}/\w+\.json", entry):
                definition = parse_definition(archive.read(entry).decode())
                found[definition.name] = definition
    return found


def metadata_definitions() -> dict[str, Definition]:
    return definitions("kafka-metadata-", "metadata")


def same_layout(declared: type[Message], definition: Definition) -> None:
    assert declared.versions == definition.valid
    for version in range(declared.versions[0], declared.versions[1] + 1):
        ours, theirs = declared_layout(declared, version), layout(definition, version)
        assert [renamed(field, declared.__name__) for field in ours] == list(theirs), f"{declared.__name__} v{version}"


def renamed(field: FieldLayout, prefix: str) -> FieldLayout:
    """Two messages of one module may have structs of one name: ours then begin with the message's."""
    return dataclasses.replace(field, type=field.type.removeprefix(prefix))


@pytest.mark.java
def test_every_record_of_kafka_is_declared() -> None:
    theirs = {definition.api_key: definition.name for definition in metadata_definitions().values()}
    assert theirs == {kind: name for kind, (_, name) in KINDS.items()}


@pytest.mark.java
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_records_are_declared_as_kafka_defines_them(kind: int) -> None:
    declared = kinds.record_class(kind)
    assert (declared.api_key, declared.kind) == (kind, "metadata")
    same_layout(declared, metadata_definitions()[declared.__name__])


@pytest.mark.java
@pytest.mark.parametrize("kind", sorted(CONTROL_KINDS))
def test_control_records_are_declared_as_kafka_defines_them(kind: int) -> None:
    declared = kinds.control_class(kind)
    assert declared.kind == "data"
    same_layout(declared, definitions("kafka-clients-", "message")[declared.__name__])


def test_golden_bytes_of_a_feature_level() -> None:
    data = bytes.fromhex(
        "01"  # frame version
        "0c"  # api key 12
        "00"  # version 0
        "11 6d657461646174612e76657273696f6e"  # "metadata.version"
        "0021"  # level 33
        "00"  # no tagged fields
    )
    record = FeatureLevelRecord(name="metadata.version", feature_level=33)
    assert kinds.encode(record) == data
    assert kinds.decode(data) == (0, record)


def test_golden_bytes_of_a_change_of_a_partition() -> None:
    data = bytes.fromhex(
        "01 05 02"  # frame version, api key 5, version 2
        "00000003"  # partition
        "000102030405060708090a0b0c0d0e0f"  # topic id
        "03"  # tagged fields: three
        "00 01 01"  # 0: isr []
        "01 04 ffffffff"  # 1: leader -1
        "06 05 02 00000001"  # 6: eligible leader replicas [1]
    )
    record = PartitionChangeRecord(partition_id=3, topic_id=TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1])
    assert kinds.encode(record) == data
    assert kinds.decode(data) == (2, record)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_is_read_at_every_version(version: int) -> None:
    record = PartitionRecord(partition_id=1, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1], leader=1, leader_epoch=7)
    assert kinds.decode(kinds.encode(record, version)) == (version, record)


@pytest.mark.parametrize("data", ["", "01", "0114", "0214 00 00", "01140000ff", "010c00"])
def test_what_is_no_record_is_refused(data: str) -> None:
    with pytest.raises(Malformed):
        kinds.decode(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["01 63 00 00", "01 14 01 00"])
def test_a_record_of_a_newer_kafka_is_named(data: str) -> None:
    with pytest.raises(kinds.UnknownRecord, match="not known"):
        kinds.decode(bytes.fromhex(data))
    assert kinds.decode(kinds.encode(NoOpRecord())) == (0, NoOpRecord())
