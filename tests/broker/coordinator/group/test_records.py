"""The records of __consumer_offsets: golden bytes, and Kafka's own definitions."""

from __future__ import annotations

import zipfile
from typing import Any

import pytest

from klamm.broker.coordinator.group.offsets import CommittedOffset
from klamm.broker.coordinator.group.records import (
    ConsumerRecord,
    GroupRecord,
    OffsetRecord,
    decode,
    group_key,
    group_record,
    offset_key,
    offset_record,
)
from klamm.protocol.coordinator_records.group import (
    RECORDS,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
)
from klamm.protocol.wire import ZERO_UUID, Malformed
from tests.support.definitions import declared_layout, layout, parse_definition
from tests.support.jars import jar

COMMITTED = CommittedOffset(42, 7, "hi", 0x18BCFE56800, None, bytes(range(16)))

KEY = "0001 0001 67 0001 74 00000003"  # version, group "g", topic "t", partition
VALUES = {
    # version, offset, (leader epoch,) metadata "hi", commit timestamp, (expire timestamp)
    0: "0000 000000000000002a 0002 6869 0000018bcfe56800",
    1: "0001 000000000000002a 0002 6869 0000018bcfe56800 00000000000003e8",
    2: "0002 000000000000002a 0002 6869 0000018bcfe56800",
    3: "0003 000000000000002a 00000007 0002 6869 0000018bcfe56800",
    # compact string; one tagged field: tag 0, 16 bytes, the topic id
    4: "0004 000000000000002a 00000007 03 6869 0000018bcfe56800 01 00 10 000102030405060708090a0b0c0d0e0f",
}


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def test_a_commit_is_written_at_version_4() -> None:
    assert offset_record("g", "t", 3, COMMITTED) == (hexed(KEY), hexed(VALUES[4]))


def test_a_commit_with_an_expiry_is_written_at_version_1() -> None:
    assert offset_record("g", "t", 3, COMMITTED._replace(expire_timestamp_ms=1000)) == (hexed(KEY), hexed(VALUES[1]))


@pytest.mark.parametrize("version", VALUES)
@pytest.mark.parametrize("key_version", [0, 1])
def test_every_version_of_a_commit_is_read(version: int, key_version: int) -> None:
    expected = COMMITTED._replace(
        leader_epoch=7 if version >= 3 else -1,
        expire_timestamp_ms=1000 if version == 1 else None,
        topic_id=COMMITTED.topic_id if version == 4 else ZERO_UUID,
    )
    key = key_version.to_bytes(2, "big") + hexed(KEY)[2:]
    assert decode(key, hexed(VALUES[version])) == OffsetRecord("g", "t", 3, expected)


def test_a_group_is_written_at_version_3() -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"S",
        assignment=b"A",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=[member],
    )
    golden = (
        "0003 0008 636f6e73756d6572 00000002 0005 72616e6765 0001 6d 0000000000000009 00000001"  # down to the count
        "0001 6d 0001 69 0001 63 0002 2f68 00000005 00000006 00000001 53 00000001 41"
    )
    assert group_record("g", value) == (hexed("0002 0001 67"), hexed(golden))


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=2, protocol=None, leader=None, members=[MemberMetadata(member_id="m")]
    )
    record = decode(group_key("g"), encode_value(value, version))
    assert isinstance(record, GroupRecord) and record.value is not None
    assert (record.value.generation, record.value.members[0].member_id) == (2, "m")


def test_tombstones() -> None:
    assert decode(offset_key("g", "t", 3), None) == OffsetRecord("g", "t", 3, None)
    assert decode(group_key("g"), None) == GroupRecord("g", None)


def test_other_kinds_of_records_are_left_alone() -> None:
    assert decode(hexed("000b 0001 67"), b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\0", b""), (hexed("0001 0009 67"), b""), (hexed(KEY), hexed("0009")), (hexed(KEY), b"\0")],
)
def test_junk_is_malformed(key: bytes | None, value: bytes) -> None:
    with pytest.raises(Malformed):
        decode(key, value)


@pytest.mark.java
@pytest.mark.parametrize("ours", list(dict.fromkeys(one for both in RECORDS.values() for one in both)))
def test_the_layouts_are_those_of_kafkas_definitions(ours: Any) -> None:
    with zipfile.ZipFile(jar("broker", "kafka-group-coordinator-4")) as archive:
        text = archive.read(f"common/message/{ours.__name__}.json").decode()
    definition = parse_definition(text)
    assert definition.valid == ours.versions
    for version in range(ours.versions[0], ours.versions[1] + 1):
        assert declared_layout(ours, version) == layout(definition, version)


def test_a_member_of_the_consumer_protocol_says_so() -> None:
    """Kafka's default of the tagged field is an empty struct, so the null is written."""
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, client_id="c", client_host="h", subscribed_topic_regex=None,
        server_assignor=None, classic_member_metadata=None,
    )  # fmt: skip
    written = encode_value(value)
    assert written == hexed("0000 00 00 02 63 02 68 01 00 ffffffff 00 01 00 01 00")
    assert decode(encode_key(5, key), written) == ConsumerRecord(5, "g", "m", value)
