"""Requests and answers of a login as bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

from klamm.protocol.apis import API, response_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.headers import REQUEST_PREFIX, decode_request_header, response_header_version
from klamm.protocol.wire import Malformed, NotEncodable

SIZE = struct.Struct(">i")
HEAD = struct.Struct(">ii")  # size (without itself), correlation_id
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of which the part of the header with a fixed size was read."""

    api_key: int
    version: int
    correlation_id: int
    client_id_size: int
    frame: memoryview

    @property
    def name(self) -> str:
        info = API.get(self.api_key)
        return info.name if info is not None else f"API {self.api_key}"

    @property
    def is_flexible(self) -> bool:
        first = API[self.api_key].first_flexible_version
        return first is not None and self.version >= first

    @property
    def is_known(self) -> bool:
        info = API.get(self.api_key)
        return info is not None and info.min_version <= self.version <= info.max_version

    def body(self, cls: type[T]) -> T:
        """Decode the body. Raises Malformed."""
        if not self.is_known:
            raise Malformed(f"{self.name} v{self.version} is not served")
        try:
            _, position = decode_request_header(self.frame, self.client_id_size, flexible=self.is_flexible)
            message: T = cls.decode[self.version](self.frame, position)[0]  # type: ignore[attr-defined]
        except IndexError:
            raise Malformed(f"{self.name} v{self.version} ends too soon") from None
        return message


def asked_in(frame: memoryview) -> Asked:
    """Return the request in a frame. Raises Malformed for what has no header."""
    try:
        api_key, version, correlation_id, client_id_size = REQUEST_PREFIX.unpack_from(frame)
    except struct.error:
        raise Malformed(f"{len(frame)} bytes are no Kafka request") from None
    return Asked(api_key, version, correlation_id, client_id_size, frame)


def answer(asked: Asked, response: Any) -> bytes:
    """Return the frame of a response. Raises NotEncodable."""
    out = bytearray(HEAD.pack(0, asked.correlation_id))
    if response_header_version(asked.api_key, flexible=asked.is_flexible):
        out.append(0)
    type(response).encode[asked.version](response, out)
    SIZE.pack_into(out, 0, len(out) - SIZE.size)
    return bytes(out)


def error_answer(asked: Asked, code: ErrorCode, text: str) -> bytes | None:
    """Return a response that says `code` where it has a place for it; None when the request has no response."""
    if not asked.is_known:
        return None
    response: Any = response_class(asked.api_key)()
    if hasattr(response, "error_code"):
        response.error_code = int(code)
    if hasattr(response, "error_message"):
        response.error_message = text
    try:
        return answer(asked, response)
    except NotEncodable:
        return None


def raw_answer(token: bytes) -> bytes:
    """Return a token as a frame of its own."""
    return SIZE.pack(len(token)) + token
