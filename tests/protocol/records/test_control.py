"""End transaction markers: their bytes, and what else a control batch may hold."""

from __future__ import annotations

import pytest

from klamm.protocol.errors import InvalidRecord
from klamm.protocol.records.batch import Record, crc_is_valid, encode_batch, read_header
from klamm.protocol.records.control import EndMarker, end_marker_batch, read_end_marker

GOLDEN = bytes.fromhex(
    "0000000000000000 00000042 ffffffff 02"  # base offset, length, leader epoch, magic
    "c60df61d"  # crc32c of what follows
    "0030"  # attributes: transactional, control
    "00000000 0000018bcfe56800 0000018bcfe56800"  # last offset delta, base and max timestamp
    "0000000000000007 0003 ffffffff 00000001"  # producer id and epoch, no sequence, one record
    "20 00 00 00"  # length 16, attributes, timestamp delta, offset delta
    "08 0000 0001"  # key: version 0, COMMIT
    "0c 0000 00000005"  # value: version 0, coordinator epoch 5
    "00"  # no headers
)


def marker(**given: int) -> bytearray:
    return end_marker_batch(
        7, 3, is_commit=bool(given.get("commit", 1)), coordinator_epoch=5, timestamp=1_700_000_000_000
    )


def test_a_commit_marker() -> None:
    data = marker()
    assert data == GOLDEN
    header = read_header(data)
    assert crc_is_valid(data, header)
    assert read_end_marker(data, header) == EndMarker(True, 5, 1_700_000_000_000)
    assert read_end_marker(b"...." + data, header, 4) == EndMarker(True, 5, 1_700_000_000_000)


def test_an_abort_marker() -> None:
    data = marker(commit=0)
    assert read_end_marker(data, read_header(data)) == EndMarker(False, 5, 1_700_000_000_000)


def control(key: bytes | None, value: bytes | None = b"\0\0\0\0\0\1") -> bytearray:
    return encode_batch([Record(0, 1, key, value)], control=True, producer_id=7, producer_epoch=0)


def test_others_say_nothing_of_transactions() -> None:
    leader_change = control(b"\0\0\0\2")
    assert read_end_marker(leader_change, read_header(leader_change)) is None
    empty = encode_batch([], base_offset=4, last_offset=4, control=True, producer_id=7, producer_epoch=0)
    assert read_end_marker(empty, read_header(empty)) is None


def test_newer_versions_are_read_as_far_as_they_are_known() -> None:
    data = control(b"\0\1\0\0and more", b"\0\1\0\0\0\4and more")
    assert read_end_marker(data, read_header(data)) == EndMarker(False, 4, 1)


@pytest.mark.parametrize(
    "data",
    [
        control(None),
        control(b"\0\0\0"),
        control(b"\xff\xff\0\1"),
        control(b"\0\0\0\1", b"\0"),
        control(b"\0\0\0\1", None),
    ],
)
def test_what_is_no_marker(data: bytearray) -> None:
    with pytest.raises(InvalidRecord):
        read_end_marker(data, read_header(data))
