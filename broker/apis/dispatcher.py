"""The dispatcher, from a frame to a response: decodes the header and the request, calls the handler, encodes its
result.

One route per (API, version) is resolved on first use and kept; after that a request costs one dict lookup, two compiled
codecs and the handler. A handler that has its response returns it. A handler that must wait returns an awaitable, and
the connection keeps the request's place in the order of responses.

A large request, with more than `SMALL_ELEMENTS`, would hold the loop for too long: a thread decodes it, it is handled
in pieces (`pieces`), each in a turn of its own (`Turns`), and the thread encodes its response. Beyond
`klamm.request.max.elements` the connection is closed.

Bad input (docs/faults.md, network rows 2-8) closes the connection: an unknown API or version, a header or body that
does not decode. Only ApiVersions answers an unknown version, with the bytes of version 0.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any

from klamm.broker.apis.pieces import cut, join, paths_of
from klamm.broker.apis.registry import HANDLERS
from klamm.broker.apis.route import Route, encode_reply
from klamm.broker.network.deferred import Deferred
from klamm.broker.network.response import (
    CloseConnection,
    DispatchResult,
    PendingResponse,
    Response,
    reply_before_others,
)
from klamm.protocol.apis import API, ApiKey
from klamm.protocol.errors import ErrorCode, KafkaError
from klamm.protocol.headers import REQUEST_PREFIX, decode_request_header
from klamm.protocol.wire import Malformed, TooManyElements

if TYPE_CHECKING:
    from klamm.broker.apis.rights.asker import Asker
    from klamm.broker.broker import Broker
    from klamm.broker.network.connection import Connection
    from klamm.broker.quotas.charge import Charge
    from klamm.broker.quotas.client_quotas import ClientQuotas

log = logging.getLogger(__name__)

PRODUCE_KEY = struct.pack(">h", ApiKey.PRODUCE)
WARM = (
    (ApiKey.API_VERSIONS, 3),
    (ApiKey.METADATA, 12),
    (ApiKey.PRODUCE, 9),
    (ApiKey.FETCH, 12),
    (ApiKey.PRODUCE, 13),
    (ApiKey.FETCH, 17),
    (ApiKey.API_VERSIONS, 4),
    (ApiKey.METADATA, 13),
    (ApiKey.LIST_OFFSETS, 7),
    (ApiKey.LIST_OFFSETS, 10),
    (ApiKey.INIT_PRODUCER_ID, 4),
    (ApiKey.INIT_PRODUCER_ID, 5),
)
WARM_PAUSE_S = 0.005
SMALL_ELEMENTS = 1000  # larger requests are not decoded, handled and encoded at once


class RequestContext:
    """The facts of a request besides its body. `seen` has the keys that were answered (`common.unseen`). `ask` checks
    the rights of its client; it is not set without an authorizer. `charge` is set if its client has a quota."""

    __slots__ = ("api_key", "api_version", "ask", "charge", "client_id", "connection", "correlation_id", "seen")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, connection: Connection
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.seen: set[Hashable]  # set on first use
        self.ask: Asker  # set by a guard
        self.client_id = client_id
        self.connection = connection
        self.charge: Charge | None = None


class Dispatcher:
    """The dispatcher of a broker. Connections call it for every frame, in the order of arrival."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[int, Route] = {}
        self._metrics = broker.metrics
        self._tasks: set[asyncio.Task[Response | None]] = set()
        self._charging: Any = None  # the module, once there are quotas

    def __call__(self, connection: Connection, frame: memoryview) -> DispatchResult:
        started = time.perf_counter()
        memo = connection.memo
        if memo is not None and (encoded := memo.answer(connection, frame, started)) is not None:
            return encoded
        try:
            api_key, version, correlation_id, client_id_size = REQUEST_PREFIX.unpack_from(frame)
        except struct.error:
            raise CloseConnection(f"a request of {len(frame)} bytes has no header") from None
        route = self._routes.get(api_key << 16 | version & 0xFFFF)
        if route is None:
            row = HANDLERS.get(api_key)
            if row is None:
                raise CloseConnection(f"api key {api_key} is not served here")
            if not row.min_version <= version <= row.max_version:
                if api_key == ApiKey.API_VERSIONS:
                    return self._unknown_api_versions(connection, correlation_id)
                raise CloseConnection(
                    f"{API[api_key].name} v{version} is not served, only v{row.min_version}-{row.max_version}"
                )
            route = self._routes[api_key << 16 | version] = self._route(api_key, version)
        try:
            client_id, position = decode_request_header(frame, client_id_size, flexible=route.flexible_request)
            request, _ = route.decode(frame, position, SMALL_ELEMENTS)
        except TooManyElements:
            context = RequestContext(api_key, version, correlation_id, client_id, connection)
            if not connection.keep_frame():
                frame = memoryview(bytearray(frame))
            return self._working(self._answer_large(route, context, frame, position, started), None)
        except (Malformed, IndexError) as error:
            raise CloseConnection(f"{route.name} v{version} does not decode: {error}") from None
        context = RequestContext(api_key, version, correlation_id, client_id, connection)
        if self._broker.quotas is not None:
            self._begin_charge(self._broker.quotas, context, request)
        try:
            response = route.handle(self._broker, context, request)
        except CloseConnection:
            raise
        except Exception as error:
            response = self._error_response(route, context, request, error)
        if type(response) is route.response_type:
            if route.memoize is not None:
                route.memoize(self._broker, context, request, response, frame, position)
            encoded = self._encoded_response(route, context, response, started, len(frame))
            if context.charge is not None and context.charge.throttle_ms:
                return reply_before_others(encoded, asyncio.get_running_loop())
            return encoded
        if response is None:
            self._metrics.api(api_key).answered(version, time.perf_counter() - started, 0, len(frame), 0)
            if context.charge is not None and self._charging.without_answer(context, len(frame)):
                return reply_before_others(None, asyncio.get_running_loop())
            return None
        if context.charge is not None:
            context.charge.waits(time.perf_counter() - started)
        return self._pending(route, context, request, response, started, len(frame))

    def warm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compile the codecs that every client needs first, one after the other, when the loop is idle."""
        rest = iter(WARM)

        def compile_next() -> None:
            wanted = next(rest, None)
            if wanted is not None:
                api_key, version = wanted
                route_key = api_key << 16 | version
                if route_key not in self._routes:
                    self._routes[route_key] = self._route(api_key, version)
                loop.call_later(WARM_PAUSE_S, compile_next)

        compile_next()

    def _route(self, api_key: int, version: int) -> Route:
        route, broker = Route(api_key, version), self._broker
        if broker.authorizer is not None:
            assert broker.audit is not None
            route.guard(broker.authorizer, broker.audit)
        return route

    # -- responses ----------------------------------------------------------------------------------------------

    def _encoded_response(
        self, route: Route, context: RequestContext, response: Any, started: float, request_size: int
    ) -> Response:
        if context.charge is None:
            encoded, size = encode_reply(route, context.correlation_id, response)
        elif route.api_key == ApiKey.FETCH:
            encoded, size = encode_reply(route, context.correlation_id, response)
            seconds = time.perf_counter() - started
            if (instead := self._charging.after(context, response, size, seconds)) is not None:
                encoded, size = encode_reply(route, context.correlation_id, instead)
        else:
            self._charging.before(context, response, time.perf_counter() - started, request_size)
            encoded, size = encode_reply(route, context.correlation_id, response)
        code = getattr(response, "error_code", 0)
        took_s = time.perf_counter() - started
        self._metrics.api(route.api_key).answered(context.api_version, took_s, code, request_size, size)
        return encoded

    def _begin_charge(self, quotas: ClientQuotas, context: RequestContext, request: Any) -> None:
        if self._charging is None:
            from klamm.broker.apis import charging  # when there are quotas

            self._charging = charging
        self._charging.begin(quotas, context, request)

    # -- large requests -----------------------------------------------------------------------------------------

    async def _answer_large(
        self, route: Route, context: RequestContext, frame: memoryview, position: int, started: float
    ) -> Response | None:
        size = len(frame)
        request = await self._decode_large(route, context, frame, position)
        del frame
        if context.connection.closed:
            return None
        if self._broker.quotas is not None:
            self._begin_charge(self._broker.quotas, context, request)
        try:
            response = await self._handle_large(route, context, request)
        except CloseConnection:
            raise
        except Exception as error:
            response = await self._in_thread(self._error_response, route, context, request, error)
        if context.charge is not None:
            return self._reply_if_any(route, context, response, started, size)  # measures are for the loop alone
        if response is None:
            return None
        encoded: Response = await self._in_thread(self._encoded_response, route, context, response, started, size)
        return encoded

    async def _decode_large(self, route: Route, context: RequestContext, frame: memoryview, position: int) -> Any:
        limit = self._broker.max_request_elements
        name = f"{route.name} v{context.api_version}"
        try:
            request, _ = await self._in_thread(route.decode, frame, position, limit)
        except TooManyElements as error:
            raise CloseConnection(f"{name} exceeds klamm.request.max.elements={limit}: {error}") from None
        except Malformed as error:
            raise CloseConnection(f"{name} does not decode: {error}") from None
        return request

    async def _handle_large(self, route: Route, context: RequestContext, request: Any) -> Any:
        """Handle the request piece by piece; a top-level error ends that."""
        if route.handle_large is not None:
            return await route.handle_large(self._broker, context, request)
        paths = paths_of(route.api_key, request)
        whole: Any = None
        for piece in cut(request, paths.request) if paths is not None else (request,):
            await self._broker.turns.next()
            response = route.handle(self._broker, context, piece)
            if inspect.isawaitable(response):
                response = await response
            if response is None or getattr(response, "error_code", 0) != 0:
                return response
            if whole is None:
                whole = response
            else:
                assert paths is not None
                join(whole, response, paths.response)
        return whole

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._broker.codecs, partial(work, *arguments))

    # -- pending responses --------------------------------------------------------------------------------------

    def _pending(
        self,
        route: Route,
        context: RequestContext,
        request: Any,
        awaitable: Awaitable[Any],
        started: float,
        request_size: int,
    ) -> PendingResponse:
        """Return the pending response of a handler's awaitable. A coroutine has work left. A future only waits: Produce
        has appended everything by then, so the next Produce may be appended, too.
        """
        if inspect.iscoroutine(awaitable):
            finish = self._finish(route, context, request, awaitable, started, request_size)
            return self._working(finish, context.charge)
        assert isinstance(awaitable, asyncio.Future), f"{route.name}: a handler returned {type(awaitable).__name__}"
        loop = asyncio.get_running_loop()
        encoded: asyncio.Future[Response | None]
        encoded = Deferred(loop=loop) if isinstance(awaitable, Deferred) else loop.create_future()

        def done(future: asyncio.Future[Any]) -> None:
            if encoded.done():
                return
            try:
                response = future.result()
            except asyncio.CancelledError:
                encoded.cancel()
                return
            except Exception as error:
                try:
                    response = self._error_response(route, context, request, error)
                except CloseConnection as close:
                    encoded.set_exception(close)
                    return
            try:
                encoded.set_result(self._reply_if_any(route, context, response, started, request_size))
            except Exception as error:  # it cannot be encoded; the connection must not wait for ever
                log.error("%s v%d: the response cannot be sent", route.name, context.api_version, exc_info=error)
                encoded.set_exception(CloseConnection("internal error"))

        def abandoned(future: asyncio.Future[Response | None]) -> None:
            if future.cancelled() and not awaitable.done():  # the connection has closed
                awaitable.cancel()

        awaitable.add_done_callback(done)
        encoded.add_done_callback(abandoned)
        return PendingResponse(
            encoded, lets_pass=PRODUCE_KEY if route.api_key == ApiKey.PRODUCE else None, is_wait=True
        )

    def _working(self, coroutine: Any, charge: Charge | None) -> PendingResponse:
        if charge is not None:
            coroutine = charge.timed(coroutine)
        task: asyncio.Task[Response | None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return PendingResponse(task, lets_pass=None, is_wait=False)

    async def _finish(
        self,
        route: Route,
        context: RequestContext,
        request: Any,
        awaitable: Awaitable[Any],
        started: float,
        request_size: int,
    ) -> Response | None:
        try:
            response = await awaitable
        except CloseConnection:
            raise
        except Exception as error:
            response = self._error_response(route, context, request, error)
        return self._reply_if_any(route, context, response, started, request_size)

    def _reply_if_any(
        self, route: Route, context: RequestContext, response: Any, started: float, request_size: int
    ) -> Response | None:
        if response is not None:
            return self._encoded_response(route, context, response, started, request_size)
        if context.charge is not None:
            self._charging.without_answer(context, request_size)
        return None

    def _error_response(self, route: Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """Turn an exception into a response. This is the only place that does."""
        error = as_kafka_error(error, route.name, context.api_version, context.connection)
        if context.charge is not None:
            context.charge.is_failed = True
        return route.refuse(request, error, context.api_version)

    def _unknown_api_versions(self, connection: Connection, correlation_id: int) -> Response:
        route = Route(ApiKey.API_VERSIONS, 0)
        from klamm.broker.apis.api_versions import unsupported_version

        context = RequestContext(ApiKey.API_VERSIONS, 0, correlation_id, None, connection)
        return self._encoded_response(route, context, unsupported_version(), time.perf_counter(), 0)


def as_kafka_error(error: Exception, name: str, version: int, connection: Connection) -> KafkaError:
    """Return the error for the client. An unexpected exception is logged, with its traceback."""
    if isinstance(error, KafkaError):
        return error
    log.error("%s v%d from %s failed", name, version, connection.peer, exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log says how")
