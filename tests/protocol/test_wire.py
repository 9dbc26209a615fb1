from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.wire import ZERO_UUID, Malformed, put_uvarint, read_uvarint, uuid_from_text, uuid_to_text


@given(st.integers(0, 2**32 - 1))
def test_uvarint_round_trip(value: int) -> None:
    out = bytearray()
    put_uvarint(out, value)
    assert len(out) <= 5
    assert read_uvarint(memoryview(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_uvarint_bytes(value: int, data: str) -> None:
    out = bytearray()
    put_uvarint(out, value)
    assert out.hex() == data


def test_uvarint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(Malformed):
        read_uvarint(bytes.fromhex("ffffffffff01"), 0)


def test_uvarint_at_the_end_of_the_buffer() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\xff\xff", 0)


@given(st.binary(min_size=16, max_size=16))
def test_uuid_text_round_trip(value: bytes) -> None:
    text = uuid_to_text(value)
    assert len(text) == 22
    assert uuid_from_text(text) == value


def test_uuid_text_is_kafkas() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(bytes.fromhex("fbff" + "00" * 13 + "3e")) == "-_8AAAAAAAAAAAAAAAAAPg"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21, "A" * 24, "A" * 21 + "!", "é" * 22])
def test_what_is_not_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a uuid"):
        uuid_from_text(text)
