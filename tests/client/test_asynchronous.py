"""The asyncio client against a node of sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from klamm.client.asynchronous import AsyncNodeClient
from klamm.client.errors import ClientTimeout, ConnectionClosed, NoCommonVersion, UnexpectedResponse
from klamm.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from klamm.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from klamm.protocol.messages.produce import ProduceRequest

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")
Start = Callable[[Callable[[Any], "bytes | None"]], Any]


def heartbeats(asked: Any) -> bytes | None:
    """Knows Heartbeat up to v2 and answers with the correlation id as error code."""
    if asked.api_key == 18:
        keys = [ApiVersion(api_key=12, min_version=0, max_version=2)]
        answer: bytes = asked.answer(ApiVersionsResponse(api_keys=keys))
    else:
        answer = asked.answer(HeartbeatResponse(error_code=asked.correlation_id))
    return answer


def silent(asked: Any) -> bytes | None:
    return b""


def test_the_highest_common_version_is_used(start_node: Start) -> None:
    node = start_node(heartbeats)

    async def talk() -> int:
        async with AsyncNodeClient(node.host, node.port, client_id="me") as client:
            response = await client.request(HEARTBEAT)
            return int(response.error_code)

    assert asyncio.run(talk()) == 1
    assert (node.asked[1].version, node.asked[1].client_id) == (2, "me")


def test_it_runs_on_uvloop(start_node: Start) -> None:
    node = start_node(heartbeats)

    async def talk() -> int:
        async with AsyncNodeClient(node.host, node.port) as client:
            return int((await client.request(HEARTBEAT)).error_code)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == 1


def test_requests_in_flight_are_answered_in_order(start_node: Start) -> None:
    node = start_node(heartbeats)

    async def talk() -> list[int]:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            return [
                response.error_code
                for response in await asyncio.gather(*(client.send(HEARTBEAT, 0) for _ in range(50)))
            ]

    assert asyncio.run(talk()) == list(range(50))


def test_a_cancelled_request_does_not_shift_the_others(start_node: Start) -> None:
    node = start_node(heartbeats)

    async def talk() -> int:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            dropped, kept = client.send(HEARTBEAT, 0), client.send(HEARTBEAT, 0)
            dropped.cancel()
            return int((await kept).error_code)

    assert asyncio.run(talk()) == 1


def test_raw_bytes_are_answered_by_a_raw_frame(start_node: Start) -> None:
    node = start_node(lambda asked: b"\0\0\0\3abc")

    async def talk() -> bytes:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            return await client.send_bytes(b"\0\0\0\x0a" + b"\0\x0c\0\0\0\0\0\1\xff\xff")

    assert asyncio.run(talk()) == b"abc"


def test_produce_without_acks_gives_none(start_node: Start) -> None:
    node = start_node(silent)

    async def talk() -> Any:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            return await client.request(ProduceRequest(acks=0), 9)

    assert asyncio.run(talk()) is None


def test_a_version_must_be_given_when_none_was_negotiated(start_node: Start) -> None:
    node = start_node(silent)

    async def talk() -> None:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            client.send(HEARTBEAT)

    with pytest.raises(NoCommonVersion):
        asyncio.run(talk())


def test_a_node_that_refuses_to_tell_versions_fails_connect(start_node: Start) -> None:
    node = start_node(lambda asked: asked.answer(ApiVersionsResponse(error_code=42)))

    async def talk() -> None:
        await AsyncNodeClient(node.host, node.port).connect()

    with pytest.raises(NoCommonVersion, match="42"):
        asyncio.run(talk())


def test_a_request_that_times_out_fails_all_in_flight(start_node: Start) -> None:
    node = start_node(silent)

    async def talk() -> None:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            other = client.send(HEARTBEAT, 0)
            with pytest.raises(ClientTimeout):
                await client.request(HEARTBEAT, 0, timeout_s=0)
            with pytest.raises(ClientTimeout):
                await other
            with pytest.raises(ClientTimeout):
                client.send(HEARTBEAT, 0)

    asyncio.run(talk())


@pytest.mark.parametrize(("reply", "error"), [(None, ConnectionClosed), (b"\0\0\0\3abc", UnexpectedResponse)])
def test_a_broken_connection_fails_all_in_flight(
    start_node: Start, reply: bytes | None, error: type[Exception]
) -> None:
    node = start_node(lambda asked: reply)

    async def talk() -> None:
        async with AsyncNodeClient(node.host, node.port, negotiate=False) as client:
            sent = [client.send(HEARTBEAT, 0) for _ in range(3)]
            assert [type(result) for result in await asyncio.gather(*sent, return_exceptions=True)] == [error] * 3
            with pytest.raises(error):
                await client.request(HEARTBEAT, 0)

    asyncio.run(talk())


def test_close_fails_what_is_in_flight(start_node: Start) -> None:
    node = start_node(silent)

    async def talk() -> None:
        client = AsyncNodeClient(node.host, node.port, negotiate=False)
        await client.connect()
        sent = client.send(HEARTBEAT, 0)
        client.close()
        with pytest.raises(ConnectionClosed, match="was closed"):
            await sent

    asyncio.run(talk())


def test_no_listener_is_a_closed_connection() -> None:
    async def talk(host: str, port: int) -> None:
        with pytest.raises(ConnectionClosed, match="connect"):
            await AsyncNodeClient(host, port).connect()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening
        asyncio.run(talk(*unused.getsockname()))
