"""The HTTP server for metrics and health: what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from klamm.broker.metrics import Metrics, http
from klamm.broker.metrics.http import MAX_CONNECTIONS, HttpServer, parse_listener


def run(test: Callable[[HttpServer], Coroutine[Any, Any, None]], **checks: Callable[[], str | None]) -> None:
    async def main() -> None:
        metrics = Metrics()
        metrics.set_partition_source(lambda: [("t", number, 1, 2, 3) for number in range(1000)])
        server = HttpServer(
            metrics, healthy=checks.get("healthy", lambda: None), ready=checks.get("ready", lambda: None)
        )
        await server.start("127.0.0.1", 0)
        try:
            await asyncio.wait_for(test(server), 30)
        finally:
            await server.close()

    uvloop.run(main())


async def exchange(server: HttpServer, request: bytes) -> tuple[str, dict[str, str], bytes]:
    """Status line, headers and body of the answer to a request after which the server closes."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(request)
    answer = await reader.read(-1)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return status, {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}, body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()


def unchunk(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        assert body[int(size, 16) :][:2] == b"\r\n"
        body = body[int(size, 16) + 2 :]
        if size == b"0":
            assert body == b""
    return whole


def test_metrics_are_streamed_in_chunks() -> None:
    async def test(server: HttpServer) -> None:
        status, headers, body = await exchange(server, get("/metrics"))
        assert status == "HTTP/1.1 200 OK"
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        assert headers["transfer-encoding"] == "chunked"
        families = {family.name: family for family in text_string_to_metric_families(unchunk(body).decode())}
        assert len(families["klamm_log_end_offset"].samples) == 1000

    run(test)


def test_an_http_1_0_client_gets_metrics_until_the_close() -> None:
    async def test(server: HttpServer) -> None:
        status, headers, body = await exchange(server, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n")
        assert status == "HTTP/1.1 200 OK"
        assert "transfer-encoding" not in headers
        assert len(list(text_string_to_metric_families(body.decode()))) > 10

    run(test)


def test_health_and_readiness_have_reasons() -> None:
    async def test(server: HttpServer) -> None:
        assert (await exchange(server, get("/healthz")))[::2] == ("HTTP/1.1 200 OK", b"ok\n")
        assert (await exchange(server, get("/readyz")))[::2] == ("HTTP/1.1 503 Service Unavailable", b"loading\n")

    run(test, ready=lambda: "loading")


def test_an_unhealthy_broker_is_not_ready() -> None:
    async def test(server: HttpServer) -> None:
        for path in ("/healthz", "/readyz"):
            assert (await exchange(server, get(path)))[::2] == ("HTTP/1.1 503 Service Unavailable", b"no log dir\n")

    run(test, healthy=lambda: "no log dir")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/nope"])
def test_head_has_no_body(path: str) -> None:
    async def test(server: HttpServer) -> None:
        status, _, body = await exchange(server, get(path, "HEAD"))
        assert status.endswith("Not Found" if path == "/nope" else "OK")
        assert body == b""

    run(test)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), 404),
        (get("/metrics", "POST"), 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 100_000, 431),
    ],
)
def test_other_requests_are_refused(request_bytes: bytes, status: int) -> None:
    async def test(server: HttpServer) -> None:
        line, headers, _ = await exchange(server, request_bytes)
        assert line.split()[1] == str(status)
        if status == 405:
            assert headers["allow"] == "GET, HEAD"

    run(test)


def test_a_connection_serves_several_requests() -> None:
    async def test(server: HttpServer) -> None:
        keep = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(keep + keep + get("/nope"))
        answer = await reader.read(-1)
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.count(b"HTTP/1.1 404 Not Found") == 1
        writer.close()

    run(test)


def test_a_request_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.01)

    async def test(server: HttpServer) -> None:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"GET /metr")
        assert await reader.read() == b""
        writer.close()

    run(test)


def test_connections_are_bounded() -> None:
    async def test(server: HttpServer) -> None:
        opened = [await asyncio.open_connection(*server.address) for _ in range(MAX_CONNECTIONS + 1)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in opened]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b""]
        for _, writer in opened:
            writer.close()
        await asyncio.wait(ends)
        assert (await exchange(server, get("/healthz")))[0] == "HTTP/1.1 200 OK"

    run(test)


def test_a_taken_port_is_an_error_unless_the_server_may_move(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: HttpServer) -> None:
        other = HttpServer(Metrics(), healthy=lambda: None, ready=lambda: None)
        with pytest.raises(OSError, match="in use"):
            await other.start(*server.address)
        address = await other.start(*server.address, may_move=True)
        assert address[1] not in (0, server.address[1])
        await other.close()

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "is taken, listening on port" in caplog.text


def test_the_setting_is_host_and_port_or_none() -> None:
    assert parse_listener("127.0.0.1:9404") == ("127.0.0.1", 9404)
    assert parse_listener("[::1]:0") == ("::1", 0)
    assert parse_listener(":9404") == ("", 9404)
    assert parse_listener("None") is None
    for wrong in ("9404", "x:y", "h:70000", ""):
        with pytest.raises(ValueError, match=r"klamm\.metrics\.listener"):
            parse_listener(wrong)
