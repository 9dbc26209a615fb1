"""Request and response headers.

A request begins with its API key, version and correlation id; from header v1 the client id follows, whose length is
an int16 in every version (a broker must be able to read the header of an ApiVersions request that is newer than
itself); v2 belongs to the flexible versions and ends with tagged fields. A response header is the correlation id, in
v1 (flexible) with tagged fields after it; an ApiVersions response always has v0.

The connection reads key, version and correlation id with `REQUEST_PREFIX`, and the rest by hand with the functions
below, which cost a microsecond less than the declared messages; those are for clients and tests.
"""

from __future__ import annotations

import struct as struct_module

from klamm.protocol.schema import field, message
from klamm.protocol.wire import Buffer, Int16, Int32, Malformed, String, read_uvarint

REQUEST_PREFIX = struct_module.Struct(">hhi")  # API key, API version, correlation id
_API_VERSIONS = 18
_read_int16 = struct_module.Struct(">h").unpack_from
_pack_int32 = struct_module.Struct(">i").pack


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
    """The header's version for a request version that is flexible or not."""
    return 2 if flexible else 1


def response_header_version(api_key: int, *, flexible: bool) -> int:
    """The header's version for the response to such a request."""
    return 1 if flexible and api_key != _API_VERSIONS else 0


def decode_request_header(buf: Buffer, pos: int, flexible: bool) -> tuple[str | None, int]:
    """(client id, position of the body), read from `pos`, which is behind the correlation id. Raises Malformed."""
    try:
        (length,) = _read_int16(buf, pos)
        pos += 2
        client_id = None
        if length >= 0:
            after = pos + length
            if after > len(buf):
                raise Malformed("client id is longer than the frame")
            client_id = str(buf[pos:after], "utf-8", "replace")
            pos = after
        if flexible:
            tags = buf[pos]
            pos = pos + 1 if not tags else _skip_tags(buf, pos)
    except (struct_module.error, IndexError) as error:
        raise Malformed(f"request header: truncated: {error}") from error
    return client_id, pos


def _skip_tags(buf: Buffer, pos: int) -> int:
    tags, pos = read_uvarint(buf, pos)
    end = len(buf)
    if tags * 2 > end - pos:
        raise Malformed("request header: more tagged fields than bytes")
    for _ in range(tags):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise Malformed("request header: tagged field longer than the frame")
    return pos


def encode_response_header(out: bytearray, correlation_id: int, *, api_key: int, flexible: bool) -> bytearray:
    """Append the header of a response; `flexible` says whether the API version is."""
    out += _pack_int32(correlation_id)
    if flexible and api_key != _API_VERSIONS:
        out.append(0)
    return out
