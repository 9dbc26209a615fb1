from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.protocol.headers import (
    MAX_HEADER_TAGS,
    REQUEST_PREFIX,
    RequestHeader,
    decode_request_header,
    request_header_version,
    response_header_version,
)
from klamm.protocol.wire import Malformed


def encode(header: RequestHeader, version: int) -> memoryview:
    return memoryview(bytes(RequestHeader.encode[version](header, bytearray())))


def decode(data: memoryview, *, flexible: bool) -> tuple[str | None, int]:
    return decode_request_header(data, REQUEST_PREFIX.unpack_from(data)[3], flexible=flexible)


@given(st.none() | st.text(max_size=40), st.booleans(), st.integers(-(2**31), 2**31 - 1))
def test_fast_decoding_equals_the_declared_header(client_id: str | None, flexible: bool, correlation_id: int) -> None:
    header = RequestHeader(request_api_key=3, request_api_version=9, correlation_id=correlation_id, client_id=client_id)
    data = encode(header, request_header_version(flexible=flexible))
    assert REQUEST_PREFIX.unpack_from(data, 0)[:3] == (3, 9, correlation_id)
    assert decode(data, flexible=flexible) == (client_id, len(data))


def test_client_id_has_a_two_byte_length_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="ab")
    assert encode(header, 2).hex() == "00120003000000070002616200"


def test_tagged_fields_of_the_header_are_skipped() -> None:
    data = memoryview(bytes(8) + bytes.fromhex("ffff020001aa810103bbbbbbcc"))
    assert decode(data, flexible=True) == (None, len(data) - 1)


def test_the_tagged_fields_of_the_header_are_bounded() -> None:
    field = b"\1\0"
    most = memoryview(bytes(8) + b"\xff\xff" + bytes([MAX_HEADER_TAGS]) + field * MAX_HEADER_TAGS)
    assert decode(most, flexible=True) == (None, len(most))
    more = memoryview(bytes(8) + b"\xff\xff" + bytes([MAX_HEADER_TAGS + 1]) + field * (MAX_HEADER_TAGS + 1))
    with pytest.raises(Malformed, match="101 tagged fields"):
        decode(more, flexible=True)


@given(st.binary(min_size=2, max_size=30), st.booleans())
def test_any_bytes_are_a_header_or_malformed(data: bytes, flexible: bool) -> None:
    try:
        _, pos = decode(memoryview(bytes(8) + data), flexible=flexible)
    except Malformed:
        return
    assert 8 < pos <= 8 + len(data)


@pytest.mark.parametrize("data", ["0005616263", "0000", "0000ff", "000001", "00000100", "0000010005aa"])
def test_truncated_header_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        decode(memoryview(bytes(8) + bytes.fromhex(data)), flexible=True)


@pytest.mark.parametrize(
    ("api_key", "flexible", "expected"), [(3, False, 0), (3, True, 1), (18, False, 0), (18, True, 0)]
)
def test_response_header(api_key: int, flexible: bool, expected: int) -> None:
    assert response_header_version(api_key, flexible=flexible) == expected
