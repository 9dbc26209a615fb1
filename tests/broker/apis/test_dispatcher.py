"""The dispatcher closes on what it cannot read, and turns every failure into one kind of answer."""

from __future__ import annotations

import struct

import pytest

from klamm.broker.apis import create_partitions, metadata
from klamm.broker.network.response import CloseConnection
from klamm.protocol.errors import ErrorCode
from klamm.protocol.messages.create_partitions import CreatePartitionsRequest
from klamm.protocol.messages.metadata import MetadataRequest
from tests.support.embedded import EmbeddedBroker, encode_frame


def header(api_key: int, version: int, client_id_size: int = -1) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, client_id_size)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "header"),
        (b"abc", "header"),
        (header(9999, 0), "9999"),
        (header(-1, 0), "-1"),
        (header(52, 0), "52"),
        (header(5, 0), "5"),
        (header(3, 99), "v99"),
        (header(3, -1), "v-1"),
        (header(3, 9), "does not decode"),
        (header(3, 9, 500), "client id"),
        (header(3, 1) + b"\x7f\xff\xff\xff", "does not decode"),
        (header(18, 3) + b"\x01\x01\x7f" + b"x" * 10, "does not decode"),
    ],
)
def test_what_cannot_be_read_closes_the_connection(broker: EmbeddedBroker, frame: bytes, reason: str) -> None:
    with pytest.raises(CloseConnection, match=reason):
        broker.dispatch(frame)


def test_bytes_after_the_request_are_ignored(broker: EmbeddedBroker) -> None:
    frame = bytes(encode_frame(MetadataRequest(topics=[]), 9))
    assert broker.dispatch(frame + b"junk") is not None


def test_tags_of_the_request_header_are_skipped(broker: EmbeddedBroker) -> None:
    frame = bytes(encode_frame(MetadataRequest(topics=[]), 9, client_id=None))
    assert frame[10] == 0
    assert broker.dispatch(frame[:10] + b"\x01\x05\x02ab" + frame[11:]) is not None


def test_a_failing_handler_is_an_unknown_server_error(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(metadata, "handle", fail)
    response = broker.call(MetadataRequest(topics=[]), 13)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a bug" in caplog.text


def test_a_failure_without_a_place_for_it_closes_the_connection(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(create_partitions, "handle", fail)
    monkeypatch.delattr(create_partitions, "error_response", raising=False)
    with pytest.raises(CloseConnection, match="no place"):
        broker.call(CreatePartitionsRequest(topics=[], timeout_ms=1000), 3)
