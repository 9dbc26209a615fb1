"""The small HTTP/1.1 server of `klamm.metrics.listener`: GET and HEAD of /metrics, /healthz and /readyz.

`/metrics` may ask for a user or a token (`access`), the probes do not; all of it may use TLS. Health and
readiness come from functions that return None when all is well, else a reason (sent with status 503). Requests are
bounded in size and time, connections in number. Bodies are streamed in chunks, so that a scrape of thousands of series
costs the event loop one slice at a time.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from klamm.broker.metrics import Metrics
from klamm.broker.metrics.exposition import CONTENT_TYPE, Exposition

if TYPE_CHECKING:
    import ssl

    from klamm.broker.metrics.access import Access

logger = logging.getLogger(__name__)

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9404
MAX_REQUEST_BYTES = 8 * 1024
MAX_CONNECTIONS = 16
REQUEST_TIMEOUT_S = 5.0
KEEP_ALIVE_S = 75.0
RESPONSE_TIMEOUT_S = 30.0
CHUNK_BYTES = 16 * 1024
PLAIN = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
} | {
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}

Check: TypeAlias = "Callable[[], str | None]"


def parse_listener(value: str) -> tuple[str, int] | None:
    """Parse `host:port` of the setting; None for `none`. Raises ValueError."""
    value = value.strip()
    if value.lower() == "none":
        return None
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"klamm.metrics.listener: {value!r} is neither host:port nor none")
    return host.strip("[]"), int(port)


def access_of(wanted: str) -> Access | None:
    """Return the access rule of the metrics (klamm.metrics.auth); None: open to all. Raises ConfigError."""
    if wanted == "none":
        return None
    from klamm.broker.metrics.access import parse_access  # rarely needed

    return parse_access(wanted)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    http_1_0: bool
    keep_alive: bool
    authorization: str = field(default="", repr=False)


class BadRequest(Exception):
    """A bad request: gets `status` as its response, then the connection is closed."""

    def __init__(self, status: int) -> None:
        super().__init__(REASONS[status])
        self.status = status


class HttpServer:
    """Verbs: `start`, `close`; `address` is set by `start`."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        healthy: Check,
        ready: Check,
        access: Access | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._exposition = Exposition(metrics)
        self._healthy = healthy
        self._ready = ready
        self._access = access
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.address: tuple[str, int] = ("", 0)

    async def start(self, host: str, port: int, *, may_move: bool = False) -> tuple[str, int]:
        """Listen and return the address. A port in use raises OSError, unless the server `may_move`."""
        try:
            self._server = await self._listen(host, port)
        except OSError as error:
            if not may_move or error.errno != errno.EADDRINUSE:
                raise
            self._server = await self._listen(host, 0)
        self.address = self._server.sockets[0].getsockname()[:2]
        if self.address[1] != port and port:
            logger.warning("metrics: port %d is taken, listening on port %d", port, self.address[1])
        return self.address

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(
            self._accept,
            host or None,
            port,
            limit=MAX_REQUEST_BYTES,
            ssl=self._tls,
            ssl_handshake_timeout=REQUEST_TIMEOUT_S if self._tls is not None else None,
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its first request to its last."""
        try:
            timeout_s = REQUEST_TIMEOUT_S
            while True:
                async with asyncio.timeout(timeout_s):
                    request = await _read_request(reader)
                if request is None:
                    break
                async with asyncio.timeout(RESPONSE_TIMEOUT_S):
                    await self._answer(request, writer)
                if not request.keep_alive:
                    break
                timeout_s = KEEP_ALIVE_S
        except BadRequest as error:
            writer.write(_head(error.status, PLAIN, keep_alive=False) + b"Content-Length: 0\r\n\r\n")
        except (TimeoutError, OSError):
            pass
        except Exception:
            logger.exception("metrics: a request failed")
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method not in ("GET", "HEAD"):
            _write_text(writer, request, 405, "only GET and HEAD\n", extra=b"Allow: GET, HEAD\r\n")
        elif request.path == "/metrics" and not await self._lets_in(request):
            challenge = self._access.challenge if self._access is not None else b""
            _write_text(writer, request, 401, "see klamm.metrics.auth\n", extra=b"WWW-Authenticate: %b\r\n" % challenge)
        elif request.path == "/metrics":
            await self._stream(writer, request, self._exposition.render())
        elif request.path == "/healthz":
            _write_check(writer, request, self._healthy())
        elif request.path == "/readyz":
            _write_check(writer, request, self._healthy() or self._ready())
        else:
            _write_text(writer, request, 404, "try /metrics, /healthz or /readyz\n")
        await writer.drain()

    async def _lets_in(self, request: Request) -> bool:
        return self._access is None or await self._access.allows(request.authorization)

    async def _stream(self, writer: asyncio.StreamWriter, request: Request, pieces: AsyncIterator[bytes]) -> None:
        """Send a body of unknown size: chunked, or ended by the close for HTTP/1.0."""
        head = _head(200, CONTENT_TYPE, keep_alive=request.keep_alive and not request.http_1_0)
        if request.method == "HEAD":
            writer.write(head + b"\r\n")
            return
        chunked = not request.http_1_0
        writer.write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n"))
        gathered = bytearray()
        async for piece in pieces:
            gathered += piece
            if len(gathered) >= CHUNK_BYTES:
                _write_piece(writer, bytes(gathered), chunked=chunked)
                gathered = bytearray()
                await writer.drain()
        if gathered:
            _write_piece(writer, bytes(gathered), chunked=chunked)
        if chunked:
            writer.write(b"0\r\n\r\n")


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read the next request without a body; None at the end of the stream. Raises BadRequest."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise BadRequest(400) from None
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(431) from None
    lines = head.decode("latin-1").lstrip("\r\n").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequest(400)
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest(505)
    headers = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(400)
        headers[name.strip().lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(400)  # none of the resources takes a body
    http_1_0 = version == "HTTP/1.0"
    keep_alive = not http_1_0 and "close" not in headers.get("connection", "").lower()
    authorization = headers.get("authorization", "")
    return Request(method, target.partition("?")[0], http_1_0, keep_alive, authorization)


def _head(status: int, content_type: str, *, keep_alive: bool) -> bytes:
    connection = "" if keep_alive else "Connection: close\r\n"
    return f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n{connection}".encode()


def _write_text(writer: asyncio.StreamWriter, request: Request, status: int, text: str, *, extra: bytes = b"") -> None:
    body = text.encode()
    head = _head(status, PLAIN, keep_alive=request.keep_alive)
    head += b"Content-Length: %d\r\n%b\r\n" % (len(body), extra)
    writer.write(head if request.method == "HEAD" else head + body)


def _write_check(writer: asyncio.StreamWriter, request: Request, problem: str | None) -> None:
    if problem is None:
        _write_text(writer, request, 200, "ok\n")
    else:
        _write_text(writer, request, 503, problem + "\n")


def _write_piece(writer: asyncio.StreamWriter, piece: bytes, *, chunked: bool) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
