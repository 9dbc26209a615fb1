"""The sans-IO half of the clients."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.client.errors import ClientError, NoCommonVersion, UnexpectedResponse
from klamm.client.exchange import Exchange
from klamm.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.produce import ProduceRequest

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def feed(exchange: Exchange, data: bytes) -> list[Any]:
    """All responses in the order they become complete."""
    found = []
    while True:
        while (response := exchange.next_response()) is not None:
            found.append(response)
        if not data:
            return found
        view = exchange.buffer.writable()
        size = min(len(view), len(data))
        view[:size] = data[:size]
        exchange.buffer.received(size)
        data = data[size:]


def learned(**ranges: tuple[int, int]) -> Exchange:
    exchange = Exchange("c")
    keys = [ApiVersion(api_key=int(key[1:]), min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    assert exchange.learn_versions(ApiVersionsResponse(api_keys=keys), 3) is None
    return exchange


def test_a_request_has_size_header_and_body() -> None:
    expected = bytes.fromhex(
        "00000016"  # size
        "000c 0000 00000000"  # Heartbeat v0, correlation id 0
        "0002 6d65"  # client id "me"
        "0001 67 00000007 0001 6d"  # group, generation, member
    )
    assert Exchange("me").request(HEARTBEAT, 0).frame == bytes(expected)


def test_a_flexible_request_has_a_tag_section_and_no_compact_client_id() -> None:
    expected = bytes.fromhex(
        "00000017"
        "000c 0004 00000000"  # Heartbeat v4
        "0002 6d65 00"  # client id "me", no tags
        "02 67 00000007 02 6d 00 00"  # group, generation, member, no instance, no tags
    )
    assert Exchange("me").request(HEARTBEAT, 4).frame == expected


def test_a_missing_client_id_is_null() -> None:
    assert Exchange(None).request(HEARTBEAT, 0).frame[12:14] == b"\xff\xff"


def test_correlation_ids_count_up() -> None:
    exchange = Exchange("c")
    ids = [struct.unpack_from(">i", exchange.request(HEARTBEAT, 0).frame, 8)[0] for _ in range(3)]
    assert ids == [0, 1, 2]


@given(st.lists(st.integers(1, 40), max_size=10))
def test_responses_come_whole_however_the_bytes_are_cut(sizes: list[int]) -> None:
    exchange = Exchange("c")
    data = b""
    for correlation_id, version in enumerate((0, 4, 1)):
        exchange.request(HEARTBEAT, version)
        body = HeartbeatResponse.encode[version](HeartbeatResponse(error_code=correlation_id), bytearray())
        data += frame(struct.pack(">i", correlation_id) + (b"\0" if version == 4 else b"") + body)
    found = []
    for size in sizes:
        found += feed(exchange, data[:size])
        data = data[size:]
    found += feed(exchange, data)
    assert [response.error_code for response in found] == [0, 1, 2]
    assert exchange.in_flight == 0


def test_tagged_fields_of_the_response_header_are_skipped() -> None:
    exchange = Exchange("c")
    exchange.request(HEARTBEAT, 4)
    body = HeartbeatResponse.encode[4](HeartbeatResponse(error_code=27), bytearray())
    (response,) = feed(exchange, frame(b"\0\0\0\0" + b"\x02\x00\x01x\x05\x02yz" + body))
    assert response.error_code == 27


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"\0\0", "ResponseHeader"),
        (b"\0\0\0\5" + b"\0" * 7, "correlation id 5 instead of 0"),
        (b"\0\0\0\0" + b"\0\0", "HeartbeatResponse"),
        (b"\0\0\0\0" + b"\x01", "ResponseHeader"),
        (b"\0\0\0\0" + b"\x01\0\x7f", "ResponseHeader"),
    ],
)
def test_a_response_that_is_none_is_refused(payload: bytes, complaint: str) -> None:
    exchange = Exchange("c")
    exchange.request(HEARTBEAT, 4)
    with pytest.raises(UnexpectedResponse, match=complaint):
        feed(exchange, frame(payload))


def test_a_frame_without_a_request_is_refused() -> None:
    with pytest.raises(UnexpectedResponse, match="answers no request"):
        feed(Exchange("c"), frame(b"\0\0\0\0"))


def test_a_frame_above_the_limit_is_refused() -> None:
    exchange = Exchange("c", max_frame_bytes=10)
    exchange.request(HEARTBEAT, 0)
    with pytest.raises(UnexpectedResponse, match="11"):
        feed(exchange, frame(b"\0" * 11))


def test_a_raw_frame_keeps_its_place_in_the_queue() -> None:
    exchange = Exchange("c")
    exchange.request(HEARTBEAT, 0)
    exchange.expect_frame()
    assert feed(exchange, frame(b"\0\0\0\0\0\0") + frame(b"anything"))[1] == b"anything"


def test_produce_without_acks_is_not_waited_for() -> None:
    exchange = Exchange("c")
    assert not exchange.request(ProduceRequest(acks=0), 9).answered
    assert exchange.in_flight == 0
    assert exchange.request(ProduceRequest(acks=1), 9).answered
    assert exchange.in_flight == 1


def test_requests_in_flight_are_limited() -> None:
    exchange = Exchange("c", max_in_flight=2)
    exchange.request(HEARTBEAT, 0)
    exchange.request(HEARTBEAT, 0)
    with pytest.raises(ClientError, match="limit"):
        exchange.request(HEARTBEAT, 0)


def test_a_version_that_the_message_does_not_have_is_refused_and_not_counted() -> None:
    exchange = Exchange("c")
    with pytest.raises(NoCommonVersion, match="0-4, not 5"):
        exchange.request(HEARTBEAT, 5)
    assert exchange.in_flight == 0


def test_the_highest_common_version_is_chosen() -> None:
    assert learned(k12=(0, 2)).choose_version(HeartbeatRequest) == 2
    assert learned(k12=(1, 9)).choose_version(HeartbeatRequest) == 4


@pytest.mark.parametrize("exchange", [learned(k3=(0, 2)), learned(k12=(5, 9))])
def test_no_common_version_is_an_error(exchange: Exchange) -> None:
    with pytest.raises(NoCommonVersion, match="HeartbeatRequest"):
        exchange.choose_version(HeartbeatRequest)


def test_an_unknown_api_versions_version_is_answered_in_v0_and_asked_again() -> None:
    exchange = Exchange("c")
    exchange.request(*exchange.versions_request())
    refusal = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)])
    (response,) = feed(exchange, frame(b"\0\0\0\0" + ApiVersionsResponse.encode[0](refusal, bytearray())))
    assert exchange.learn_versions(response, 4) == 2


def test_versions_are_asked_again_with_v0_when_the_node_tells_no_range() -> None:
    assert Exchange("c").learn_versions(ApiVersionsResponse(error_code=35), 4) == 0


@pytest.mark.parametrize(("error_code", "asked_version"), [(42, 4), (35, 0)])
def test_a_node_that_refuses_to_tell_versions_is_an_error(error_code: int, asked_version: int) -> None:
    with pytest.raises(NoCommonVersion, match=str(error_code)):
        Exchange("c").learn_versions(ApiVersionsResponse(error_code=error_code), asked_version)
