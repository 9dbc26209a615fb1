"""A connection that is throttled: its answer leaves at once, then it is neither read from nor served for a while."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref

import pytest

from klamm.broker.network.connection import THROTTLED
from klamm.broker.network.limits import NetworkLimits
from tests.broker.network.harness import node, run, spin, until

LONG = b"throttle 3600000"


@pytest.mark.parametrize("together", [True, False])
def test_the_answer_leaves_at_once_and_the_next_request_waits(together: bool) -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            if together:
                client.send(b"echo 1", LONG, b"echo 2", b"echo 3")
                assert await client.receive() == b"echo 1"
                assert await client.receive() == LONG
            else:
                assert await client.ask(LONG) == LONG
                client.send(b"echo 2", b"echo 3")
            await spin()
            assert b"echo 2" not in one.seen
            one.connections[0]._end_throttle()
            assert [await client.receive(), await client.receive()] == [b"echo 2", b"echo 3"]
            assert await client.ask(b"echo 4") == b"echo 4"

    run(main())


def test_it_ends_by_itself_when_the_time_is_over() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            started = time.monotonic()
            client.send(b"throttle 60", b"echo 1")
            assert await client.receive() == b"throttle 60"
            assert await client.receive() == b"echo 1"
            assert time.monotonic() - started >= 0.059

    run(main())


def test_a_shorter_one_does_not_end_a_longer_one() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            await client.ask(LONG)
            connection = one.connections[0]
            connection.throttle(1)
            await asyncio.sleep(0.02)
            assert connection._muted & THROTTLED

    run(main())


def test_the_idle_limit_does_not_count_meanwhile() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_idle_ms=1000)) as one:
            client = await one.connect()
            await client.ask(LONG)
            for _ in range(5):
                one.sweep_after(1500)
            connection = one.connections[0]
            assert not connection.closed
            connection._end_throttle()
            for _ in range(3):
                one.sweep_after(1500)
            assert connection.closed

    run(main())


def test_a_peer_that_goes_meanwhile_with_requests_unread_is_forgotten() -> None:
    async def main() -> None:
        async with node(NetworkLimits(frame_timeout_ms=1000)) as one:
            client = await one.connect()
            await client.ask(LONG)
            client.send(b"echo 1")
            await spin()
            client.writer.close()
            await spin()
            for _ in range(3):
                one.sweep_after(1500)
            assert one.connections[0].closed
            assert one.network.counters.closed == {"eof": 1}

    run(main())


def test_a_connection_closed_meanwhile_leaves_nothing() -> None:
    async def main() -> None:
        async with node() as one:
            gc.disable()
            try:
                client = await one.connect()
                await client.ask(LONG)
                connection = one.connections.pop()
                kept, timer = weakref.ref(connection), connection._throttle
                assert timer is not None
                connection.close("test")
                assert timer.cancelled()
                del connection, timer
                await spin()
                assert kept() is None
            finally:
                gc.enable()

    run(main())


def test_drain_answers_what_was_read() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(LONG, b"echo 1", LONG, b"echo 2")
            await client.receive()
            drained = asyncio.ensure_future(one.network.drain(5))
            assert [await client.receive() for _ in range(3)] == [b"echo 1", LONG, b"echo 2"]
            assert await client.at_end()
            assert await drained == 0

    run(main())


def test_many_that_are_closed_while_throttled() -> None:
    async def main() -> None:
        async with node() as one:
            for _ in range(100):
                client = await one.connect()
                await client.ask(LONG)
                client.writer.transport.abort()
                one.clients.remove(client)
            await until(lambda: all(connection.closed for connection in one.connections))
            assert not one.network.connections

    run(main())
