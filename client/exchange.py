"""The exchange of requests and responses over one connection to one node, without any I/O.

Both clients are shells around `Exchange`. It encodes a request with its header, remembers it, cuts the received bytes
into frames and decodes them. A node answers in the order of the requests, so the requests in flight are a queue, and
the correlation id only proves that both sides agree. A Produce with acks=0 is never answered and never enters the
queue.

Versions: `learn_versions` takes the node's ApiVersions response; then `choose_version` returns the highest version that
both sides have. An ApiVersions request in a version that the node does not know is answered in v0 (KIP-511), and
every ApiVersions response has a v0 header.

A caller may also send bytes of its own (`expect_frame`): the next frame is then returned undecoded.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from klamm import __version__
from klamm.client.errors import ClientError, NoCommonVersion, UnexpectedResponse
from klamm.protocol.apis import API, ApiKey, response_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.framing import SIZE, FrameBuffer, FrameError, Scratch
from klamm.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from klamm.protocol.messages.api_versions import ApiVersionsRequest
from klamm.protocol.schema import Message
from klamm.protocol.wire import Malformed

UNKNOWN_API_VERSIONS_VERSION = struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)  # first field of the response
MAX_FRAME_BYTES = 512 * 1024 * 1024
MAX_IN_FLIGHT = 1000
READ_BYTES = 64 * 1024
CORRELATION_IDS = 2**31


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in flight; `api_key` None stands for raw bytes."""

    correlation_id: int
    api_key: int | None
    version: int


@dataclass(frozen=True, slots=True)
class Request:
    """An encoded request: all its bytes, size prefix included, and whether a response will come."""

    frame: bytearray
    answered: bool


class Exchange:
    """The state of one connection. Do not use it after it raised UnexpectedResponse."""

    def __init__(
        self, client_id: str | None, *, max_frame_bytes: int = MAX_FRAME_BYTES, max_in_flight: int = MAX_IN_FLIGHT
    ) -> None:
        self.client_id = client_id
        self.node_versions: Mapping[int, tuple[int, int]] | None = None
        self.max_in_flight = max_in_flight
        self.buffer = FrameBuffer(Scratch(READ_BYTES), max_frame_bytes)
        self._in_flight: deque[Asked] = deque()
        self._next_correlation_id = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def request(self, message: Any, version: int) -> Request:
        """Encode a request and expect its response, if it has one.

        Raises ClientError when `max_in_flight` have no response yet, NoCommonVersion, and the encoder's NotEncodable.
        """
        self._check_room()
        cls = as_message(type(message))
        api_key = cls.api_key
        assert cls.kind == "request" and api_key is not None, f"{cls.__name__} is not a request"
        if not cls.versions[0] <= version <= cls.versions[1]:
            raise NoCommonVersion(f"{cls.__name__} has versions {cls.versions[0]}-{cls.versions[1]}, not {version}")
        correlation_id = self._next_correlation_id
        frame = bytearray(SIZE.size)
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=self.client_id,
        )
        as_message(RequestHeader).encode[request_header_version(flexible=_flexible(cls, version))](header, frame)
        cls.encode[version](message, frame)
        SIZE.pack_into(frame, 0, len(frame) - SIZE.size)
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_IDS
        answered = not (api_key == ApiKey.PRODUCE and message.acks == 0)
        if answered:
            self._in_flight.append(Asked(correlation_id, api_key, version))
        return Request(frame, answered)

    def expect_frame(self) -> None:
        """Expect a frame that answers raw bytes, to be returned undecoded."""
        self._check_room()
        self._in_flight.append(Asked(-1, None, -1))

    def next_response(self) -> Any | None:
        """Return the next response in the buffer, None if it is not complete; `bytes` after `expect_frame`.

        Raises UnexpectedResponse.
        """
        try:
            frame = self.buffer.next_frame()
        except FrameError as error:
            raise UnexpectedResponse(str(error)) from error
        if frame is None:
            self.buffer.settle()
            return None
        return self.response(bytes(frame))  # record data in the response refers to it after the buffer is used again

    def response(self, frame: bytes | memoryview) -> Any:
        """Decode the next response from a frame that was not read through `buffer`; its record data refers to `frame`.

        Raises UnexpectedResponse.
        """
        if not self._in_flight:
            raise UnexpectedResponse(f"a frame of {len(frame)} bytes answers no request")
        asked = self._in_flight.popleft()
        if asked.api_key is None:
            return frame
        try:
            return decode_response(frame, asked)
        except Malformed as error:
            api = API[asked.api_key].name
            raise UnexpectedResponse(f"not a {api} response v{asked.version}: {error}") from error

    def _check_room(self) -> None:
        if len(self._in_flight) >= self.max_in_flight:
            raise ClientError(f"{len(self._in_flight)} requests without a response, which is the limit")

    def versions_request(self) -> tuple[ApiVersionsRequest, int]:
        """Return the request for the node's versions, and the version to try first."""
        question = ApiVersionsRequest(client_software_name="klamm", client_software_version=__version__)
        return question, as_message(ApiVersionsRequest).versions[1]

    def learn_versions(self, response: Any, asked_version: int) -> int | None:
        """Record the node's versions; return None, or the version to ask with again if the node does not know this one.

        Raises NoCommonVersion when the node refuses for another reason, or refuses a version that it claims to know.
        """
        ranges = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
        if response.error_code == ErrorCode.NONE:
            self.node_versions = ranges
            return None
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            version = _highest_common(ApiVersionsRequest, ranges.get(ApiKey.API_VERSIONS, (0, 0)))
            if version < asked_version:
                return version
        raise NoCommonVersion(f"the node refused ApiVersions v{asked_version} with error {response.error_code}")

    def choose_version(self, request: type[Any]) -> int:
        """Return the highest version of a request class that both sides have, after `learn_versions`.

        Raises NoCommonVersion.
        """
        assert self.node_versions is not None, "the node's versions are not known yet"
        key = as_message(request).api_key
        assert key is not None
        if key not in self.node_versions:
            raise NoCommonVersion(f"the node does not have {request.__name__}")
        return _highest_common(request, self.node_versions[key])


def decode_response(frame: bytes | memoryview, asked: Asked) -> Any:
    """Decode the response in a frame, header included. Raises UnexpectedResponse and Malformed."""
    assert asked.api_key is not None
    version, cls = asked.version, response_class(asked.api_key)
    header_version = response_header_version(asked.api_key, flexible=_flexible(cls, version))
    header, position = as_message(ResponseHeader).decode[header_version](frame)
    if header.correlation_id != asked.correlation_id:
        raise UnexpectedResponse(f"correlation id {header.correlation_id} instead of {asked.correlation_id}")
    if asked.api_key == ApiKey.API_VERSIONS and frame[position : position + 2] == UNKNOWN_API_VERSIONS_VERSION:
        version = 0
    return cls.decode[version](frame, position)[0]


def as_message(cls: type[Any]) -> type[Message]:
    """Return a class as the message that the decorator made of it, which type checkers cannot see."""
    assert issubclass(cls, Message)
    return cls


def _flexible(cls: type[Message], version: int) -> bool:
    return cls.flexible[0] <= version <= cls.flexible[1]


def _highest_common(request: type[Any], node: tuple[int, int]) -> int:
    ours = as_message(request).versions
    version = min(ours[1], node[1])
    if version < max(ours[0], node[0]):
        raise NoCommonVersion(
            f"{request.__name__}: the node has versions {node[0]}-{node[1]}, this client {ours[0]}-{ours[1]}"
        )
    return version
