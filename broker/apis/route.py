"""The codecs and the handler of one API at one version, and a response as the bytes that go out."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from klamm.broker.apis.registry import HANDLERS
from klamm.broker.network.response import CloseConnection, Response
from klamm.protocol.apis import API, request_class, response_class
from klamm.protocol.errors import KafkaError
from klamm.protocol.headers import response_header_version

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.security.authorizer.audit import AuditLog
    from klamm.broker.security.authorizer.standard import StandardAuthorizer
    from klamm.protocol.regions import FileRegion

RESPONSE_HEADER = struct.Struct(">ii")  # size (without itself), correlation_id
SIZE = struct.Struct(">i")


class Route:
    """The codecs and the handler of one API at one version."""

    __slots__ = (
        "api_key",
        "decode",
        "encode",
        "error_response",
        "flexible_request",
        "flexible_response",
        "handle",
        "handle_large",
        "memoize",
        "name",
        "response_type",
    )

    def __init__(self, api_key: int, version: int) -> None:
        info = API[api_key]
        module = importlib.import_module("klamm.broker.apis." + HANDLERS[api_key].module)
        flexible = info.first_flexible_version is not None and version >= info.first_flexible_version
        self.api_key = api_key
        self.name = info.name
        self.flexible_request = flexible
        self.flexible_response = response_header_version(api_key, flexible=flexible) > 0
        self.response_type: type[Any] = response_class(api_key)
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = request_class(api_key).decode[version]
        self.encode: Callable[..., bytearray] = self.response_type.encode[version]
        self.handle: Callable[[Broker, RequestContext, Any], Any] = module.handle
        self.handle_large: Callable[[Broker, RequestContext, Any], Awaitable[Any]] | None = getattr(
            module, "handle_large", None
        )
        self.memoize: Callable[[Broker, RequestContext, Any, Any, memoryview, int], None] | None = getattr(
            module, "memoize", None
        )
        self.error_response: Callable[[Any, KafkaError, int], Any] | None = getattr(module, "error_response", None)

    def guard(self, authorizer: StandardAuthorizer, audit: AuditLog) -> Route:
        """Have only those requests handled that their clients have the rights to."""
        from klamm.broker.apis.rights import guards

        arguments = (HANDLERS[self.api_key].rights, self.name, self.refuse, authorizer, audit)
        self.handle = guards.guarded(self.handle, *arguments)
        if self.handle_large is not None:
            self.handle_large = guards.guarded_large(self.handle_large, *arguments)
        return self

    def refuse(self, request: Any, error: KafkaError, version: int) -> Any:
        """The error in place of an answer."""
        if self.error_response is not None:
            return self.error_response(request, error, version)
        response = self.response_type()
        if not hasattr(response, "error_code"):
            raise CloseConnection(f"{self.name} has no place for an error: {error.code.name} {error.message}")
        response.error_code = int(error.code)
        if hasattr(response, "error_message"):
            response.error_message = error.message or None
        return response


def encode_reply(route: Route, correlation_id: int, response: Any) -> tuple[Response, int]:
    """The reply, and its size in bytes with its regions."""
    head = bytearray(RESPONSE_HEADER.pack(0, correlation_id))
    if route.flexible_response:
        head.append(0)
    regions: list[tuple[int, FileRegion]] = []
    route.encode(response, head, regions)
    size = len(head)
    for _, region in regions:
        size += region.size
    SIZE.pack_into(head, 0, size - 4)
    return Response(head, regions or None), size
