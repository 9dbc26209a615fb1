"""Request and response headers.

A request begins with its API key, version and correlation id. From header v1 on the client id follows, with an int16
length in every version (a broker must be able to read the header of an ApiVersions request newer than itself). v2
belongs to the flexible versions and ends with tagged fields. A response header is the correlation id, in v1 (flexible)
with tagged fields after it; an ApiVersions response always has v0.

A broker reads the fixed-size part with `REQUEST_PREFIX`, and the rest with `decode_request_header`, which takes a
microsecond less than the declared messages. Those are for clients and tests.
"""

from __future__ import annotations

import struct

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Buffer, Int16, Int32, Malformed, String, read_uvarint

REQUEST_PREFIX = struct.Struct(">hhih")  # API key, API version, correlation id, length of the client id (-1: null)
MAX_HEADER_TAGS = 100
_API_VERSIONS = 18
_PREFIX_BYTES = REQUEST_PREFIX.size


@message(kind="header", versions="0-2", flexible="2+")
class RequestHeader:
    request_api_key: Int16 = field()
    request_api_version: Int16 = field()
    correlation_id: Int32 = field()
    client_id: String | None = field("1+", nullable="1+", ignorable=True, flexible="none")


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader:
    correlation_id: Int32 = field()


def request_header_version(*, flexible: bool) -> int:
    """Return the header's version for a request version that is flexible or not."""
    return 2 if flexible else 1


def response_header_version(api_key: int, *, flexible: bool) -> int:
    """Return the header's version for the response to such a request."""
    return 1 if flexible and api_key != _API_VERSIONS else 0


def decode_request_header(frame: Buffer, client_id_size: int, *, flexible: bool) -> tuple[str | None, int]:
    """Return the client id and the position of the body, given what `REQUEST_PREFIX` has read. Raises Malformed."""
    if client_id_size >= 0:
        pos = _PREFIX_BYTES + client_id_size
        if pos > len(frame):
            raise Malformed("the client id is longer than the request")
        client_id = str(frame[_PREFIX_BYTES:pos], "utf-8", "replace")
    else:
        client_id = None
        pos = _PREFIX_BYTES
    if not flexible:
        return client_id, pos
    try:
        return client_id, pos + 1 if not frame[pos] else _skip_tags(frame, pos)
    except IndexError:
        raise Malformed("the request ends in its header") from None


def _skip_tags(frame: Buffer, pos: int) -> int:
    """Return the position after the tagged fields: this broker knows none."""
    count, pos = read_uvarint(frame, pos)
    if count > MAX_HEADER_TAGS:
        raise Malformed(f"{count} tagged fields in the header, at most {MAX_HEADER_TAGS} are read")
    for _ in range(count):
        _, pos = read_uvarint(frame, pos)
        size, pos = read_uvarint(frame, pos)
        pos += size
        if pos > len(frame):
            raise Malformed("a tagged field of the header is longer than the frame")
    return pos
