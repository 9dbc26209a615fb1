"""Order, back-pressure, deadlines and ends of a connection, over real sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import weakref

import pytest

from klamm.broker.network.connection import TURN_FRAMES, Connection
from klamm.broker.network.deadlines import RENEWAL_BYTES
from klamm.broker.network.limits import ListenerLimits, NetworkLimits
from klamm.broker.network.network import SEND_TOGETHER
from klamm.broker.network.response import Response
from klamm.broker.network.send_queue import SendQueue
from tests.broker.network.harness import PRODUCE, Node, frame, node, run, spin, until


def test_5000_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            requests = [b"echo %d" % number for number in range(5000)]
            client.send(*requests)
            assert [await client.receive() for _ in requests] == requests

    run(main())


def test_replies_of_one_read_leave_in_one_send() -> None:
    async def main() -> None:
        async with node() as one:
            plain = socket.create_connection(one.listener.address)
            plain.sendall(b"".join(frame(b"echo %d" % number) for number in range(10)))
            await one.until_seen(10)
            await spin()
            data = plain.recv(65536)  # all there at once
            assert data == b"".join(frame(b"echo %d" % number) for number in range(10))
            plain.close()

    run(main())


def note_sends(one: Node, seen_at_send: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note at each send from now on how many requests the node has seen."""
    original = SendQueue.send

    def send(send_queue: SendQueue, responses: list[Response]) -> None:
        seen_at_send.append(len(one.seen))
        original(send_queue, responses)

    monkeypatch.setattr(SendQueue, "send", send)


def test_short_replies_leave_when_all_readable_connections_were_served(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_at_send: list[int] = []

    async def main() -> None:
        async with node() as one:
            plain = [socket.create_connection(one.listener.address) for _ in range(3)]
            await until(lambda: len(one.network.connections) == 3)
            note_sends(one, seen_at_send, monkeypatch)
            for number, each in enumerate(plain):
                each.sendall(frame(b"echo %d" % number))
            await one.until_seen(3)
            await spin()
            assert [each.recv(100) for each in plain] == [frame(b"echo %d" % number) for number in range(3)]
            for each in plain:
                each.close()

    run(main())
    assert seen_at_send == [3, 3, 3]


def test_a_connection_that_is_alone_sends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_at_send: list[int] = []
    waited: list[bool] = []

    async def main() -> None:
        async with node() as one:
            served = Connection._serve

            def serve(connection: Connection, frame: memoryview | None = None) -> None:
                before = len(seen_at_send)
                served(connection, frame)
                waited.append(len(seen_at_send) == before)

            note_sends(one, seen_at_send, monkeypatch)
            monkeypatch.setattr(Connection, "_serve", serve)
            first, second = [await one.connect() for _ in range(2)]
            for client in (first, first, first, second, first, second, second):
                assert await client.ask(b"echo x") == b"echo x"

    run(main())
    assert waited == [True, False, False, True, True, True, False]
    assert seen_at_send == [1, 2, 3, 4, 5, 6, 7]


def test_a_connection_that_is_alone_is_closed_when_sending_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(send_queue: SendQueue, responses: list[Response]) -> None:
        raise ValueError("planted")

    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            for _ in range(2):
                assert await client.ask(b"echo x") == b"echo x"
            monkeypatch.setattr(SendQueue, "send", fail)
            client.send(b"echo y")
            assert await client.at_end()
            assert one.network.counters.closed == {"bug": 1}

    run(main())
    assert "sending failed" in caplog.text


def test_replies_of_more_connections_than_wait_for_each_other_all_leave() -> None:
    async def main() -> None:
        async with node() as one:
            count = 2 * SEND_TOGETHER + 3
            plain = [socket.create_connection(one.listener.address) for _ in range(count)]
            await until(lambda: len(one.network.connections) == count)
            for number, each in enumerate(plain):
                each.sendall(frame(b"echo %d" % number))
            await one.until_seen(count)
            await spin()
            for number, each in enumerate(plain):
                each.settimeout(5)
                assert each.recv(100) == frame(b"echo %d" % number)
                each.close()

    run(main())


def test_a_reply_that_waits_for_others_is_sent_before_a_half_closed_connection_ends() -> None:
    async def main() -> None:
        async with node() as one:
            plain = socket.create_connection(one.listener.address)
            plain.sendall(frame(b"echo last"))
            plain.shutdown(socket.SHUT_WR)
            await until(lambda: bool(one.seen) and not one.network.connections)
            assert plain.recv(100) == frame(b"echo last")
            assert plain.recv(100) == b""
            plain.close()

    run(main())


def test_a_pending_response_holds_back_all_later_ones() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(b"wait a", b"echo 1", b"wait b", b"echo 2")
            await spin()
            assert one.seen == [b"wait a"]
            one.answer("a")
            assert await client.receive() == b"answer a"
            assert await client.receive() == b"echo 1"
            assert one.seen == [b"wait a", b"echo 1", b"wait b"]
            one.answer("b")
            assert [await client.receive() for _ in range(2)] == [b"answer b", b"echo 2"]

    run(main())


def test_produce_goes_ahead_of_unacknowledged_produce_and_answers_stay_in_order() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(*[PRODUCE + b"wait %d" % number for number in range(3)], PRODUCE + b"echo x", b"echo last")
            await one.until_seen(4)
            await spin()
            assert len(one.seen) == 4  # all Produce, but no later requests
            for name in "210":
                one.answer(name)
            received = [await client.receive() for _ in range(5)]
            assert received == [b"answer 0", b"answer 1", b"answer 2", PRODUCE + b"echo x", b"echo last"]

    run(main())


def test_produce_waits_for_earlier_requests() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(b"wait a", PRODUCE + b"echo 1")
            await spin()
            assert one.seen == [b"wait a"]
            one.answer("a")
            assert [await client.receive() for _ in range(2)] == [b"answer a", PRODUCE + b"echo 1"]

    run(main())


def test_produce_in_flight_is_bounded() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_inflight=3)) as one:
            client = await one.connect()
            client.send(*[PRODUCE + b"wait %d" % number for number in range(8)])
            await one.until_seen(3)
            await spin()
            assert len(one.seen) == 3
            one.answer("0")
            await one.until_seen(4)
            await spin()
            assert len(one.seen) == 4
            for number in range(1, 8):
                await one.until_seen(number + 1)
                one.answer(str(number))
            assert [await client.receive() for _ in range(8)] == [b"answer %d" % number for number in range(8)]

    run(main())


def test_nothing_is_read_while_a_reply_is_pending() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(b"wait a")
            await one.until_seen(1)
            client.writer.write(b"x" * (16 << 20))
            await spin(100)
            assert client.writer.transport.get_write_buffer_size() > 0  # the kernel's buffers are full: back-pressure
            assert len(one.seen) == 1

    run(main())


def test_requests_without_a_reply_are_skipped() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(PRODUCE + b"none", b"echo 1", PRODUCE + b"wait a", PRODUCE + b"none", b"echo 2")
            await one.until_seen(4)
            one.answer("a")
            assert [await client.receive() for _ in range(3)] == [b"echo 1", b"answer a", b"echo 2"]

    run(main())


def test_a_slow_reader_is_muted_and_others_are_served() -> None:
    async def main() -> None:
        async with node() as one:
            slow = await one.connect()
            slow.reader._limit = 1 << 16  # type: ignore[attr-defined]
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            slow.send(*[b"big 1000000"] * 40)
            quick = await one.connect()
            await spin(200)
            reached = len(one.seen)
            assert reached < 40
            unsent = one.connections[0]._send_queue.unsent_bytes
            assert one.network.limits.unsent_high_water_bytes < unsent < 4_000_000
            assert await quick.ask(b"echo quick") == b"echo quick"
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(40):
                assert len(await slow.receive()) == 1_000_000

    run(main())


def test_a_huge_frame_comes_whole_and_its_memory_goes() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            payload = b"echo " + bytes(range(256)) * 40_000
            assert await client.ask(payload) == payload
            assert await client.ask(b"echo small") == b"echo small"
            assert one.connections[0]._frames.capacity_bytes == 0

    run(main())


def test_a_busy_connection_leaves_turns_to_others() -> None:
    async def main() -> None:
        async with node() as one:
            busy, other = await one.connect(), await one.connect()
            await busy.ask(b"echo warm"), await other.ask(b"echo warm")
            one.seen.clear()
            busy.send(*[b"echo %d" % number for number in range(2000)])
            other.send(b"echo other")
            await busy.receive()
            assert await other.receive() == b"echo other"
            assert one.seen.index(b"echo other") <= 4 * TURN_FRAMES
            for _ in range(1999):
                await busy.receive()

    run(main())


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (bytes.fromhex("16030100f5010000f10303"), "a TLS handshake"),
        (struct.pack(">i", -1), "frame size -1"),
        (struct.pack(">i", 0), "frame size 0"),
        (struct.pack(">i", 2**31 - 1), "frame size 2147483647"),
    ],
)
def test_junk_closes_the_connection_with_one_warning(
    data: bytes, wanted: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with node() as one:
            for _ in range(3):
                client = await one.connect()
                client.send(b"echo before")
                client.writer.write(data)
                assert await client.receive() == b"echo before"
                assert await client.at_end()
                one.network.sweep()
            assert one.network.counters.closed == {"bad_frame": 3}
            one.clock.advance(11_000)
            client = await one.connect()
            client.writer.write(data)
            assert await client.at_end()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len(caplog.records) == 2
    assert wanted in caplog.text
    assert "(and 2 more like it)" in caplog.text


def test_a_refusal_closes_after_the_replies_before_it() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(PRODUCE + b"wait a", b"echo 1")
            client.send(b"refuse", b"echo never")
            await one.until_seen(1)
            one.answer("a")
            assert [await client.receive() for _ in range(2)] == [b"answer a", b"echo 1"]
            assert await client.at_end()
            assert b"echo never" not in one.seen
            assert one.network.counters.closed == {"refused": 1}

    run(main())


def test_a_pending_request_that_fails_ends_the_connection_there(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(*[PRODUCE + b"wait %d" % number for number in range(3)])
            await one.until_seen(3)
            one.answer("0")
            one.waiting["1"].set_exception(ZeroDivisionError("a bug in a handler"))
            one.waiting["2"].set_exception(ValueError("nobody looks at this one"))
            assert await client.receive() == b"answer 0"
            assert await client.at_end()
            assert one.network.counters.closed == {"bug": 1}

    run(main())
    assert "a bug in a handler" in caplog.text
    assert "never retrieved" not in caplog.text


def test_a_bug_in_the_dispatcher_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node() as one:
            client, other = await one.connect(), await one.connect()
            client.send(b"echo 1", b"bug")
            assert await client.receive() == b"echo 1"
            assert await client.at_end()
            assert await other.ask(b"echo 2") == b"echo 2"

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_the_dispatcher_may_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            await client.ask(b"echo 1")
            ended, wait = [asyncio.get_running_loop().create_future() for _ in range(2)]
            with one.connections[0].cancelled_on_close(ended):
                pass
            with one.connections[0].cancelled_on_close(wait):
                client.send(b"close", b"echo never")
                assert await client.at_end()
                assert wait.cancelled() and not ended.done()
            assert one.seen[-1] == b"close"
            assert one.connections[0].closed

    run(main())
    assert caplog.records == []


def test_a_half_close_is_answered_and_then_closed() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(b"wait a", b"echo 1")
            client.writer.write_eof()
            await one.until_seen(1)
            await spin()
            one.answer("a")
            assert [await client.receive() for _ in range(2)] == [b"answer a", b"echo 1"]
            assert await client.at_end()
            assert one.network.counters.closed == {"eof": 1}

    run(main())


def test_half_a_frame_and_the_end_of_the_stream_close() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.writer.write(frame(b"echo whole")[:-1])
            client.writer.write_eof()
            assert await client.at_end()
            assert one.network.counters.closed == {"half_frame": 1}
            assert one.seen == []

    run(main())


def test_half_a_frame_has_a_deadline_that_only_real_progress_moves() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            assert await client.ask(b"echo 1") == b"echo 1"
            client.writer.write(struct.pack(">i", 1_000_000))
            await spin()
            one.sweep_after(0)
            for _ in range(2):  # enough new bytes: a new deadline
                one.sweep_after(20_000)
                client.writer.write(b"x" * RENEWAL_BYTES)
                await spin()
            one.sweep_after(1)
            for _ in range(29):  # trickling
                one.sweep_after(1000)
                client.writer.write(b"x")
                await spin()
            assert one.network.counters.closed == {}
            one.sweep_after(1000)
            assert await client.at_end()
            assert one.network.counters.closed == {"frame_timeout": 1}

    run(main())


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_idle_ms=1000)) as one:
            idle, waiting = await one.connect(), await one.connect()
            await idle.ask(b"echo 1")
            waiting.send(b"wait a")
            await one.until_seen(2)
            one.sweep_after(0)
            one.sweep_after(999)
            assert len(one.network.connections) == 2
            one.sweep_after(1)
            assert await idle.at_end()
            one.answer("a")
            assert await waiting.receive() == b"answer a"
            assert one.network.counters.closed == {"idle": 1}

    run(main())


@pytest.mark.parametrize(
    ("limits", "listener", "closes"),
    [
        (NetworkLimits(max_idle_ms=-1), None, False),
        (NetworkLimits(max_idle_ms=1000), ListenerLimits(max_idle_ms=-1), False),
        (NetworkLimits(), ListenerLimits(max_idle_ms=0), True),
    ],
)
def test_a_negative_idle_limit_is_none_and_zero_is_at_once(
    limits: NetworkLimits, listener: ListenerLimits | None, closes: bool
) -> None:
    async def main() -> None:
        async with node(limits, listener) as one:
            client = await one.connect()
            await client.ask(b"echo 1")
            one.sweep_after(0)
            one.sweep_after(1 if closes else 10**9)
            assert one.network.counters.closed == ({"idle": 1} if closes else {})

    run(main())


def test_a_peer_that_never_reads_is_closed_when_idle() -> None:
    async def main() -> None:
        async with node(NetworkLimits(max_idle_ms=1000)) as one:
            plain = socket.create_connection(one.listener.address)
            plain.sendall(frame(b"big 30000000"))
            await one.until_seen(1)
            await spin(100)
            one.sweep_after(0)
            one.sweep_after(1000)
            assert one.network.counters.closed == {"idle": 1}
            assert one.connections[0]._send_queue.unsent_bytes == 0
            plain.close()

    run(main())


def test_a_reset_while_muted_is_noticed() -> None:
    async def main() -> None:
        async with node() as one:
            plain = socket.create_connection(one.listener.address)
            plain.sendall(frame(b"wait a"))
            await one.until_seen(1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            plain.close()
            await spin()
            assert one.network.counters.closed == {"error": 1}
            assert one.waiting["a"].cancelled()

    run(main())


@pytest.mark.parametrize("more", [b"", frame(b"echo 1")])
def test_a_peer_that_has_closed_is_not_waited_for_longer_than_for_a_frame(more: bytes) -> None:
    async def main() -> None:
        async with node(NetworkLimits(frame_timeout_ms=1000)) as one:
            plain = socket.create_connection(one.listener.address)
            plain.sendall(frame(b"wait a") + more)
            await one.until_seen(1)
            plain.shutdown(socket.SHUT_WR)  # as close() does, but for the reset that an answer would meet
            await spin()
            one.sweep_after(0)
            one.sweep_after(999)
            assert len(one.network.connections) == 1
            one.sweep_after(1)
            assert one.network.counters.closed == {"eof": 1}
            assert one.waiting["a"].cancelled()
            plain.close()

    run(main())


def test_a_connection_that_goes_cancels_its_waits_but_not_its_tasks() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(PRODUCE + b"wait a", PRODUCE + b"task b")
            await one.until_seen(2)
            one.connections[0].close("test")
            await spin()
            assert one.waiting["a"].cancelled()
            assert not one.waiting["b"].cancelled()
            one.answer("b")
            await spin()

    run(main())


def test_a_connection_that_goes_does_not_wait_for_the_budget() -> None:
    async def main() -> None:
        async with node(NetworkLimits(queued_max_request_bytes=50_000)) as one:
            budget = one.network.budget
            assert budget is not None
            first, second = await one.connect(), await one.connect()
            first.writer.write(struct.pack(">i", 60_000) + b"echo ")
            await until(lambda: budget.held_bytes > 0)
            second.writer.write(struct.pack(">i", 100) + b"echo ")
            await until(lambda: budget.waiting_count == 1)
            (waiting,) = [each for each in one.network.connections if each._share is not None and not each._share.bytes]
            waiting.close("test")
            assert budget.waiting_count == 0

    run(main())


def test_request_bytes_of_the_node_are_bounded() -> None:
    async def main() -> None:
        async with node(NetworkLimits(queued_max_request_bytes=50_000)) as one:
            budget = one.network.budget
            assert budget is not None
            first, second = await one.connect(), await one.connect()
            first.writer.write(struct.pack(">i", 60_000) + b"echo ")
            await spin()
            assert budget.held_bytes == 60_004  # declared sizes count, one frame may exceed the limit
            second.writer.write(struct.pack(">i", 60_000) + b"echo ")
            await spin()
            second.writer.write(b"s" * 59_995)
            await spin()
            assert one.seen == []
            first.writer.write(b"f" * 59_995)
            assert await first.receive() == b"echo " + b"f" * 59_995
            assert await second.receive() == b"echo " + b"s" * 59_995
            assert budget.held_bytes == 0
            first.send(b"wait a")
            await one.until_seen(3)
            assert budget.held_bytes == 6
            one.connections[0].close("test")
            assert budget.held_bytes == 0

    run(main())


def test_local_address_and_peer() -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            await client.ask(b"echo 1")
            connection = one.connections[0]
            assert connection.local_address == one.listener.address
            assert connection.peer == client.writer.get_extra_info("sockname")
            assert connection.listener == "PLAINTEXT"
            assert connection.principal == "User:ANONYMOUS"

    run(main())


def test_drain_answers_what_was_read_and_then_closes() -> None:
    async def main() -> None:
        async with node() as one:
            clients = [await one.connect() for _ in range(5)]
            for number, client in enumerate(clients):
                client.send(*[PRODUCE + b"wait %d-%d" % (number, turn) for turn in range(3)], b"echo behind")
            clients.append(await one.connect())  # idle
            await one.until_seen(15)
            drained = asyncio.ensure_future(one.network.drain(5.0))
            await spin()
            assert await clients[-1].at_end()
            assert not drained.done()
            for name in list(one.waiting):
                one.answer(name)
            for number, client in enumerate(clients[:-1]):
                wanted = [b"answer %d-%d" % (number, turn) for turn in range(3)] + [b"echo behind"]
                assert [await client.receive() for _ in wanted] == wanted
                assert await client.at_end()
            assert await drained == 0
            with pytest.raises(OSError):
                await one.connect()

    run(main())


def test_drain_ends_at_its_deadline(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            client.send(b"wait forever")
            await one.until_seen(1)
            assert await one.network.drain(0.01) == 1
            assert await client.at_end()

    run(main())
    assert "not drained" in caplog.text


@pytest.mark.parametrize("last", [b"close", b"echo"])
def test_a_closed_connection_is_gone_without_a_garbage_collection(last: bytes) -> None:
    """Thousands of short connections would otherwise pile up until the next one."""

    async def main() -> None:
        async with node() as one:
            client = await one.connect()
            assert await client.ask(b"echo") == b"echo"
            (connection,) = [weakref.ref(found) for found in one.network.connections]
            client.send(last)
            await one.until_seen(2)
            client.writer.close()
            await until(lambda: not one.network.connections)
            await spin()
            one.connections.clear()  # the harness's own
            assert connection() is None

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()
