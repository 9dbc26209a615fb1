"""Raw bytes to a broker and its answers, without a client in between.

`Wire` is one connection; `Peer` keeps one open and makes a new one whenever the broker closes it, which is an answer,
too (CLOSED).
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, Self

from klamm.protocol.apis import API, ApiKey, response_class
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.records.batch import HEADER, Record, encode_batch, seal

CLOSED = "closed"
SILENT = "no answer"
ANSWERED = "answered"

CORRELATION_ID = 7
HEAD = struct.Struct(">hhih")
SIZE = struct.Struct(">i")
BATCH_FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp",
    "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip


def is_flexible(api_key: int, version: int) -> bool:
    first = API[api_key].first_flexible_version
    return first is not None and version >= first


def header(api_key: int, version: int, *, client_id: bytes | None = b"test", flexible: bool | None = None) -> bytes:
    """A request header; `flexible` is by default what the version says."""
    if flexible is None:
        flexible = api_key in API and is_flexible(api_key, version)
    size = -1 if client_id is None else len(client_id)
    return HEAD.pack(api_key, version, CORRELATION_ID, size) + (client_id or b"") + (b"\0" if flexible else b"")


def sized(payload: bytes) -> bytes:
    """A frame: the size, then the payload."""
    return SIZE.pack(len(payload)) + payload


def payload_of(request: Any, version: int, *, client_id: bytes | None = b"test") -> bytes:
    """Header and body of a request."""
    out = bytearray(header(request.api_key, version, client_id=client_id))
    type(request).encode[version](request, out)
    return bytes(out)


def frame_of(request: Any, version: int, *, client_id: bytes | None = b"test") -> bytes:
    return sized(payload_of(request, version, client_id=client_id))


def decoded(payload: bytes, api_key: int, version: int) -> Any:
    """The response in a frame's payload."""
    position = 5 if is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS else 4
    response, end = response_class(api_key).decode[version](memoryview(payload), position)
    assert end == len(payload), f"{len(payload) - end} bytes too many"
    return response


def batch(*values: bytes, timestamp: int, key: bytes | None = b"k", **options: Any) -> bytearray:
    """One record batch with these values."""
    return encode_batch([Record(offset, timestamp, key, value) for offset, value in enumerate(values)], **options)


def patched(batch: bytes | bytearray, *, sealed: bool = True, **fields: int) -> bytearray:
    """The batch with header fields changed; its CRC is made right again if `sealed`."""
    out = bytearray(batch)
    values = list(HEADER.unpack_from(out))
    for name, value in fields.items():
        values[BATCH_FIELDS.index(name)] = value
    HEADER.pack_into(out, 0, *values)
    if sealed:
        seal(out)
    return out


class Wire:
    """One connection, without any protocol but the frames."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = bytearray()

    def send(self, data: bytes) -> None:
        """Send; a broker that has closed already is noticed by `receive`."""
        with suppress(ConnectionResetError, BrokenPipeError):
            self.socket.sendall(data)

    def half_close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def receive(self) -> bytes | str:
        """The payload of the next frame, CLOSED or SILENT."""
        rest = self._rest
        try:
            while len(rest) < 4 or len(rest) < 4 + SIZE.unpack_from(rest)[0]:
                data = self.socket.recv(1 << 16)
                if not data:
                    return CLOSED
                rest += data
        except ConnectionResetError:
            return CLOSED
        except TimeoutError:
            return SILENT
        size = SIZE.unpack_from(rest)[0]
        payload = bytes(rest[4 : 4 + size])
        del rest[: 4 + size]
        return payload

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Peer:
    """A broker at a port, asked over a connection that is made again whenever it is closed."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self.port = port
        self.timeout_s = timeout_s
        self._wire: Wire | None = None

    def raw(self, data: bytes, *, half_close: bool = False) -> bytes | str:
        """Send bytes unchanged; return the first frame that comes back, or CLOSED."""
        wire = self._wire
        if wire is None:
            wire = self._wire = Wire(self.port, self.timeout_s)
        wire.send(data)
        if half_close:
            wire.half_close()
        answer = wire.receive()
        if isinstance(answer, str) or half_close:
            self.close()
        return answer

    def payload(self, payload: bytes, **options: bool) -> bytes | str:
        return self.raw(sized(payload), **options)

    def answered(self, payload: bytes) -> str:
        """ANSWERED (with our correlation id), CLOSED or SILENT."""
        answer = self.payload(payload)
        if isinstance(answer, str):
            return answer
        assert SIZE.unpack_from(answer)[0] == CORRELATION_ID
        return ANSWERED

    def ask(self, request: Any, version: int, *, client_id: bytes | None = b"test") -> Any:
        """The decoded response, CLOSED or SILENT."""
        answer = self.payload(payload_of(request, version, client_id=client_id))
        return answer if isinstance(answer, str) else decoded(answer, request.api_key, version)

    def serves_the_next_client(self) -> bool:
        """Check that a new connection gets an answer."""
        with Wire(self.port, self.timeout_s) as wire:
            wire.send(frame_of(ApiVersionsRequest(), 0))
            answer = wire.receive()
            return not isinstance(answer, str) and decoded(answer, 18, 0).error_code == 0

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
